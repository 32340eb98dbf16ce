"""What must hold for simulated coordinators, seen from outside; it survives every crash.

Work is read from `TOPIC`, and each record of it is written to `OUT`, by transactions that commit
the offsets of what they have read. Seen by who reads committed:

* every record of the input once: none is lost, none is there twice, all are in order;
* a transaction whole or not at all, nothing of one that was aborted or never asked to commit, all
  of one whose producer was told that it is committed;
* one owner of a partition in each generation of a classic group, and in a consumer group nobody
  is given a partition before its owner has let go of it, or could have been taken for dead;
* what is committed of a group's offsets never falls.

What a shard holds is what its log amounts to, always (`coordinator_state.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simulation.cluster_watch import ClusterWatch
from simulation.ledger import InvariantBroken

OUT: Final = "out"
GROUP: Final = "workers"


class Work(NamedTuple):
    """A value of the output: the record it was made of, and by which transaction."""

    partition: int
    offset: int
    transaction: int

    def encode(self) -> bytes:
        """Return it as a record has it."""
        return " ".join(map(str, self)).encode()

    @property
    def place(self) -> int:
        """The partition of the output: what one transaction makes goes to several."""
        return self.offset % 2


def decode_work(data: bytes | None) -> Work:
    """Return a value from a record."""
    return Work(*map(int, (data or b"").split()))


@dataclass(slots=True)
class Txn:
    """What a producer knows of a transaction: ``outcome`` is open, asked, commit or abort.

    ``asked``: it was asked to commit, and nobody knows what came of it. ``must`` is how it has to
    end, commit or abort, where somebody who sees everything knows that better.
    """

    number: int
    works: list[Work] = field(default_factory=list)
    outcome: str = "open"
    must: str = ""


class Hold(NamedTuple):
    """A member of a consumer group has a partition, for good until ``until``."""

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
        self.standbys = 0  # copies of tasks that members of streams groups were given
        self.loads = 0
        self.is_drained = False  # workers end: all there is was worked on
        self._once: dict[tuple[int, int], Work] = {}
        self._order: dict[tuple[int, int], Work] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._holds: dict[int, Hold] = {}
        self._offsets: dict[tuple[str, int], tuple[int, int]] = {}

    # -- transactions ----------------------------------------------------------

    def begin(self) -> Txn:
        """A producer begins a transaction."""
        txn = Txn(len(self.txns))
        self.txns.append(txn)
        return txn

    def ended(self, txn: Txn, *, is_commit: bool) -> None:
        """A producer was told how its transaction has ended."""
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
        """Who reads committed was given a value; it may be given it again."""
        if self.seen.setdefault(work, (index, offset)) != (index, offset):
            raise InvariantBroken(f"{work} at {self.seen[work]} and {(index, offset)}")
        if self._once.setdefault(work[:2], work) != work:
            raise InvariantBroken(f"done twice: {self._once[work[:2]]} and {work}")
        txn = self.txns[work.transaction]
        if txn.outcome in ("open", "abort"):
            raise InvariantBroken(f"{work} is seen at {(index, offset)}, of {txn}")

    # -- groups ----------------------------------------------------------------

    def owns(self, generation: int, member: str, partitions: Iterable[int]) -> None:
        """A member of a classic group was given partitions."""
        self.generations += 1
        for index in partitions:
            owner = self._owners.setdefault((generation, index), member)
            if owner != member:
                raise InvariantBroken(f"{index} is {owner}'s and {member}'s in {generation}")

    def begins_anew(self) -> None:
        """The group has no members and becomes one of another kind: generations start again."""
        self._owners.clear()

    def holds(self, member: str, index: int, now: float, until: float) -> None:
        """A member of a consumer group has a partition, and is not taken for dead ``until``."""
        held = self._holds.get(index)
        if held is not None and held.member != member and held.until > now:
            raise InvariantBroken(f"{index} is {held}'s and {member}'s at {now}")
        if held is None or held.member != member:
            self.generations += 1
        self._holds[index] = Hold(member, until)

    def lets_go(self, member: str, index: int) -> None:
        """A member of a consumer group no longer reads a partition."""
        held = self._holds.get(index)
        if held is not None and held.member == member:
            del self._holds[index]

    def is_committed(self, epoch: int, topic: str, index: int, offset: int) -> None:
        """The coordinator of an epoch shows a committed offset; older ones may not know of it."""
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
        """See that every record was worked on once, by transactions that are whole."""
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
