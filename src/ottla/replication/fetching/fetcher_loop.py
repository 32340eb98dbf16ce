"""Fetch the partitions that other brokers lead: one connection and task per leader.

    request   every followed partition of this leader: from its log's end, with its last epoch
    response  the leader waits until it has records; append them (`fetch_append.py`), truncate or
              reset the log
    repeat    the offsets of the next request tell the leader how far this broker is

As long as responses have nothing but records, `FetchRounds` makes the next request when a response
has arrived, and the connection sends it at once. The task of the fetcher connects, and processes
what else a response may have: an error, a diverging epoch, records that the log rejects.

After a lost connection or an unreachable leader the fetcher retries after
``replica.fetch.backoff.ms``; a partition that the leader rejects is retried after the same time.
All tasks run within `Fetchers`, which ends with them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, StorageFailed
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Millis, Offset, TopicIdPartition
from ottla.replication.event_wait import wait_or_timeout
from ottla.replication.fetching.fetch_rounds import FetchRounds, FetchSettings
from ottla.replication.fetching.fetch_session import FetchSession
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.follower_rules import (
    AfterError,
    DivergingEpoch,
    Range,
    decide_after_error,
)
from ottla.replication.host import Host
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.replication.fetching.tier_catch_up import RemoteHistory

if TYPE_CHECKING:
    from ottla.replication.fetching.tier_catch_up import RemoteHistory

log = logging.getLogger(__name__)

LATEST, EARLIEST, EARLIEST_LOCAL = -1, -2, -4


class BrokerConnection(Protocol):
    """A connection to another broker."""

    async def send(
        self, request: Message, *, timeout_ms: int, reader: FetchRounds | None = None
    ) -> Message:
        """Return the response after ``reader`` has processed it, possibly while it arrives.

        With a reader it may be the response to `FetchRounds.next_request`, many rounds later.

        Raises OSError or a `Fault` when there is no response.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


# Connects to a broker by its id. Raises OSError or a `Fault` when it cannot be reached.
Connect = Callable[[int], Awaitable[BrokerConnection]]


class Fetcher:
    """The fetcher of one leader. `run` returns when there is nothing left to follow."""

    def __init__(
        self,
        leader_id: int,
        host: Host,
        connect: Connect,
        settings: FetchSettings,
        remote_history: "RemoteHistory | None",
    ) -> None:
        self.leader_id = leader_id
        self._remote_history = remote_history
        self.is_over = False
        self._host = host
        self._connect = connect
        self._settings = settings
        self._rounds = FetchRounds(host, settings)
        self._connection: BrokerConnection | None = None
        self._changed = asyncio.Event()

    def add(self, partition: Partition) -> None:
        """Follow a partition in its present leader epoch."""
        self._rounds.add(partition)
        self._changed.set()

    def remove(self, partition: Partition) -> None:
        """Stop following a partition."""
        self._rounds.remove(partition)
        self._changed.set()

    async def run(self) -> None:
        """Fetch until there is nothing left to follow."""
        try:
            while len(self._rounds):
                try:
                    await self._fetch()
                except (OSError, Fault) as error:
                    log.info("leader not reachable broker=%d reason=%s", self.leader_id, error)
                    await self._disconnect()
                    await asyncio.sleep(self._settings.backoff_ms / 1000)
        finally:
            # A finished fetcher is never restarted: `Fetchers` creates another one.
            self.is_over = True
            self._rounds.close()
            await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._rounds.session.lost()
        if connection is not None:
            await connection.close()

    async def _fetch(self) -> None:
        """Fetch round after round, until a response is not for `FetchRounds` to finish."""
        rounds = self._rounds
        touched = rounds.update()
        if touched is None:
            await self._wait()
            return
        if self._connection is None:
            rounds.session = FetchSession()
            self._connection = await self._connect(self.leader_id)
        await self._connection.send(
            rounds.begin(touched), timeout_ms=self._settings.timeout_ms, reader=rounds
        )
        response = rounds.unsettled
        if response is not None:
            await self._process(response)

    async def _wait(self) -> None:
        """Wait until a rejected partition may be fetched again, or partitions are added."""
        self._changed.clear()
        await wait_or_timeout(self._changed, self._settings.backoff_ms)

    # -- responses ---------------------------------------------------------------

    async def _process(self, response: FetchResponse) -> None:
        error = self._rounds.answered(response)
        if error is not ErrorCode.NONE:
            log.info("fetch rejected broker=%d error=%s", self.leader_id, error.name)
            if error not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ):
                await asyncio.sleep(self._settings.backoff_ms / 1000)
            return
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                follower = self._rounds.settle(key, data)
                if follower is None:
                    continue
                try:
                    rejection = self._rounds.rejection(key)
                    if rejection is not None:
                        raise rejection
                    await self._process_one(follower, data)
                except StorageFailed:
                    continue  # its directory is offline now, the others are not
                except Fault as fault:
                    log.warning("fetched records rejected partition=%s reason=%s",
                                follower.partition, fault)  # fmt: skip
                    self._delay(follower)

    async def _process_one(self, follower: Follower, data: PartitionData) -> None:
        """Process the leader's answer for a partition that has no records."""
        error = ErrorCode(data.error_code)
        if error is not ErrorCode.NONE:
            await self._rejected(follower, error)
            return
        diverging = data.diverging_epoch
        if diverging.end_offset >= 0:
            leader = DivergingEpoch(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset))
            if follower.cut(leader):
                await self._checkpoint_truncation(follower)

    async def _rejected(self, follower: Follower, error: ErrorCode) -> None:
        after = decide_after_error(error)
        if after is AfterError.RESET:
            leader = await self._leader_range(follower)
            if follower.is_current and follower.reset(leader):
                await self._checkpoint_truncation(follower)
            return
        if after is AfterError.SKIP and self._remote_history is not None:
            await self._skip_to_local(follower, self._remote_history)
            return
        log.info("partition rejected partition=%s leader=%d error=%s",
                 follower.partition, self.leader_id, error.name)  # fmt: skip
        if after is AfterError.STOP:
            self.remove(follower.partition)
        else:
            self._delay(follower)

    async def _skip_to_local(self, follower: Follower, remote: "RemoteHistory") -> None:
        """Begin after what is only in remote storage; see `tier_catch_up.py`.

        Raises:
            HistoryNotFound: not known here yet. Others as `RemoteHistory.find`.
        """
        from ottla.replication.fetching.tier_catch_up import (  # only with a tier
            HistoryNotFound,
        )

        partition = follower.partition
        local = await self._ask_offset(follower, EARLIEST_LOCAL)
        log_start = await self._leader_offset(follower, EARLIEST)
        last, at = Offset(local.offset - 1), TopicIdPartition(partition.topic_id, partition.index)
        history = await remote.find(at, LeaderEpoch(local.leader_epoch), last)
        if history is None and local.leader_epoch > 0:
            epoch = await self._epoch_before(follower, local.leader_epoch, last)
            history = None if epoch is None else await remote.find(at, epoch, last)
        if history is None:
            raise HistoryNotFound(f"{partition}: no remote segment holds offset {last}")
        if follower.is_current:
            follower.start_in_tier(history, log_start)
            await self._checkpoint_truncation(follower)

    async def _epoch_before(
        self, follower: Follower, epoch: int, offset: Offset
    ) -> LeaderEpoch | None:
        from ottla.replication.fetching.tier_catch_up import (
            epoch_before,
            epoch_end_request,
        )

        assert self._connection is not None
        request = epoch_end_request(
            follower.partition, follower.epoch, epoch - 1, self._host.node_id
        )
        response = await self._connection.send(request, timeout_ms=self._settings.timeout_ms)
        return epoch_before(response, offset)

    def _delay(self, follower: Follower) -> None:
        due = self._host.clock.monotonic() + self._settings.backoff_ms
        follower.delayed_until = Millis(due)

    async def _checkpoint_truncation(self, follower: Follower) -> None:
        """Write the lower recovery point before anything is appended to a truncated log."""
        directory = follower.partition.directory
        log.info("log truncated partition=%s log_end=%d", follower.partition,
                 follower.partition.log.log_end_offset)  # fmt: skip
        await self._host.directories.commit(directory, directory.checkpoint_writes())

    async def _leader_range(self, follower: Follower) -> Range:
        return Range(
            await self._leader_offset(follower, EARLIEST),
            await self._leader_offset(follower, LATEST),
        )

    async def _leader_offset(self, follower: Follower, timestamp: int) -> Offset:
        return Offset((await self._ask_offset(follower, timestamp)).offset)

    async def _ask_offset(self, follower: Follower, timestamp: int) -> ListOffsetsPartitionResponse:
        """Ask the leader for the start or end of its log.

        Raises:
            LeaderRangeUnknown, OSError and others: there is no answer.
        """
        partition = follower.partition
        asked = ListOffsetsPartition(partition.index, follower.epoch, timestamp)
        request = ListOffsetsRequest(
            replica_id=self._host.node_id, topics=[ListOffsetsTopic(partition.topic, [asked])]
        )
        assert self._connection is not None
        response = await self._connection.send(request, timeout_ms=self._settings.timeout_ms)
        assert isinstance(response, ListOffsetsResponse)
        answers = [answer for topic in response.topics for answer in topic.partitions]
        if len(answers) != 1 or answers[0].error_code or answers[0].offset < 0:
            raise LeaderRangeUnknown(f"{partition}: {answers}")
        return answers[0]


class LeaderRangeUnknown(Fault):
    """The leader did not return the start or end of its log; retried later."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Fetchers:
    """Service and `ReplicaFetchers`: keeps a fetcher for every leader that is followed.

    ``remote_history`` is None without tiered storage.
    """

    name = "replica-fetchers"

    def __init__(
        self,
        host: Host,
        connect: Connect,
        settings: FetchSettings | None = None,
        remote_history: "RemoteHistory | None" = None,
    ) -> None:
        self._host = host
        self._remote_history = remote_history
        self._connect = connect
        self._settings = settings or FetchSettings()
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._of: dict[Partition, Fetcher] = {}
        self._to_start: list[Fetcher] = []
        self._changed = asyncio.Event()

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's leader from now on, in its leader epoch."""
        self.unfollow(partition)
        slot = partition.topic_id[-1] + partition.index
        key = (int(partition.leader_id), slot % self._settings.fetchers_per_leader)
        fetcher = self._fetchers.get(key)
        if fetcher is None or fetcher.is_over:
            fetcher = Fetcher(
                key[0], self._host, self._connect, self._settings, self._remote_history
            )
            self._fetchers[key] = fetcher
            self._to_start.append(fetcher)
            self._changed.set()
        fetcher.add(partition)
        self._of[partition] = fetcher

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching; does nothing for a partition that is not followed."""
        fetcher = self._of.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def resize(self, fetchers_per_leader: int) -> None:
        """Distribute the followed partitions over another number of fetchers per leader."""
        if fetchers_per_leader == self._settings.fetchers_per_leader:
            return
        self._settings = replace(self._settings, fetchers_per_leader=fetchers_per_leader)
        for partition in list(self._of):
            self.follow(partition)

    @property
    def fetchers_per_leader(self) -> int:
        """The number of fetchers over which the partitions of one leader are spread."""
        return self._settings.fetchers_per_leader

    def describe(self) -> dict[int, int]:
        """Return the number of fetchers in use, by leader."""
        in_use = dict.fromkeys(self._of.values())
        return dict(Counter(fetcher.leader_id for fetcher in in_use))

    async def run(self, ready: Callable[[], None]) -> None:
        """Run a task for every leader, until cancelled."""
        ready()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                starting, self._to_start = self._to_start, []
                for fetcher in starting:
                    tasks.create_task(fetcher.run(), name=f"fetcher {fetcher.leader_id}")
                await self._changed.wait()
