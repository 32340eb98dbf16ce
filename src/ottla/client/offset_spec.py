"""Where to begin reading a partition, as people write it.

beginning, earliest    the first record that is there
end, latest            behind the last
N                      the offset
-N                     N records before the end
@N                     the first record of this time or later, in milliseconds since 1970
"""

import re
from typing import Final

import msgspec

OFFSET_MAX: Final = 2**63 - 1

# What ListOffsets takes in place of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


class BadOffset(ValueError):
    """A text that is no offset; the message says which forms there are."""


class AtOffset(msgspec.Struct, frozen=True):
    """Exactly this offset; nobody has to be asked."""

    offset: int


class AtTime(msgspec.Struct, frozen=True):
    """What ListOffsets answers for this time, or for one of its special numbers."""

    timestamp: int


class BeforeEnd(msgspec.Struct, frozen=True):
    """So many offsets before the end, but never before the beginning."""

    count: int


OffsetSpec = AtOffset | AtTime | BeforeEnd

BEGINNING: Final = AtTime(EARLIEST)
END: Final = AtTime(LATEST)

_NAMED: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}
_FORM: Final = re.compile(r"([-@]?)([0-9]{1,19})\Z")


def parse_offset(text: str) -> OffsetSpec:
    """Read one of the forms above. Raises `BadOffset`."""
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
    """Return the offset ``count`` before the end, within what is there."""
    return max(beginning, end - count)
