"""How much work the batches of a Produce request are, and which of it is done at once. Pure.

The event loop serves everybody, so one request may hold it for a few milliseconds only. How long
a batch takes to validate is not known before: a few KiB may unpack to gigabytes. So batches are
unpacked at once to a small bound, which nearly all stay below; those that do not are validated
anew by a worker thread. A request hands it one batch at a time, so that its queue is bounded by the
requests in flight, and their memory by `queued.max.request.bytes` and the connections' own limits.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from ottla.api.produce_request import Topic
from ottla.api.record_validation import RecordRules, validate_batch, validate_in_pieces
from ottla.protocol.faults import Fault
from ottla.protocol.records.batch import ATTRIBUTES_AT, CODEC_MASK, TRANSACTIONAL
from ottla.protocol.records.compression import UnpacksToMore
from ottla.protocol.types import Millis

BYTES_AT_ONCE_MAX: Final = 4 << 20
"""Larger requests are validated and appended in slices. A producer's default limit is 1 MiB."""

SLICE_BYTES: Final = 1 << 20
"""Appended before other clients get their turn."""

PLAIN_BYTES_MAX: Final = 2 << 20
"""An uncompressed batch above this is validated by a worker: it may have 300,000 records."""

PACKED_AT_ONCE_MAX: Final = 64
"""Compressed batches of one request that are unpacked at once."""

UNPACKED_AT_ONCE_MAX: Final = 1 << 20
"""What they may unpack to, shared between them: 2.5 ms for gzip, the slowest."""

UNPACKED_AT_ONCE_MIN: Final = 64 << 10
"""Each one's share is at least this, so that small batches to many partitions stay quick."""

HELD_BYTES_MIN: Final = 1 << 20
"""A request above this that waits keeps the buffer it came in; a smaller one is copied."""

_CODEC_AT: Final = ATTRIBUTES_AT + 1

Prepared = memoryview | bytearray | Fault
"""A validated batch, or why it is none."""


class Contents(msgspec.Struct, frozen=True, gc=False):
    """What the batches of a request amount to."""

    compressed: int
    size: int
    """Bytes of all batches."""
    is_transactional: bool
    """Whether any batch may be part of a transaction."""


class Job(NamedTuple):
    """The validation of one batch."""

    batch: memoryview
    rules: RecordRules
    now: Millis

    def at_once(self, unpacked_bytes_max: int) -> Prepared | None:
        """Validate; None where it would take too long."""
        try:
            return validate_batch(self.batch, self.rules, self.now, unpacked_bytes_max)
        except UnpacksToMore:
            return None
        except Fault as fault:
            return fault

    def in_pieces(self) -> Prepared:
        """Validate in a worker thread."""
        try:
            return validate_in_pieces(self.batch, self.rules, self.now)
        except Fault as fault:
            return fault


def is_packed(records: memoryview | None) -> bool:
    """Say whether a batch is compressed."""
    return records is not None and len(records) > _CODEC_AT and records[_CODEC_AT] & CODEC_MASK != 0


def is_apart(records: memoryview | None) -> bool:
    """Say whether a batch of a large request is for a worker."""
    return is_packed(records) or (records is not None and len(records) > PLAIN_BYTES_MAX)


def inspect_batches(topics: Iterable[Topic]) -> Contents:
    """Read the attributes of every batch once."""
    compressed = size = attributes = 0
    for _, partitions in topics:
        for _, records in partitions:
            if records is not None:
                size += len(records)
                if len(records) > _CODEC_AT:
                    attributes |= records[_CODEC_AT]
                    compressed += records[_CODEC_AT] & CODEC_MASK != 0
    return Contents(compressed, size, attributes & TRANSACTIONAL != 0)


def share_of(packed: int) -> int:
    """Return what each of several compressed batches may unpack to at once."""
    return max(UNPACKED_AT_ONCE_MAX // packed, UNPACKED_AT_ONCE_MIN)
