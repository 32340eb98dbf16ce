"""The scenario ``transaction-steps``: a fault between every two steps of a transaction.

One producer does numbered work, two records per transaction, one into each of two partitions, with
the offset of its progress; another producer writes beside it all the time. The outcome after each
fault is checked with full knowledge: once an end is decided and committed it stands; before an end
was requested nothing of the transaction is ever visible. And nothing happens too early: no marker
is written before its decision is committed, and no transaction completes before all its markers are
replicated.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.shard import Shard, ShardState
from ottla.coordinators.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.coordinators.transactions.machine import TransactionMachine, TransactionsView
from ottla.coordinators.transactions.transaction import COMPLETE, PREPARED, Status, Transaction
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.replication.partition import Partition
from simulation.cluster_node import Machine
from simulation.cluster_watch import TOPIC
from simulation.coordinator_client import AGAIN, FOR_GROUP, CoordinatorClient
from simulation.coordinator_state import check_shards
from simulation.coordinator_steps import NODES, Case, SteppedScenario
from simulation.coordinator_transactor import Fenced, MustAbort, Transactor
from simulation.coordinator_watch import GROUP, OUT, CoordinatorWatch, Txn, Work
from simulation.coordinator_worker import Auditor
from simulation.ledger import InvariantBroken
from simulation.simulation import Main, Ports, Simulation

WORKER: Final = "fay"
USURPER: Final = "gus"
BYSTANDER: Final = "ann"
AUDITOR: Final = "eve"
# The other producer writes here; its records are not counted.
BESIDE: Final = 1
BYSTANDER_WAIT_S: Final = 1.0
# It requests its end up to this much earlier: both are decided before either is committed.
BYSTANDER_AHEAD_S: Final = 0.002
# The partitions that a transaction of the producer writes to.
PLACES: Final = ((OUT, 0), (OUT, 1), (CONSUMER_OFFSETS, 0))
# Shorter than the repair of a fault, it would let the coordinator abort a transaction still in use.
TIMEOUT_MS: Final = 4000
# For a producer that restarts only after its coordinator has ended its transaction.
TIMEOUT_GONE_MS: Final = 600

STEPS: Final = (
    "begun",
    "partition added",
    "that is committed",
    "records written",
    "records replicated",
    "records acknowledged",
    "offsets written",
    "offsets replicated",
    "offsets acknowledged",
    "end requested",
    "end decided",
    "end committed",
    "end answered",
    "first marker written",
    "all markers written",
    "all markers replicated",
    "completed",
    "completion committed",
)
_OWN: Final = frozenset(
    {"begun", "records acknowledged", "offsets acknowledged", "end requested", "end answered"}
)
_MARKER_STEPS: Final = STEPS[STEPS.index("end requested") :]
FAULTS: Final = {
    "worker": STEPS,
    "gone": STEPS[: STEPS.index("end answered")],
    "usurped": STEPS,
    "coordinator": STEPS,
    "deposed": STEPS[1::2],
    "moved": STEPS,
    # Other leaders matter where they receive markers.
    "leader": _MARKER_STEPS,
    "leader moved": _MARKER_STEPS,
    "controller": STEPS[::3],
}
"""At which steps each fault falls."""


async def transaction_steps(simulation: Simulation) -> None:
    """A transaction is atomic, whatever crashes between any two of its steps."""
    await TransactionStepsScenario(simulation).run()


class Progress:
    """A producer's progress, as it knows it itself."""

    def __init__(self) -> None:
        self.txn: Txn | None = None
        self.reached: set[str] = set()
        self.is_about_to_end = asyncio.Event()

    def begin(self, txn: Txn) -> None:
        """Start a transaction."""
        self.txn, self.reached = txn, {"begun"}
        self.is_about_to_end.clear()

    def reach(self, txn: Txn, what: str) -> None:
        """Record that the transaction has reached a later step."""
        if txn is self.txn:
            self.reached.add(what)


class Trail:
    """One partition's part of a transaction: the offsets after its first records and its marker."""

    def __init__(self, producer_id: int, epoch: int, partition: Partition) -> None:
        self.opened = 0
        self.ended = 0
        self.high_watermark = 0
        self._partition = partition
        self._producer = (producer_id, epoch)
        self._markers = partition.log.producers.markers_of(producer_id)

    def follow(self) -> bool:
        """Inspect the partition; return whether its marker is new."""
        log = self._partition.log
        self.high_watermark = int(log.high_watermark)
        if self.ended:
            return False
        if not self.opened and log.producers.has_open_transaction(*self._producer):
            self.opened = int(log.log_end_offset)
        if log.producers.markers_of(self._producer[0]) == self._markers:
            return False
        self.ended = int(log.log_end_offset)
        return True

    @property
    def is_open_replicated(self) -> bool:
        """Whether the first records are replicated."""
        return 0 < self.opened <= self.high_watermark

    @property
    def is_undecided(self) -> bool:
        """Whether it has records whose marker may still be lost."""
        return self.opened > 0 and not self.is_end_replicated

    @property
    def is_end_replicated(self) -> bool:
        """Whether the marker is replicated."""
        return 0 < self.ended <= self.high_watermark


class StepWorker(CoordinatorClient):
    """Do numbered work, one transaction after the other, until another producer takes over."""

    def __init__(
        self, ports: Ports, watch: CoordinatorWatch, progress: Progress, transactor: tuple[int, int]
    ) -> None:
        super().__init__(WORKER, ports, watch, NODES)
        self._progress = progress
        version, timeout_ms = transactor
        self._transactor = Transactor(self, WORKER, version, self._between, timeout_ms=timeout_ms)
        self._follows_at_once = False

    async def _between(self) -> None:
        if not self._follows_at_once:
            await self.rest()

    async def run(self, is_needed: Callable[[], bool]) -> None:
        """Work until there is nothing left to do."""
        await self._transactor.begin_anew()
        offset = None
        while not self.watch.is_drained:
            if offset is None:
                await self.rest()
                offset = await self._position()
                continue
            try:
                offset = await self._work(offset)
            except Fenced:
                self.watch.fenced += 1
                if not is_needed():
                    return
                await self._transactor.begin_anew()
                offset = None

    async def _position(self) -> int | None:
        """Fetch the position of the work, which waits for open transactions."""
        topics = [OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(GROUP, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self.ask_coordinator(FOR_GROUP, GROUP, request, version=9)
        if not isinstance(response, OffsetFetchResponse):
            return None
        found = response.groups[0]
        at = found.topics[0].partitions[0] if found.topics else None
        error = ErrorCode(found.error_code or (at.error_code if at is not None else 0))
        if error is not ErrorCode.NONE:
            self.moved(FOR_GROUP, GROUP, error)
            self.check(error, AGAIN | {ErrorCode.UNSTABLE_OFFSET_COMMIT}, "OffsetFetch")
            return None
        return None if at is None else max(at.committed_offset, 0)

    async def _work(self, offset: int) -> int | None:
        """Process two records in a transaction; return the next, None if it has to be looked up."""
        txn, progress = self.watch.begin(), self._progress
        txn.works = [Work(0, at, txn.number) for at in (offset, offset + 1)]
        is_commit = txn.number % 4 != 3
        progress.begin(txn)
        try:
            await self._transactor.produce(txn.works)
            progress.reach(txn, "records acknowledged")
            # An aborted transaction needs no offsets: then only its markers are waited for.
            if txn.number % 8 != 7:
                await self._transactor.commit_offsets(("", -1), 0, offset + 2)
                progress.reach(txn, "offsets acknowledged")
            progress.is_about_to_end.set()
            await asyncio.sleep(BYSTANDER_AHEAD_S * self.ports.random.fraction())
        except MustAbort:
            is_commit = False
        except Fenced:
            txn.outcome = "abort"
            raise
        if is_commit:
            txn.outcome = "asked"
        progress.reach(txn, "end requested")
        await self._transactor.end(commit=is_commit)
        self.watch.ended(txn, is_commit=is_commit)
        progress.reach(txn, "end answered")
        # The next transaction may start at once, while the markers of this one are still being
        # written.
        self._follows_at_once = is_commit and txn.number % 2 == 1
        return offset + 2 if self._follows_at_once else None


class Bystander(CoordinatorClient):
    """End its own transactions just when the other producer does, which must be unaffected."""

    async def run(self, progress: Progress) -> None:
        """Work until there is nothing left to do."""
        transactor = Transactor(self, BYSTANDER, 2, self.rest)
        await transactor.begin_anew()
        while not self.watch.is_drained:
            await self.rest()
            try:
                with contextlib.suppress(MustAbort):
                    await transactor.commit_offsets(("", -1), BESIDE, 1)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BYSTANDER_WAIT_S):
                        await progress.is_about_to_end.wait()
                await transactor.end(commit=True)
            except Fenced:
                await transactor.begin_anew()


class TransactionStepsScenario(SteppedScenario):
    """Inject a fault at each step. By seed transactions are of version 2 or 0."""

    topic = TRANSACTION_STATE
    topics = (TOPIC, OUT, CONSUMER_OFFSETS, TRANSACTION_STATE)

    def __init__(
        self, simulation: Simulation, faults: Iterable[str] = FAULTS, every: int = 1
    ) -> None:
        super().__init__(simulation)
        self.version = 2 if simulation.seed % 2 == 0 else 0
        self.progress = Progress()
        self.workers = [WORKER]
        self._faults = faults
        self._every = every  # a fault at one of this many steps
        self._timeout_ms = TIMEOUT_MS
        self._trails: dict[tuple[str, int], Trail] = {}
        self._measured: Txn | None = None
        self._is_decided = False
        self._shard: Shard[TransactionMachine] | None = None

    def cases(self) -> Sequence[Case]:
        """Return every fault at every step."""
        return [(fault, step) for fault in self._faults for step in FAULTS[fault][:: self._every]]

    def begin_work(self) -> None:
        """Start the producers and the reader of what they commit."""
        self.simulation.host(WORKER).start(self._producer(WORKER))
        self.simulation.host(BYSTANDER).start(self._stand_by)
        self.simulation.host(AUDITOR).start(self._audit)

    def _producer(self, host: str) -> Main:
        async def produce(ports: Ports) -> None:
            kind = (self.version, self._timeout_ms)
            worker = StepWorker(ports, self.watch, self.progress, kind)
            await worker.run(lambda: host in self.workers)

        return produce

    async def _stand_by(self, ports: Ports) -> None:
        await Bystander(BYSTANDER, ports, self.watch, NODES).run(self.progress)

    async def _audit(self, ports: Ports) -> None:
        await Auditor(AUDITOR, ports, self.watch, NODES).run(OUT)

    def usurp(self) -> None:
        """Start the same producer elsewhere; the one before continues until it is fenced."""
        (before,) = self.workers
        self.workers = [USURPER if before == WORKER else WORKER]
        host = self.simulation.host(self.workers[0])
        if host.is_up:
            host.kill()
        host.start(self._producer(self.workers[0]))

    def other_place(self) -> tuple[str, int]:
        """Return a partition that receives a marker, preferably not led by the coordinator."""
        coordinator = self.leader_of(self.topic)
        return min(PLACES, key=lambda place: self.leader_of(*place) == coordinator)

    async def prepare(self, case: Case) -> None:
        """Restart the producer with the transaction timeout that the case needs."""
        wanted = TIMEOUT_GONE_MS if case[0] == "gone" else TIMEOUT_MS
        if self._timeout_ms != wanted:
            self._timeout_ms = wanted
            self.simulation.host(self.workers[0]).kill()
            self.simulation.host(self.workers[0]).restart()
        done = len(self.watch.txns)
        await self.until(lambda: len(self.watch.txns) > done, f"before {case}", 0.005)

    # -- how far it has come ---------------------------------------------------

    def check(self) -> None:
        """Follow the current transaction into its partitions, and check that nothing comes early.

        Only while there are no faults: then leaders do not change, and nothing is requested twice.
        """
        if not self.is_steady or not self._is_measured():
            return
        for place, trail in self._trails.items():
            if trail.follow():
                self._check_committed(place)
        now = self._transaction(is_committed=False)
        if now is None:
            return
        if "end answered" in self.progress.reached and now.status in PREPARED:
            self._check_committed("answered")
        self._is_decided = self._is_decided or now.status in PREPARED
        if self._is_decided and now.status in COMPLETE:
            missing = [each for each, trail in self._trails.items() if trail.is_undecided]
            if missing:
                raise InvariantBroken(f"{missing}: complete without their markers: {now}")

    def _check_committed(self, what: object) -> None:
        decided = self._transaction(is_committed=True)
        if decided is not None and decided.status not in PREPARED | COMPLETE:
            raise InvariantBroken(f"{what}: ended before that is committed: {decided}")

    def _is_measured(self) -> bool:
        """Say whether the current transaction was observed from its start.

        One that starts before the markers of the last are written is not used.
        """
        progress = self.progress
        if progress.txn is None or self._measured is progress.txn:
            return progress.txn is not None
        if len(progress.reached) > 1:
            return False
        self._shard = self.newest_shard()
        found = self._transaction(is_committed=True)
        if found is None or found.status in (*PREPARED, Status.ONGOING):
            return False
        for place in PLACES:
            partition = self.led(*place)
            if partition is None:
                return False
            self._trails[place] = Trail(found.producer_id, found.producer_epoch, partition)
        self._measured, self._is_decided = progress.txn, False
        return True

    def has_reached(self, step: str) -> bool:
        """Say whether the current transaction has reached a step."""
        if not self._is_measured():
            return False
        if step in _OWN:
            return step in self.progress.reached
        if "marker" in step:
            what = "replicated" if step.endswith("replicated") else "ended"
            return self._has(what, any if step.startswith("first") else all)
        if step.startswith(("records", "offsets")):
            trail = self._trails[(OUT, 0) if step.startswith("records") else (CONSUMER_OFFSETS, 0)]
            return trail.is_open_replicated if step.endswith("replicated") else trail.opened > 0
        return self._has_state(step)

    def _has(self, what: str, how: Callable[[Iterable[bool]], bool]) -> bool:
        """Say whether all, or any, of the partitions have their marker."""
        trails = [each for each in self._trails.values() if each.opened]
        if what == "ended":
            return bool(trails) and how(each.ended > 0 for each in trails)
        return bool(trails) and how(each.is_end_replicated for each in trails)

    def _has_state(self, step: str) -> bool:
        found = self._transaction(is_committed=step.endswith("committed"))
        if found is None:
            return False
        if step in ("partition added", "that is committed"):
            return found.status is Status.ONGOING
        if step in ("end decided", "end committed"):
            return found.status in PREPARED
        return found.status in COMPLETE and self._is_decided  # the one before it is complete, too

    def _transaction(self, *, is_committed: bool) -> Transaction | None:
        """Return the coordinator's state of the producer's id, or the committed part of it."""
        shard = self._shard
        if shard is None or shard.state is not ShardState.ACTIVE:
            return None
        if not is_committed:
            return shard.machine.transactions.get(WORKER)
        view = shard.committed()
        assert isinstance(view, TransactionsView)
        return view.transactions.get(WORKER)

    def runtime_of(self, machine: Machine) -> Any:  # noqa: ANN401 - as declared
        """Return the runtime of transactions."""
        assert machine.node is not None
        assert machine.node.coordinators is not None
        return machine.node.coordinators.transactions.coordinator.runtime

    # -- what must come of it --------------------------------------------------

    def on_fault(self, case: Case) -> None:
        """Note how the transaction has to end, if that is certain."""
        txn = self.progress.txn
        assert txn is not None
        found = self._transaction(is_committed=True)
        is_decided = found is not None and found.status in PREPARED
        if is_decided:
            assert found is not None
            txn.must = "commit" if found.is_commit else "abort"
        elif case[0] in ("worker", "gone") and "end requested" not in self.progress.reached:
            txn.must = "abort"

    def is_cleaned_up(self) -> bool:
        """Say whether the crashed producer's transaction has ended."""
        self._shard = self.newest_shard()
        found = self._transaction(is_committed=True)
        return found is not None and found.status not in (*PREPARED, Status.ONGOING)

    async def settle(self, case: Case) -> None:
        """Wait until the next work is committed and a replaced producer was fenced."""
        spare = [
            self.simulation.host(name) for name in (WORKER, USURPER) if name not in self.workers
        ]
        await self.until(lambda: not any(host.is_up for host in spare), f"of others in {case}")
        done = self.watch.committed
        await self.until(lambda: self.watch.committed > done, f"after {case}", 0.02)
        if self.number % 12 == 0:
            self._look_at_shards()

    def _look_at_shards(self) -> None:
        for machine in self._up():
            self.host(machine).call_inside(partial(self._look_inside, machine))

    def _look_inside(self, machine: Machine) -> None:
        node = machine.node
        if node is not None and node.coordinators is not None and node.partitions is not None:
            check_shards(machine.name, node.coordinators, node.partitions, self.watch)

    async def finish(self) -> None:
        """Check that all work is done once, that no transaction is open, and what is visible of
        each.
        """
        self.watch.is_drained = True
        hosts = [self.simulation.host(name) for name in (WORKER, USURPER, BYSTANDER, AUDITOR)]
        await self.until(lambda: not any(host.is_up for host in hosts), "in ending")
        self._look_at_shards()
        await self.until(lambda: self._shown() is not None, "with open transactions")
        self.watch.audit_works()
        shown = self._shown()
        works = sorted(work.offset for work in self.watch.seen)
        if works != list(range(shown or 0)):
            raise InvariantBroken(f"done {works}, committed is {shown}")

    def _shown(self) -> int | None:
        """Return the committed offset, once nothing is pending."""
        for machine in self._up():
            services = machine.node.coordinators if machine.node is not None else None
            for _, shard in services.groups.coordinator.runtime.active() if services else ():
                machine_: GroupMachine = shard.machine
                found = machine_.offsets.get(GROUP, (TOPIC, 0))
                if not machine_.offsets.pending and found is not None:
                    return found.offset
        return None
