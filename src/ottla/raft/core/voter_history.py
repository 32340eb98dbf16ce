"""The voters and the ``kraft.version`` in effect along the log (KIP-853).

A control record takes effect when it is appended, not when it is committed; so truncating the log
reverts the records behind the cut. The history therefore keeps ``(offset, value)`` pairs, the
newest
in effect. Entries from before the log (static configuration, or the checkpoint written by
formatting) are at offset -1.

Invariant: offsets strictly increase in each list; there is always at least one entry.
"""

from bisect import bisect_left
from collections.abc import Iterable

from ottla.protocol.types import Offset
from ottla.raft.core.messages import Control, KRaftVersionAt, VotersAt
from ottla.raft.core.voters import VoterSet

BEFORE_LOG = Offset(-1)


class Membership:
    """The voter sets and versions of one log."""

    def __init__(
        self, voters: VoterSet, kraft_version: int = 0, controls: Iterable[Control] = ()
    ) -> None:
        """Start from the state before the log, then apply the records found in it, in order."""
        self._voters: list[tuple[Offset, VoterSet]] = [(BEFORE_LOG, voters)]
        self._versions: list[tuple[Offset, int]] = [(BEFORE_LOG, kraft_version)]
        for control in controls:
            self.note(control)

    @property
    def voters(self) -> VoterSet:
        """The voters in effect: the newest appended, committed or not."""
        return self._voters[-1][1]

    @property
    def voters_offset(self) -> Offset:
        """The offset of the voters in effect; -1 if from before the log."""
        return self._voters[-1][0]

    @property
    def previous_voters(self) -> VoterSet:
        """The voters before the last change; those in effect if no older ones are kept."""
        return self._voters[-2][1] if len(self._voters) > 1 else self.voters

    @property
    def kraft_version(self) -> int:
        """The level in effect."""
        return self._versions[-1][1]

    @property
    def changed_at(self) -> Offset:
        """The newest offset at which membership changed in any way."""
        return max(self._voters[-1][0], self._versions[-1][0])

    def at(self, offset: Offset) -> tuple[int, VoterSet]:
        """Return level and voters before ``offset``: what a snapshot ending there contains."""
        version = self._versions[max(bisect_left(self._versions, offset, key=_offset) - 1, 0)]
        voters = self._voters[max(bisect_left(self._voters, offset, key=_offset) - 1, 0)]
        return version[1], voters[1]

    def note(self, control: Control) -> None:
        """Put a record that was just appended into effect."""
        match control:
            case VotersAt():
                assert control.offset > self._voters[-1][0], control
                self._voters.append((control.offset, control.voters))
            case KRaftVersionAt():
                assert control.offset > self._versions[-1][0], control
                self._versions.append((control.offset, control.level))

    def set_volatile(self, voters: VoterSet) -> None:
        """Replace the voters from before the log, in memory only (``kraft.version`` 0)."""
        assert self.voters_offset == BEFORE_LOG, "the log defines the voters"
        self._voters[-1] = (BEFORE_LOG, voters)

    def truncate(self, end: Offset) -> None:
        """Revert everything at or behind ``end``, the log's new end."""
        del self._voters[max(1, bisect_left(self._voters, end, key=_offset)) :]
        del self._versions[max(1, bisect_left(self._versions, end, key=_offset)) :]

    def forget_before(self, offset: Offset) -> None:
        """Drop entries that a snapshot at ``offset`` makes unnecessary: all but the newest."""
        del self._voters[: max(bisect_left(self._voters, offset, key=_offset) - 1, 0)]
        del self._versions[: max(bisect_left(self._versions, offset, key=_offset) - 1, 0)]

    def reset(self, offset: Offset, kraft_version: int, voters: VoterSet | None) -> None:
        """Start over from an installed snapshot that ends at ``offset``.

        A snapshot without voters leaves those from before the log in effect.
        """
        last = Offset(offset - 1)
        self._versions = [(last, kraft_version)]
        self._voters = [self._voters[0]] if voters is None else [(last, voters)]


def _offset(entry: tuple[Offset, object]) -> Offset:
    return entry[0]
