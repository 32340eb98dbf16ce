"""The invariants of simulated coordinators, checked from outside; the watch survives every crash.

Work is read from `TOPIC`, and each of its records is written to `OUT`, by transactions that commit
the offsets of what they have read. A read_committed consumer sees:

* every record of the input once: no loss, no duplicate, all in order;
* transactions whole or not at all: nothing of one that was aborted or never asked to commit, all of
  one whose commit was acknowledged;
* one owner of a partition in each generation of a classic group; in a consumer group no member gets
  a partition before its owner has revoked it, or its session may have expired;
* committed offsets of a group never decrease.

The state of a shard is always the state that its log replays to (`coordinator_state.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simulation.cluster_watch import ClusterWatch
from simulation.ledger import InvariantBroken

OUT: Final = "out"
GROUP: Final = "workers"


class Work(NamedTuple):
    """A value of the output: the input record it was made from, and its transaction."""

    partition: int
    offset: int
    transaction: int

    def encode(self) -> bytes:
        """Return the value as stored in a record."""
        return " ".join(map(str, self)).encode()

    @property
    def place(self) -> int:
        """The partition of the output: the records of one transaction go to several."""
        return self.offset % 2


def decode_work(data: bytes | None) -> Work:
    """Decode a record's value."""
    return Work(*map(int, (data or b"").split()))


@dataclass(slots=True)
class Txn:
    """What a producer knows of a transaction: ``outcome`` is open, asked, commit or abort.

    ``asked``: its commit was requested, and the outcome is unknown. ``must`` is how it has to end,
    commit or abort, where the scenario knows that for certain.
    """

    number: int
    works: list[Work] = field(default_factory=list)
    outcome: str = "open"
    must: str = ""


class Hold(NamedTuple):
    """A member of a consumer group owns a partition, certainly until ``until``."""

    member: str
    until: float


class CoordinatorWatch(ClusterWatch):
    """The history of one simulation."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.txns: list[Txn] = []
        self.seen: dict[Work, tuple[int, int]] = {}
        self.committed = 0
        self.aborted = 0
        self.fenced = 0
        self.generations = 0
        self.standbys = 0  # standby tasks assigned to members of streams groups
        self.loads = 0
        self.is_drained = False  # workers stop: the whole input was processed
        self._once: dict[tuple[int, int], Work] = {}
        self._order: dict[tuple[int, int], Work] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._holds: dict[int, Hold] = {}
        self._offsets: dict[tuple[str, int], tuple[int, int]] = {}

    # -- transactions ----------------------------------------------------------

    def begin(self) -> Txn:
        """Record that a producer starts a transaction."""
        txn = Txn(len(self.txns))
        self.txns.append(txn)
        return txn

    def ended(self, txn: Txn, *, is_commit: bool) -> None:
        """Record the outcome of a transaction, as its producer received it."""
        txn.outcome = "commit" if is_commit else "abort"
        self.committed += is_commit
        self.aborted += not is_commit
        if not is_commit:
            self._check_unseen(txn)

    def _check_unseen(self, txn: Txn) -> None:
        for work in txn.works:
            if work in self.seen:
                raise InvariantBroken(f"{txn} is seen at {self.seen[work]}")

    def was_seen(self, index: int, offset: int, work: Work) -> None:
        """Record that a read_committed consumer received a value; it may receive it again."""
        if self.seen.setdefault(work, (index, offset)) != (index, offset):
            raise InvariantBroken(f"{work} at {self.seen[work]} and {(index, offset)}")
        if self._once.setdefault(work[:2], work) != work:
            raise InvariantBroken(f"done twice: {self._once[work[:2]]} and {work}")
        txn = self.txns[work.transaction]
        if txn.outcome in ("open", "abort"):
            raise InvariantBroken(f"{work} is seen at {(index, offset)}, of {txn}")

    # -- groups ----------------------------------------------------------------

    def owns(self, generation: int, member: str, partitions: Iterable[int]) -> None:
        """Record that a member of a classic group was assigned partitions."""
        self.generations += 1
        for index in partitions:
            owner = self._owners.setdefault((generation, index), member)
            if owner != member:
                raise InvariantBroken(f"{index} is {owner}'s and {member}'s in {generation}")

    def begins_anew(self) -> None:
        """Restart the generations: the group is empty and becomes one of another type."""
        self._owners.clear()

    def holds(self, member: str, index: int, now: float, until: float) -> None:
        """Record that a member of a consumer group owns a partition; its session lasts ``until``
        then.
        """
        held = self._holds.get(index)
        if held is not None and held.member != member and held.until > now:
            raise InvariantBroken(f"{index} is {held}'s and {member}'s at {now}")
        if held is None or held.member != member:
            self.generations += 1
        self._holds[index] = Hold(member, until)

    def lets_go(self, member: str, index: int) -> None:
        """Record that a member of a consumer group no longer reads a partition."""
        held = self._holds.get(index)
        if held is not None and held.member == member:
            del self._holds[index]

    def is_committed(self, epoch: int, topic: str, index: int, offset: int) -> None:
        """Check a committed offset shown by the coordinator of an epoch; older ones may lag."""
        known_epoch, known = self._offsets.get((topic, index), (-1, -1))
        if epoch < known_epoch:
            return
        if offset < known:
            raise InvariantBroken(
                f"{topic}-{index}: committed {offset} in epoch {epoch}, "
                f"was {known} in epoch {known_epoch}"
            )
        self._offsets[topic, index] = (epoch, offset)

    def committed_offset(self, topic: str, index: int) -> int:
        """Return the committed offset that the newest coordinator has shown; -1 for none."""
        return self._offsets.get((topic, index), (-1, -1))[1]

    # -- the end ---------------------------------------------------------------

    def audit_works(self) -> None:
        """Check that every record was processed once, by whole transactions."""
        for txn in self.txns:
            seen = [work for work in txn.works if work in self.seen]
            if seen and len(seen) < len(txn.works):
                raise InvariantBroken(f"torn: of {txn} only {seen} is seen")
            if txn.outcome == "commit" and len(seen) < len(txn.works):
                raise InvariantBroken(f"lost: {txn}")
            if (txn.must == "commit" and not seen) or (txn.must == "abort" and seen):
                raise InvariantBroken(f"it had to {txn.must}: {txn}, of it is seen: {seen}")
        for index, known in enumerate(self.partitions):
            missing = [at for at in range(known.end) if (index, at) not in self._once]
            if missing:
                raise InvariantBroken(f"never done: {missing} of partition {index}")
        last: dict[tuple[int, int], int] = {}
        for (out, _), work in sorted((place, work) for work, place in self.seen.items()):
            if work.offset < last.get((out, work.partition), -1):
                raise InvariantBroken(f"out of order: {work} in {out}")
            last[out, work.partition] = work.offset
