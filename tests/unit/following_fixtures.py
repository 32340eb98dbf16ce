"""A broker that follows another one, without sockets; the test controls the leader's answers."""

import asyncio
from collections.abc import Callable

from partition_fixtures import Machine, bytes_of, registration
from replicas_fixtures import NODE, Broker, image_of, partition_of, topic_id
from tests.patience import SECONDS_MAX

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, code_of
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.fetching.fetch_rounds import FetchSettings
from ottla.replication.fetching.fetcher_loop import Fetchers
from ottla.replication.partition_reads import Isolation, ReadRequest
from ottla.replication.replicas import Replicas

FAST = FetchSettings(backoff_ms=0, wait_ms_max=0)


class Leader:
    """Broker 2 and a connection to it: answers from a partition of its own."""

    def __init__(self) -> None:
        self.machine = Machine(2, seed=2)
        self.partition = self.machine.host()
        self.requests: list[FetchRequest] = []
        self.dialled = 0
        self.failures = 0
        self.refusals: list[ErrorCode] = []
        self.asked = asyncio.Event()
        self.session_id = 0
        self.sends_at_once = True

    async def dial(self, broker_id: int) -> "Leader":
        assert broker_id == 2
        self.dialled += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionRefusedError("not up")
        return self

    async def close(self) -> None:
        return None

    async def send(self, request, *, timeout_ms: int, reader=None):
        while True:
            answer = await self.answer(request)
            if reader is None:
                return answer
            reader.arrived(answer)
            request = reader.next_request() if self.sends_at_once else None
            if request is None:
                return answer

    async def answer(self, request):
        await asyncio.sleep(0)
        if isinstance(request, ListOffsetsRequest):
            return self._range(request)
        self.requests.append(request)
        rows = [self._answer(row) for topic in request.topics for row in topic.partitions]
        topic = FetchableTopicResponse(topic_id=topic_id(1), partitions=rows)
        return FetchResponse(session_id=self.session_id, responses=[topic] if rows else [])

    def _range(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (asked,) = request.topics[0].partitions
        log = self.partition.log
        offset = log.log_start_offset if asked.timestamp == -2 else log.log_end_offset
        row = ListOffsetsPartitionResponse(0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [row])])

    def _answer(self, row) -> PartitionData:
        if self.refusals:
            return PartitionData(error_code=int(self.refusals.pop(0)))
        want = ReadRequest(
            row.fetch_offset,
            row.partition_max_bytes,
            isolation=Isolation.LOG_END,
            current_leader_epoch=row.current_leader_epoch,
            last_fetched_epoch=row.last_fetched_epoch,
            replica_id=NODE,
        )
        try:
            found = self.partition.read(want)
            if found.diverging is None:
                self.partition.follower_fetched(
                    NODE, row.fetch_offset, log_start=row.log_start_offset
                )
        except Fault as fault:
            return PartitionData(error_code=int(code_of(fault)))
        return PartitionData(
            high_watermark=self.partition.log.high_watermark,
            log_start_offset=found.log_start_offset,
            diverging_epoch=EpochEndOffset(*(found.diverging or (-1, -1))),
            records=bytes_of(found.slice),
        )


def image(epoch: int = 0, partition_epoch: int = 0, leader: int = 2):
    replicas = partition_of(2, 1, leader=leader, epoch=epoch, partition_epoch=partition_epoch)
    return image_of({"orders": (1, {0: replicas})})


class FollowingBroker:
    """A broker that follows broker 2."""

    def __init__(self, settings: FetchSettings = FAST, leader: Leader | None = None) -> None:
        self.leader = leader or Leader()
        self.settings = settings
        self.broker = Broker(paths=("/d1",))
        self.fetchers = Fetchers(self.broker.host, self.leader.dial, settings)
        self.broker.replicas = Replicas(self.broker.host, self.fetchers)
        self.lead()
        self.broker.start(image())

    def lead(self, epoch: int = 0, partition_epoch: int = 0) -> None:
        self.leader.partition.apply(
            registration(leader=2, replicas=(2, 1), epoch=epoch, partition_epoch=partition_epoch)
        )

    @property
    def mine(self):
        return self.broker.partitions.get("orders", 0)

    def until(self, condition: Callable[[], bool]) -> None:
        async def scenario() -> None:
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(self.fetchers.run(lambda: None))
                async with asyncio.timeout(SECONDS_MAX):
                    while not condition():  # noqa: ASYNC110 - there is no event
                        await asyncio.sleep(0)
                running.cancel()

        asyncio.run(scenario())
        self.fetchers = Fetchers(self.broker.host, self.leader.dial, self.settings)
        self.broker.replicas._following = self.fetchers
        if self.mine is not None and not self.mine.is_leader:
            self.fetchers.follow(self.mine)
