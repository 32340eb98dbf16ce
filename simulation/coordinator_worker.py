"""Simulated exactly-once workers, and readers of their output.

A worker is a member of a group. It reads its partitions from the committed offsets, writes its
output within a transaction, and commits the offsets of its input in the same transaction. Its
process may crash anywhere and restarts with the same transactional id.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.records.batch import batches
from ottla.protocol.records.control import ControlType, parse_control_type
from ottla.protocol.records.reader import Record, read_records
from simulation.cluster_client import FETCH_WAIT_MS
from simulation.cluster_watch import TOPIC
from simulation.coordinator_client import AGAIN, FOR_GROUP, CoordinatorClient
from simulation.coordinator_members import (
    SESSION_MS,
    ClassicMember,
    ConsumerMember,
    Member,
    make_member,
)
from simulation.coordinator_transactor import Fenced, MustAbort, Transactor
from simulation.coordinator_watch import GROUP, CoordinatorWatch, Txn, Work, decode_work
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports

READ_COMMITTED: Final = 1
RECORDS_MAX: Final = 4
LEAVES_ONE_IN: Final = 25
STALLS: Final = 0.015
# Topics are named up to this version of OffsetFetch.
_NAMED: Final = 9

_STALE: Final = frozenset(
    {
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class CommittedReader(CoordinatorClient):
    """Reads a partition as a consumer with ``isolation.level=read_committed`` does."""

    async def read(self, topic: str, index: int, offset: int) -> tuple[list[Record], int] | None:
        """Return the records from an offset on, and the next offset; None without an answer."""
        leader = await self.leader(index, topic)
        if leader is None:
            return None
        wanted = FetchPartition(index, leader.epoch, offset, partition_max_bytes=4096)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic, self.topic_ids[topic], [wanted])],
        )
        response = await self.ask(leader.node_id, request)
        if not isinstance(response, FetchResponse) or response.error_code:
            self.forget(index, topic)
            return None
        data = response.responses[0].partitions[0]
        if data.error_code:
            self.forget(index, topic)
            self.check(ErrorCode(data.error_code), AGAIN, "Fetch")
            return None
        return _committed(data, offset)


def _committed(data: PartitionData, offset: int) -> tuple[list[Record], int]:
    """Return the records of a fetch without aborted ones, and the next offset."""
    found: list[Record] = []
    records = data.records or b""
    aborted = sorted(
        data.aborted_transactions or [], key=lambda each: (each.first_offset, each.producer_id)
    )
    skipped: set[int] = set()
    for position, header in batches(records):
        skipped.update(_begun(aborted, int(header.next_offset)))
        if header.is_control:
            for record in read_records(records, position):
                if parse_control_type(record.key) is ControlType.ABORT:
                    skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found.extend(each for each in read_records(records, position) if each.offset >= offset)
        offset = max(offset, int(header.next_offset))
    return found, offset


def _begun(aborted: list[AbortedTransaction], end: int) -> Iterator[int]:
    """Remove and return the transactions that start below an offset."""
    while aborted and aborted[0].first_offset < end:
        yield aborted.pop(0).producer_id


class Auditor(CommittedReader):
    """Read all of the output over and over, as long as there is work."""

    def __init__(self, name: str, ports: Ports, watch: CoordinatorWatch, nodes: int) -> None:
        super().__init__(name, ports, watch, nodes)
        self.positions = [0, 0]
        self.ends = [-1, -1]

    async def run(self, topic: str) -> None:
        """Read until all is drained and read."""
        random = self.ports.random
        while not (self.watch.is_drained and self.positions == self.ends):
            await self.rest()
            index = random.below(len(self.positions))
            if not self.watch.is_drained and random.below(20) == 0:
                self.positions[index] = 0
            # Once drained, an empty answer is the end.
            is_drained = self.watch.is_drained
            found = await self.read(topic, index, self.positions[index])
            if found is None:
                continue
            records, end = found
            for record in records:
                self.watch.was_seen(index, record.offset, decode_work(record.value))
                self.watch.read += 1
            self.ends[index] = end if is_drained and end == self.positions[index] else -1
            self.positions[index] = end


class Worker(CommittedReader):
    """One worker, in one run of its process."""

    def __init__(
        self, name: str, ports: Ports, watch: CoordinatorWatch, nodes: int, *, start: int
    ) -> None:
        super().__init__(name, ports, watch, nodes)
        self._start = start
        self._positions: dict[int, int] = {}
        self._member: Member = ClassicMember(self)
        self._transactor = Transactor(self, name, 2, self._between)

    async def run(self, *, kind: str, version: int) -> None:
        """Work until there is nothing left to do, as a member of that type of group."""
        self._member = make_member(self, kind, f"{self.name}-{self._start}")
        self._transactor.version = version
        await self._transactor.begin_anew()
        ownership_epoch = self._member.ownership_epoch
        while not self.watch.is_drained:
            await self.rest()
            is_member = await self._member.settle()
            if ownership_epoch != self._member.ownership_epoch:
                ownership_epoch, self._positions = self._member.ownership_epoch, {}
            if not is_member:
                continue
            owned = self._member.owned
            self._positions = {at: offset for at, offset in self._positions.items() if at in owned}
            for index in sorted(owned - self._positions.keys()):
                await self._find_position(index)
            if self._positions:
                await self._work_some()
            if not self.watch.is_over and self.ports.random.below(LEAVES_ONE_IN) == 0:
                await self._member.leave()
        await self._member.leave()

    async def _between(self) -> None:
        """Between two steps: send heartbeats, be slow, or stall until the session expires."""
        if self.ports.random.fraction() < 0.3:
            await self._member.beat()
        if self.ports.random.fraction() < 0.3:
            await self.rest()
        if not self.watch.is_calm and self.ports.random.fraction() < STALLS:
            await asyncio.sleep(SESSION_MS / 1000 * (1 + 0.5 * self.ports.random.fraction()))

    async def _find_position(self, index: int) -> None:
        """Fetch the group's offset with require_stable, as exactly-once needs it."""
        group = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(TOPIC)])
        assert group.topics is not None
        group.topics[0].partition_indexes = [index]
        if isinstance(self._member, ConsumerMember):
            group.member_id, group.member_epoch = self._member.member_id, self._member.epoch
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self.ask_coordinator(FOR_GROUP, GROUP, request, version=_NAMED)
        if not isinstance(response, OffsetFetchResponse):
            return
        found = response.groups[0]
        at = found.topics[0].partitions[0] if found.topics else None
        error = ErrorCode(found.error_code or (at.error_code if at is not None else 0))
        if error is not ErrorCode.NONE:
            self.moved(FOR_GROUP, GROUP, error)
            self.check(error, AGAIN | _STALE, "OffsetFetch")
        elif at is not None:
            self._positions[index] = max(at.committed_offset, 0)

    async def _work_some(self) -> None:
        """Read some records of a partition, and process them in one transaction."""
        indexes = sorted(self._positions)
        index = indexes[self.ports.random.below(len(indexes))]
        found = await self.read(TOPIC, index, self._positions[index])
        if found is None or not found[0]:
            return
        records = found[0][: 1 + self.ports.random.below(RECORDS_MAX)]
        if records[0].offset != self._positions[index]:
            raise InvariantBroken(f"{self.name}: {records[0]} at {self._positions[index]}")
        txn = self.watch.begin()
        txn.works = [Work(index, record.offset, txn.number) for record in records]
        try:
            is_committed = await self._transact(txn, index, records[-1].offset + 1)
            self._positions[index] = records[-1].offset + 1
            if not is_committed:
                del self._positions[index]
            elif self.ports.random.fraction() < 0.2:
                # Requested while the markers are being written.
                del self._positions[index]
                await self._find_position(index)
        except Fenced:
            self.watch.fenced += 1
            del self._positions[index]
            if txn.outcome == "open":
                txn.outcome = "abort"
            await self._transactor.begin_anew()

    async def _transact(self, txn: Txn, index: int, offset: int) -> bool:
        """Return whether it is committed. Raises Fenced."""
        member = (self._member.member_id, self._member.epoch)
        try:
            await self._transactor.produce(txn.works)
            await self._between()
            if self._member.epoch <= 0:
                raise MustAbort
            member = (self._member.member_id, self._member.epoch)
            await self._transactor.commit_offsets(member, index, offset)
            await self._between()
            is_commit = self.ports.random.fraction() < 0.85
        except MustAbort:
            is_commit = False
        if is_commit:
            txn.outcome = "asked"
        await self._transactor.end(commit=is_commit)
        self.watch.ended(txn, is_commit=is_commit)
        return is_commit
