"""The invariants of a simulated quorum, checked from outside; the watch survives every crash.

* at most one leader per epoch;
* what a leader commits ends with a record of its own epoch;
* a replica's epoch never decreases, nor its committed offset within one process;
* what is committed on one replica is committed on all, at the same offset, forever;
* a snapshot holds exactly the state of the committed records before it;
* a new voter has all but the last few records: otherwise it would block every commit.

That a majority holds the committed records shows at the end: all lose power at once, and all
committed records must still be there once a leader is elected.
"""

from ottla.raft.core.voters import ReplicaKey, VoterSet
from ottla.raft.driver import RaftDriver
from simulation.ledger import InvariantBroken

LAG_RECORDS_MAX = 4
Entry = tuple[int, int, tuple[str, ...]]
"""Next offset, epoch and values of one batch."""


class QuorumWatch:
    """The history of one quorum as its listeners received it."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, Entry] = {}
        self.end = 0
        self.changes = 0
        self.loads = 0
        self.replicas: dict[ReplicaKey, RaftDriver] = {}  # the last process of each
        self.voters: set[ReplicaKey] = set()  # all that ever existed, except lost writes
        self._epochs: dict[str, int] = {}

    def led(self, node: str, epoch: int) -> None:
        """Record that a replica became leader."""
        if self.leaders.setdefault(epoch, node) != node:
            raise InvariantBroken(f"two leaders in epoch {epoch}: {self.leaders[epoch]}, {node}")

    def entered(self, replica: str, epoch: int) -> None:
        """Record that a replica, by its directory id, reported its epoch."""
        before = self._epochs.setdefault(replica, epoch)
        if epoch < before:
            raise InvariantBroken(f"{replica} went back from epoch {before} to {epoch}")
        self._epochs[replica] = epoch

    def wrote_voters(self, end: int, epoch: int, voters: VoterSet) -> None:
        """Check the voters that a leader, whose log ends at ``end``, is about to append.

        A voter that left the leader's epoch meanwhile may have truncated its log since.
        """
        for key in sorted({voter.key for voter in voters} - self.voters):
            replica = self.replicas[key].describe()
            lag = end - replica.log_end_offset
            if replica.epoch == epoch and lag > LAG_RECORDS_MAX:
                raise InvariantBroken(f"{key} becomes a voter and is {lag} records behind")
            self.voters.add(key)

    def applied(self, node: str, base: int, entry: Entry) -> None:
        """Record that a replica received a committed batch."""
        known = self.committed.get(base)
        if known is not None and known != entry:
            raise InvariantBroken(f"{node}: committed {known} at {base}, now {entry}")
        if known is None and base != self.end:
            raise InvariantBroken(f"{node}: committed at {base}, the others are at {self.end}")
        if known is None:
            self.committed[base] = entry
            self.end = entry[0]

    def commits(self, node: str, epoch: int, last_epoch: int) -> None:
        """Check that a leader's high watermark is after a record of its own epoch."""
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
        """Check the snapshot that a replica started from."""
        self.loads += 1
        if offset > self.end:
            raise InvariantBroken(f"{node}: snapshot at {offset}, committed is {self.end}")
        if values != self.values_before(offset):
            raise InvariantBroken(f"{node}: the snapshot at {offset} is not what was committed")
