"""Which leader epoch wrote which part of one log (KIP-101, KIP-279).

Pure. Entries are ``(epoch, start_offset)``: the offset of the epoch's first record; the epoch ends
where the next entry starts. A follower whose history differs from the leader's truncates its log
to the end of the last epoch they share.

Invariant: both epochs and start offsets strictly grow. The checkpoint file must be rewritten after
a change before the entries are relied on; a stale file is cut to the log when it is opened.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.types import NO_EPOCH, LeaderEpoch, Offset

UNDEFINED_OFFSET = Offset(-1)


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: LeaderEpoch
    start_offset: Offset


class LeaderEpochs:
    """The epochs of one log. Methods that change it return whether the checkpoint is stale."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        self.latest: LeaderEpoch = NO_EPOCH  # the epoch that wrote last; every append compares it
        for entry in entries:
            self.assign(*entry)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        """The epoch that wrote last; None when there is no entry."""
        return self.latest if self._entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        """The oldest entry."""
        return self._entries[0] if self._entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that ``epoch`` writes from ``start_offset`` on; True when the entries changed.

        Entries that no longer fit before the new one (same or later epoch, or starting at or
        after it) are dropped: that part of the log was overwritten. A batch in the current epoch
        is the common case and costs one comparison.
        """
        assert min(epoch, start_offset) >= 0, (epoch, start_offset)
        if self._entries:
            latest = self._entries[-1]
            if latest.epoch == epoch and start_offset >= latest.start_offset:
                return False
        while self._entries and (
            self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset
        ):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """Return the largest known epoch at or below ``epoch``, and where it ends.

        The newest epoch ends at ``log_end``. For an epoch older than all entries the result is
        the epoch itself and the oldest entry's start: its records have been deleted. ``(-1, -1)``
        when ``epoch`` is -1 or newer than any known, so that the requester falls back.
        """
        if epoch == NO_EPOCH or not self._entries or epoch > self._entries[-1].epoch:
            return NO_EPOCH, UNDEFINED_OFFSET
        if epoch == self._entries[-1].epoch:
            return epoch, log_end
        above = self._first_above(epoch)
        floor = self._entries[above - 1].epoch if above else epoch
        return floor, self._entries[above].start_offset

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch that wrote ``offset``; None when it is older than all entries."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[index - 1].epoch if index else None

    def truncate_from_end(self, offset: Offset) -> bool:
        """Drop epochs that start at or after ``offset``, the log's new end."""
        kept = bisect_right(self._entries, offset - 1, key=lambda entry: entry.start_offset)
        is_changed = kept < len(self._entries)
        del self._entries[kept:]
        self.latest = self._entries[-1].epoch if self._entries else NO_EPOCH
        return is_changed

    def truncate_from_start(self, offset: Offset) -> bool:
        """Drop what lies before ``offset``, the log's new start.

        The epoch that holds it stays, and now starts there.
        """
        index = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if index == 0:
            return False
        moved = EpochEntry(self._entries[index - 1].epoch, offset)
        is_changed = index > 1 or moved != self._entries[0]
        self._entries[:index] = [moved]
        return is_changed

    def clear(self) -> bool:
        """Drop all entries."""
        is_changed = bool(self._entries)
        self._entries.clear()
        self.latest = NO_EPOCH
        return is_changed

    def _first_above(self, epoch: LeaderEpoch) -> int:
        return bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
