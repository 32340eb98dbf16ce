"""Names of the files of one log, exactly as in Kafka.

    00000000000000001500.log         record batches from offset 1500 on
    00000000000000001500.index       offset -> position
    00000000000000001500.timeindex   timestamp -> offset
    00000000000000001500.txnindex    aborted transactions; absent if there are none
    00000000000000001500.snapshot    producers as of offset 1500, exclusive

A second suffix marks a temporary state: ``.deleted`` waits to be removed, ``.cleaned`` is being
written by the cleaner, ``.swap`` is complete and replaces the segments it covers.
"""

import enum
import re
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.protocol.types import Offset
from ottla.runtime.ports import Disk

OFFSET_MAX: Final = 2**63 - 1


class Kind(enum.StrEnum):
    """What a file holds: the first suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class State(enum.StrEnum):
    """The state of a file: the second suffix."""

    LIVE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


INDEXES: Final = (Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.TXN_INDEX)

_KINDS: Final = {kind.value: kind for kind in Kind}
_STATES: Final = {state.value: state for state in State}
_NAME: Final = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap|)",
    re.ASCII,
)


class FileName(NamedTuple):
    """A parsed name. ``offset`` is the first the file may hold; for a snapshot, the end."""

    offset: Offset
    kind: Kind
    state: State


def file_name(offset: Offset, kind: Kind, state: State = State.LIVE) -> str:
    """Return the name of a file of the segment (or snapshot) at ``offset``."""
    return f"{offset:020d}{kind.value}{state.value}"


def parse_name(name: str) -> FileName | None:
    """Parse a name; None for a file that does not belong to a log, which is left alone."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    offset = int(match[1])
    if offset > OFFSET_MAX:
        return None
    return FileName(Offset(offset), _KINDS[match[2]], _STATES[match[3]])


class LogFiles(NamedTuple):
    """The directory of one log, and the disk it is on."""

    disk: Disk
    directory: str

    def path(self, offset: Offset, kind: Kind, state: State = State.LIVE) -> str:
        """Return the path of a file of the segment (or snapshot) at ``offset``."""
        return f"{self.directory}/{file_name(offset, kind, state)}"

    def remove_if_there(self, offset: Offset, kind: Kind, state: State = State.LIVE) -> None:
        """Remove a file that may be absent."""
        with suppress(FileNotFoundError):
            self.disk.remove(self.path(offset, kind, state))
