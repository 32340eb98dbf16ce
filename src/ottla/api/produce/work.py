"""How expensive the batches of a Produce request are, and which are validated at once. Pure.

One request may hold the event loop for a few milliseconds only. How long a batch takes to validate
is not known in advance: a few KiB may decompress to gigabytes. Batches are therefore decompressed
at once up to a small limit, below which nearly all stay; the others are validated again by a worker
thread. A request gives the worker one batch at a time, so the worker's queue is bounded by the
requests in flight, and their memory by `queued.max.request.bytes` and the limits of connections.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from ottla.api.produce.record_validation import RecordRules, validate_batch, validate_in_pieces
from ottla.api.produce.request import Topic
from ottla.api.produce.schema_rules import SchemaRules
from ottla.protocol.faults import Fault
from ottla.protocol.records.batch import ATTRIBUTES_AT, CODEC_MASK, TRANSACTIONAL
from ottla.protocol.records.compression import UnpacksToMore
from ottla.protocol.types import Millis, TopicPartition
from ottla.replication.partition import Partition

BYTES_AT_ONCE_MAX: Final = 4 << 20
"""Larger requests are validated and appended in slices. A producer's default limit is 1 MiB."""

SLICE_BYTES: Final = 1 << 20
"""Bytes appended before other requests are served."""

PLAIN_BYTES_MAX: Final = 2 << 20
"""An uncompressed batch above this is validated by a worker: it may have 300,000 records."""

PACKED_AT_ONCE_MAX: Final = 64
"""Compressed batches of one request that are decompressed at once."""

UNPACKED_AT_ONCE_MAX: Final = 1 << 20
"""Their decompressed bytes, shared between them: 2.5 ms for gzip, the slowest codec."""

UNPACKED_AT_ONCE_MIN: Final = 64 << 10
"""The share of each is at least this, so that small batches to many partitions stay cheap."""

HELD_BYTES_MIN: Final = 1 << 20
"""A larger request that waits keeps its receive buffer; a smaller one is copied."""

_CODEC_AT: Final = ATTRIBUTES_AT + 1


class ThinnedBatch(NamedTuple):
    """A batch without the records that became dead letters; their offsets stay unused."""

    batch: bytearray


Prepared = memoryview | bytearray | ThinnedBatch | Fault
"""A validated batch, or the error of an invalid one."""


class SchemaJob(NamedTuple):
    """A batch to check by schemas, valid otherwise. ``slot`` is its index in the request."""

    slot: int
    partition: Partition
    batch: memoryview | bytearray
    rules: SchemaRules

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.partition.topic, self.partition.index)


class Contents(msgspec.Struct, frozen=True, gc=False):
    """The totals of a request's batches."""

    compressed: int
    size: int
    """Total bytes of the batches."""
    is_transactional: bool
    """Whether any batch may be part of a transaction."""


class Job(NamedTuple):
    """The validation of one batch."""

    batch: memoryview
    rules: RecordRules
    now: Millis

    def at_once(self, unpacked_bytes_max: int) -> Prepared | None:
        """Validate; None if it would take too long."""
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


def is_any(records: memoryview | None) -> bool:
    """Return whether there is a batch."""
    return records is not None


def is_packed(records: memoryview | None) -> bool:
    """Return whether a batch is compressed."""
    return records is not None and len(records) > _CODEC_AT and records[_CODEC_AT] & CODEC_MASK != 0


def is_apart(records: memoryview | None) -> bool:
    """Return whether a worker validates this batch of a large request."""
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
    """Return how many bytes each of several compressed batches may decompress to at once."""
    return max(UNPACKED_AT_ONCE_MAX // packed, UNPACKED_AT_ONCE_MIN)
