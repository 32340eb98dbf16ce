"""Start positions in a partition, as users write them.

beginning, earliest    the first record
end, latest            after the last record
N                      the offset N
-N                     N records before the end
@N                     the first record at or after this time, in milliseconds since 1970
"""

import re
from typing import Final

import msgspec

from ottla.protocol.types import TopicPartition

OFFSET_MAX: Final = 2**63 - 1

# Special timestamps of ListOffsets.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


class BadOffset(ValueError):
    """A text that is not an offset; the message lists the valid forms."""


class AtOffset(msgspec.Struct, frozen=True):
    """Exactly this offset; needs no request."""

    offset: int


class AtTime(msgspec.Struct, frozen=True):
    """The result of ListOffsets for this timestamp or special value."""

    timestamp: int


class BeforeEnd(msgspec.Struct, frozen=True):
    """``count`` offsets before the end, but not before the beginning."""

    count: int


OffsetSpec = AtOffset | AtTime | BeforeEnd


class Range(msgspec.Struct, frozen=True):
    """The offsets ``[start, end)`` of one partition."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        """The number of offsets; compaction and markers may leave fewer records."""
        return self.end - self.start


BEGINNING: Final = AtTime(EARLIEST)
END: Final = AtTime(LATEST)

_NAMED: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}
_FORM: Final = re.compile(r"([-@]?)([0-9]{1,19})\Z")


def parse_offset(text: str) -> OffsetSpec:
    """Parse one of the forms above. Raises `BadOffset`."""
    if (named := _NAMED.get(text)) is not None:
        return named
    found = _FORM.match(text)
    if found is None or int(found[2]) > OFFSET_MAX:
        raise BadOffset(f"{text!r} must be beginning, end, N, -N or @milliseconds")
    number = int(found[2])
    match found[1]:
        case "-":
            return BeforeEnd(number)
        case "@":
            return AtTime(number)
        case _:
            return AtOffset(number)


def before_end(count: int, beginning: int, end: int) -> int:
    """Return the offset ``count`` before the end, but not before the beginning."""
    return max(beginning, end - count)
