"""What must hold in a simulated quorum, seen from outside it; it survives every crash.

* at most one leader per epoch;
* what a leader commits ends with a record of its own epoch;
* a replica's epoch never falls, nor its committed offset within one life;
* what is committed anywhere is committed everywhere, at the same place, and stays;
* a snapshot holds exactly what the committed records before it come to;
* who is made a voter has all but the last few records: else it would hold every commit back.

That a majority holds what is committed shows at the end: all lose power at once, and everything
committed must still be there once they have elected a leader.
"""

from ottla.raft.core.voters import ReplicaKey, VoterSet
from ottla.raft.driver import RaftDriver
from simulation.ledger import InvariantBroken

LAG_RECORDS_MAX = 4
Entry = tuple[int, int, tuple[str, ...]]
"""Next offset, epoch and values of one batch."""


class QuorumWatch:
    """The history of one quorum as it was told to its listeners."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, Entry] = {}
        self.end = 0
        self.changes = 0
        self.loads = 0
        self.replicas: dict[ReplicaKey, RaftDriver] = {}  # the last life of each
        self.voters: set[ReplicaKey] = set()  # all that ever were, but for lost writes
        self._epochs: dict[str, int] = {}

    def led(self, node: str, epoch: int) -> None:
        """A replica took office."""
        if self.leaders.setdefault(epoch, node) != node:
            raise InvariantBroken(f"two leaders in epoch {epoch}: {self.leaders[epoch]}, {node}")

    def entered(self, replica: str, epoch: int) -> None:
        """A replica, by its directory, told of its epoch."""
        before = self._epochs.setdefault(replica, epoch)
        if epoch < before:
            raise InvariantBroken(f"{replica} fell from epoch {before} to {epoch}")
        self._epochs[replica] = epoch

    def wrote_voters(self, end: int, epoch: int, voters: VoterSet) -> None:
        """A leader, whose log ends at ``end``, is about to append voters.

        One that left the leader's epoch meanwhile may have cut its log since.
        """
        for key in sorted({voter.key for voter in voters} - self.voters):
            replica = self.replicas[key].describe()
            lag = end - replica.log_end_offset
            if replica.epoch == epoch and lag > LAG_RECORDS_MAX:
                raise InvariantBroken(f"{key} becomes a voter and is {lag} records behind")
            self.voters.add(key)

    def applied(self, node: str, base: int, entry: Entry) -> None:
        """A replica was told that a batch is committed."""
        known = self.committed.get(base)
        if known is not None and known != entry:
            raise InvariantBroken(f"{node}: committed {known} at {base}, now {entry}")
        if known is None and base != self.end:
            raise InvariantBroken(f"{node}: committed at {base}, everybody else is at {self.end}")
        if known is None:
            self.committed[base] = entry
            self.end = entry[0]

    def commits(self, node: str, epoch: int, last_epoch: int) -> None:
        """A leader's high watermark stands behind a record of ``last_epoch``."""
        if epoch != last_epoch:
            raise InvariantBroken(f"{node} leads {epoch} and commits up to epoch {last_epoch}")

    def values_before(self, offset: int) -> list[str]:
        """Return all values committed before ``offset``, in order."""
        found: list[str] = []
        for base, (_, _, values) in sorted(self.committed.items()):
            if base < offset:
                found += values
        return found

    def loaded(self, node: str, offset: int, values: list[str]) -> None:
        """A replica began from a snapshot."""
        self.loads += 1
        if offset > self.end:
            raise InvariantBroken(f"{node}: snapshot at {offset}, committed is {self.end}")
        if values != self.values_before(offset):
            raise InvariantBroken(f"{node}: the snapshot at {offset} is not what was committed")
