"""The scenario ``pipelined``: transactional producers with several requests in flight.

Three whole nodes with the faults of the scenario ``coordinators``. Each producer sends all Produce
requests of a transaction on one connection without waiting for replies, most often right after the
EndTxn of the transaction before, while its markers are still being written. Some transactions are
aborted before anything is sent. A consumer reads the output with read_committed.

Invariants, besides those of `coordinator_watch.py` for transactions and order:

* A batch is not out of sequence if the one before it was appended, and none is appended after one
  that was rejected. Where the outcome of a batch is unknown (no reply, or an error that may follow
  the append), a leader may have forgotten it; only that transaction is then exempt.
* No other client uses a producer's transactional id and no transaction times out, so no producer is
  fenced.
"""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ottla.coordinators.topics import TRANSACTION_STATE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.schema import Message
from simulation.cluster import ClusterScenario
from simulation.coordinator_client import CoordinatorClient
from simulation.coordinator_transactor import TRIES_MAX, Fenced, MustAbort, Transactor
from simulation.coordinator_watch import OUT, CoordinatorWatch, Work
from simulation.coordinator_worker import Auditor
from simulation.coordinators import AUDITOR, NODES, CoordinatorScenario
from simulation.ledger import InvariantBroken
from simulation.simulation import Main, Ports, Simulation

PRODUCERS: Final = ("hal", "ida")
BATCHES_MAX: Final = 5
"""Batches of one partition in flight: as many as a broker remembers."""

GAP_MS_MAX: Final = 12
# Longer than a simulation takes.
TRANSACTION_TIMEOUT_MS: Final = 600_000
_OUT_OF_ORDER: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def pipelined(simulation: Simulation) -> None:
    """Pipelined transactional producers: arrival order, exactly once, and no producer is fenced."""
    await PipelinedScenario(simulation).run()


@dataclass(slots=True)
class Batch:
    """A batch of one partition that is not acknowledged yet."""

    index: int
    sequence: int
    works: list[Work]


class PipelinedProducer(CoordinatorClient):
    """Write transactions, one right after the other, with all requests of each in flight."""

    def __init__(self, name: str, ports: Ports, watch: CoordinatorWatch, nodes: int) -> None:
        super().__init__(name, ports, watch, nodes)
        self._number = PRODUCERS.index(name)
        self._next = 0  # the number of the next record
        self._transactor = Transactor(self, name, 2, self.rest, timeout_ms=TRANSACTION_TIMEOUT_MS)

    async def run(self) -> None:
        """Write until ``watch.is_over``; no transaction is left open.

        Raises:
            InvariantBroken: the producer was fenced, or a batch was rejected without reason.
        """
        random = self.ports.random
        try:
            await self._transactor.begin_anew()
            while not self.watch.is_over:
                await self._transact()
                if random.fraction() < 0.3:
                    await self.rest()
        except Fenced as fenced:
            raise InvariantBroken(
                f"{self.name} was fenced, and no other producer has its id"
            ) from fenced

    async def _transact(self) -> None:
        random = self.ports.random
        txn = self.watch.begin()
        is_commit = random.fraction() < 0.8
        if is_commit or random.fraction() < 0.5:
            count = 1 + random.below(2 * BATCHES_MAX)
            numbers = range(self._next, self._next + count)
            self._next += count
            txn.works = [Work(self._number, number, txn.number) for number in numbers]
        try:
            await self._write(txn.works)
        except MustAbort:
            is_commit = False
        if is_commit:
            txn.outcome = "asked"
        await self._transactor.end(commit=is_commit)
        self.watch.ended(txn, is_commit=is_commit)

    async def _write(self, works: list[Work]) -> None:
        """Write values, each in a request of its own. Raises MustAbort, Fenced."""
        counts = [0, 0]
        pending: list[Batch] = []
        for work in works:
            pending.append(Batch(work.place, counts[work.place], [work]))
            counts[work.place] += 1
        is_unsure = False
        for _ in range(TRIES_MAX):
            if not pending:
                return
            results = await self._send(pending)
            is_unsure |= any(_is_unsure(result) for result in results)
            for index in range(len(counts)):
                found = [r for b, r in zip(pending, results, strict=True) if b.index == index]
                self._check_order(index, found, is_unsure=is_unsure)
            self._heed(pending, results)
            pending = [
                batch
                for batch, result in zip(pending, results, strict=True)
                if result is not ErrorCode.NONE
            ]
            if pending:
                await self.rest()
        raise MustAbort

    async def _send(self, pending: list[Batch]) -> list[ErrorCode | None]:
        """Send batches in order without waiting; return their results, None without a reply."""
        gap_s = (
            self.ports.random.below(GAP_MS_MAX + 1) / 1000
            if self.ports.random.fraction() < 0.5
            else 0
        )
        leaders: dict[int, int] = {}
        for index in sorted({batch.index for batch in pending}):
            leader = await self.leader(index, OUT)
            if leader is None:
                return [None for _ in pending]
            leaders[index] = leader.node_id
        try:
            for node_id in sorted(set(leaders.values())):
                await self.connect(node_id)  # all requests go over one connection, in order
        except (OSError, Fault):
            self._forget_leaders()
            return [None for _ in pending]
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(self._send_one(leaders[batch.index], batch, gap_s * place))
                for place, batch in enumerate(pending)
            ]
        return [_result(task.result()) for task in asked]

    async def _send_one(self, node_id: int, batch: Batch, delay_s: float) -> Message | None:
        if delay_s:
            await asyncio.sleep(delay_s)
        request = self._transactor.request(batch.index, batch.sequence, batch.works)
        return await self.ask(node_id, request)

    def _check_order(self, index: int, results: list[ErrorCode | None], *, is_unsure: bool) -> None:
        """Check the results of batches of one partition, in the order in which they were sent."""
        if is_unsure:
            return
        # All batches before the first one of these are acknowledged.
        for before, after in pairwise((ErrorCode.NONE, *results)):
            is_overtaken = before is ErrorCode.NONE and after is _OUT_OF_ORDER
            has_gap = before is not ErrorCode.NONE and after is ErrorCode.NONE
            if is_overtaken or has_gap:
                raise InvariantBroken(f"{self.name} was overtaken in {index}: {results}")

    def _heed(self, pending: list[Batch], results: list[ErrorCode | None]) -> None:
        """Look up leaders again after a failure. Raises MustAbort, Fenced if retries are futile."""
        if any(result is not ErrorCode.NONE for result in results):
            self._forget_leaders()
        refused: set[int] = set()
        for batch, result in zip(pending, results, strict=True):
            # After a rejected batch, the next one is out of sequence and is sent again.
            is_behind = result is _OUT_OF_ORDER and batch.index in refused
            if result is not ErrorCode.NONE:
                refused.add(batch.index)
            if result is not ErrorCode.NONE and result is not None and not is_behind:
                self._transactor.heed(result, "Produce")

    def _forget_leaders(self) -> None:
        self.forget(0, OUT)
        self.forget(1, OUT)


def _result(response: Message | None) -> ErrorCode | None:
    if not isinstance(response, ProduceResponse):
        return None
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def _is_unsure(result: ErrorCode | None) -> bool:
    """Say whether a batch with this result may have been appended without being acknowledged."""
    return result not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, _OUT_OF_ORDER)


class PipelinedScenario(CoordinatorScenario):
    """The nodes, the producers, and the faults."""

    async def _begin(self) -> None:
        for machine in self.machines:
            self._calm(self.host(machine))
            self.host(machine).start(machine.run)
        self.simulation.host("operator").start(self._operate)
        for name in PRODUCERS:
            self.simulation.host(name).start(self._producer(name))
        self.simulation.host(AUDITOR).start(self._audit)
        await self._wait(self._is_whole, "at the beginning")
        await self._wait(lambda: self.watch.committed > 0, "at the beginning")

    def _producer(self, name: str) -> Main:
        async def run(ports: Ports) -> None:
            await PipelinedProducer(name, ports, self.watch, NODES).run()

        return run

    async def _audit(self, ports: Ports) -> None:
        await Auditor(AUDITOR, ports, self.watch, NODES).run(OUT)

    def _is_whole(self) -> bool:
        return self._has_whole((OUT, TRANSACTION_STATE))

    async def _inject(self) -> None:
        await ClusterScenario._inject(self)

    def _wake_workers(self) -> None:
        """There are no workers."""

    async def _finish(self) -> None:
        """Repair everything; crash all nodes at once; then all producers end and nothing is left
        open.
        """
        self.watch.is_calm = True
        self._heal()
        await self._wait(self._is_whole, "after healing")
        self._kill_all()
        self._heal()
        await self._wait(self._is_whole, "after all nodes crashed")
        self.watch.is_over = True
        await self._wait(lambda: not self._is_any_up(PRODUCERS), "with the last transactions")
        self.watch.is_drained = True
        await self._wait(lambda: not self._is_any_up((AUDITOR,)), "in reading the output")
        await self._wait(self._is_settled, "with open transactions")
        self._check_all()
        self.watch.audit_works()

    def _is_any_up(self, names: tuple[str, ...]) -> bool:
        return any(self.simulation.host(name).is_up for name in names)
