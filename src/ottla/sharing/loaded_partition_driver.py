"""A window in memory, with the fetches that wait for it and the work in progress on it."""

import asyncio
from typing import NamedTuple

import msgspec

from ottla.protocol.types import Millis, Offset
from ottla.sharing.share_partition import RemotePart, SharePartition
from ottla.storage.log.read import RemoteRecords


class RemoteRead(NamedTuple):
    """A read from remote storage, from ``offset`` on."""

    offset: Offset
    result: "asyncio.Future[RemoteRecords]"


class LoadedPartition(msgspec.Struct, eq=False):
    """A window and the fetches that wait for it, in arrival order, each with its member.

    ``writing`` keeps writes in order; ``reading`` is the read from remote storage in progress.
    """

    window: SharePartition
    writing: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    is_writing_letters: bool = False
    dead_failures: int = 0
    dead_retry_at: Millis = Millis(0)
    may_have_letters: bool = False
    """Whether dead letters of this window may be in the topic although they are not archived."""
    unsure_until: Offset = Offset(-1)
    """The last record of which that was so when it was noted."""
    waiting: dict[asyncio.Event, str] = msgspec.field(default_factory=dict)
    reading: RemoteRead | None = None

    def doubt_letters(self, until: Offset) -> None:
        """Note that letters of records up to ``until`` may be in the topic."""
        self.may_have_letters = True
        self.unsure_until = max(self.unsure_until, until)

    def wake(self) -> None:
        """Wake waiting fetches: records may be available."""
        for event in self.waiting:
            event.set()

    def remote_read(self, done: "asyncio.Future[RemoteRecords]") -> None:
        """Wake waiting fetches; one of them takes the result, or raises its error."""
        if not done.cancelled():
            done.exception()  # retrieved, even if none of them waits any longer
        self.wake()

    def wake_member(self, member_id: str) -> None:
        """Wake the fetches of one member: its session may have ended."""
        for event, member in self.waiting.items():
            if member == member_id:
                event.set()


def read_part(cell: LoadedPartition) -> RemotePart | None:
    """Return what was read from remote storage, once; None while nothing was.

    Raises:
        Fault: it cannot be read now.
    """
    reading = cell.reading
    if reading is None or not reading.result.done():
        return None
    cell.reading = None
    if reading.result.cancelled():
        return None
    return RemotePart(reading.offset, reading.result.result())
