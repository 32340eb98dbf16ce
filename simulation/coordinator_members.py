"""Simulated members of groups: the classic protocol, KIP-848 and KIP-1071.

All take and revoke partitions only in `settle`, which a worker calls between two transactions;
`beat` may be called at any time and only sends a heartbeat.
"""

from typing import Final, Protocol

from ottla.protocol.codec import decode_prefix, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.protocol.messages.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.streams_group_heartbeat import (
    RequestTaskIds,
    ResponseTaskIds,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID
from simulation.cluster_watch import TOPIC
from simulation.coordinator_client import AGAIN, FOR_GROUP, CoordinatorClient
from simulation.coordinator_watch import GROUP
from simulation.ledger import InvariantBroken

SESSION_MS: Final = 1500
# Coordinators count whole milliseconds.
CLOCK_MS: Final = 2
REBALANCE_MS: Final = 1500
# A JoinGroup waits for the other members as long as they may take, and for the first generation.
JOIN_TIMEOUT_MS: Final = REBALANCE_MS + 1200
PROTOCOL: Final = "range"
NOBODY: Final = -1
SUBTOPOLOGY: Final = "0"
TOPOLOGY: Final = Topology(
    0, [Subtopology(SUBTOPOLOGY, [TOPIC], state_changelog_topics=[TopicInfo(f"{GROUP}-changelog")])]
)
_VERSION: Final = 3

_OUT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Member(Protocol):
    """One member of the group. ``epoch`` is its generation; none above 0 while it has none.

    ``ownership_epoch`` rises whenever the member gave up or lost all of its partitions: what it
    knew of them is stale, even if it owns them again.
    """

    member_id: str
    epoch: int
    ownership_epoch: int
    owned: frozenset[int]

    async def settle(self) -> bool:
        """Take and revoke partitions as assigned; return whether the assignment is complete."""
        ...

    async def beat(self) -> None:
        """Send a heartbeat."""
        ...

    async def leave(self) -> None:
        """Leave the group."""
        ...


class ClassicMember:
    """A member of the classic protocol, eager: in a rebalance it gives up all partitions."""

    def __init__(self, client: CoordinatorClient) -> None:
        self._client = client
        self.member_id = ""
        self.joined = NOBODY  # the generation that it joined last
        self.epoch = NOBODY
        self.ownership_epoch = 0
        self.owned: frozenset[int] = frozenset()

    async def settle(self) -> bool:
        """Send a heartbeat; rejoin if the group has a new generation."""
        if self.epoch != NOBODY:
            await self.beat()
        if self.epoch == NOBODY:
            self.ownership_epoch += 1
            self.owned = frozenset()
            await self._join()
        return self.epoch != NOBODY

    async def beat(self) -> None:
        """Send a heartbeat; `settle` handles a rebalance that it announces."""
        if self.epoch == NOBODY:
            return
        request = HeartbeatRequest(GROUP, self.epoch, self.member_id)
        response = await self._client.ask_coordinator(FOR_GROUP, GROUP, request)
        if isinstance(response, HeartbeatResponse):
            self._heed(ErrorCode(response.error_code), "Heartbeat")

    def _heed(self, error: ErrorCode, what: str) -> None:
        if error is ErrorCode.NONE:
            return
        self._client.moved(FOR_GROUP, GROUP, error)
        self._client.check(error, AGAIN | _OUT, what)
        if error in _OUT:
            self.epoch = NOBODY
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def _join(self) -> None:
        subscription = encode(ConsumerProtocolSubscription([TOPIC]), _VERSION)
        metadata = _VERSION.to_bytes(2) + bytes(subscription)
        request = JoinGroupRequest(
            GROUP,
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(PROTOCOL, metadata)],
        )
        response = await self._client.ask_coordinator(
            FOR_GROUP, GROUP, request, timeout_ms=JOIN_TIMEOUT_MS
        )
        if not isinstance(response, JoinGroupResponse):
            return
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            self._heed(error, "JoinGroup")
            if error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            return
        self.member_id = response.member_id
        self.joined = response.generation_id
        await self._sync(response)

    async def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = []
        if joined.leader == self.member_id:
            assignments = self._assign([each.member_id for each in joined.members])
        request = SyncGroupRequest(
            GROUP,
            joined.generation_id,
            self.member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        response = await self._client.ask_coordinator(
            FOR_GROUP, GROUP, request, timeout_ms=JOIN_TIMEOUT_MS
        )
        if not isinstance(response, SyncGroupResponse):
            return
        if response.error_code:
            self._heed(ErrorCode(response.error_code), "SyncGroup")
            return
        found, _ = decode_prefix(ConsumerProtocolAssignment, _VERSION, response.assignment[2:])
        given = [index for each in found.assigned_partitions for index in each.partitions]
        self.epoch, self.owned = joined.generation_id, frozenset(given)
        self._client.watch.owns(self.epoch, self.member_id, given)

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Assign the partitions in turn, as the leader of the group does."""
        indexes = range(len(self._client.watch.partitions))
        found = []
        for at, member in enumerate(sorted(members)):
            topic = AssignmentTopicPartition(TOPIC, list(indexes[at :: len(members)]))
            data = encode(ConsumerProtocolAssignment([topic]), _VERSION)
            found.append(SyncGroupRequestAssignment(member, _VERSION.to_bytes(2) + bytes(data)))
        return found

    async def leave(self) -> None:
        """Leave, whether or not the request arrives."""
        request = LeaveGroupRequest(GROUP, members=[MemberIdentity(self.member_id)])
        await self._client.ask_coordinator(FOR_GROUP, GROUP, request)
        self.member_id, self.epoch, self.owned = "", NOBODY, frozenset()


class ConsumerMember:
    """A member of KIP-848: it receives its assignment, and reports what it owns.

    It owns a partition from `settle` on until it revokes it, or until it was silent for so long
    that the coordinator may have expired its session.
    """

    def __init__(self, client: CoordinatorClient, member_id: str) -> None:
        self._client = client
        self._names = 0
        self._prefix = member_id
        self._wanted: frozenset[int] | None = None
        self._is_whole = True  # the next heartbeat is a full one
        self._topic_id = ZERO_UUID
        self._answered_at = 0.0  # when the last answered heartbeat was sent
        self.member_id = member_id
        self.epoch = 0
        self.ownership_epoch = 0
        self.owned: frozenset[int] = frozenset()

    async def settle(self) -> bool:
        """Send a heartbeat, then apply the assignment, and report it with the next."""
        await self._say()
        if self.is_assignment_pending:
            await self._client.rest()  # the work on revoked partitions is completed first
        if self.is_assignment_pending:
            wanted, self._wanted = self._wanted, None
            assert wanted is not None
            for index in sorted(self.owned - wanted):
                self._client.watch.lets_go(self.member_id, index)
            self.owned, self._is_whole = wanted, True
            self._hold(self._answered_at)
            await self._say()
        return self.epoch > 0

    def _hold(self, answered_at: float) -> None:
        now, until = self._client.now(), answered_at + (SESSION_MS - CLOCK_MS) / 1000
        for index in sorted(self.owned):
            self._client.watch.holds(self.member_id, index, now, until)

    async def beat(self) -> None:
        """Send a heartbeat, unless it was fenced: it rejoins in `settle` only."""
        if self.epoch:
            await self._say()

    async def _say(self) -> None:
        """Send a heartbeat, a full one if the last was not answered."""
        sent_at, known = self._client.now(), self.epoch
        response = await self._client.ask_coordinator(FOR_GROUP, GROUP, self._request())
        if not isinstance(response, ConsumerGroupHeartbeatResponse | StreamsGroupHeartbeatResponse):
            self._is_whole = True
            return
        error = ErrorCode(response.error_code)
        if error is not ErrorCode.NONE:
            self._heed(error)
            return
        if response.member_epoch < known:
            raise InvariantBroken(
                f"{self.member_id} returns to epoch {response.member_epoch}: {known}"
            )
        self.epoch, self._is_whole = response.member_epoch, False
        self._take_in(response)
        self._answered_at = sent_at
        self._hold(sent_at)

    def _take_in(self, response: Message) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            self._wanted = frozenset(index for topic in topics for index in topic.partitions)
            self._topic_id = topics[0].topic_id if topics else self._topic_id

    @property
    def is_assignment_pending(self) -> bool:
        """Whether it has received an assignment that it has not applied yet."""
        return self._wanted is not None and self._wanted != self.owned

    def _request(self) -> Message:
        if not self._is_whole and self.epoch:
            return ConsumerGroupHeartbeatRequest(GROUP, self.member_id, self.epoch)
        held = [RequestTopicPartitions(self._topic_id, sorted(self.owned))]
        return ConsumerGroupHeartbeatRequest(
            GROUP,
            self.member_id,
            self.epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=held if self.owned and self.epoch else [],
        )

    def _heed(self, error: ErrorCode) -> None:
        self._client.moved(FOR_GROUP, GROUP, error)
        self._client.check(error, AGAIN | _OUT, "ConsumerGroupHeartbeat")
        self._is_whole = True
        if error in _OUT:
            for index in sorted(self.owned):
                self._client.watch.lets_go(self.member_id, index)
            self.epoch, self.owned, self._wanted = 0, frozenset(), None
            self.ownership_epoch += 1
            if error is ErrorCode.UNKNOWN_MEMBER_ID and self._client.ports.random.fraction() < 0.5:
                self._names += 1
                self.member_id = f"{self._prefix}-{self._names}"

    async def leave(self) -> None:
        """Leave, whether or not the request arrives."""
        request = self._farewell()
        for index in sorted(self.owned):
            self._client.watch.lets_go(self.member_id, index)
        self.owned, self.epoch, self._wanted = frozenset(), 0, None
        self.ownership_epoch += 1
        await self._client.ask_coordinator(FOR_GROUP, GROUP, request)

    def _farewell(self) -> Message:
        return ConsumerGroupHeartbeatRequest(GROUP, self.member_id, -1)


class StreamsMember(ConsumerMember):
    """A member of KIP-1071, a process by itself: its partitions are its active tasks.

    The one subtopology is stateful, so the other members keep standby tasks: never the owner.
    """

    def __init__(self, client: CoordinatorClient, member_id: str) -> None:
        super().__init__(client, member_id)
        self.standby: frozenset[int] = frozenset()

    def _request(self) -> Message:
        request = StreamsGroupHeartbeatRequest(GROUP, self.member_id, self.epoch)
        if not self._is_whole and self.epoch:
            return request
        request.rebalance_timeout_ms = REBALANCE_MS
        request.process_id = self.member_id
        request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        if not self.epoch:
            request.topology = TOPOLOGY
            return request
        if self.owned:
            request.active_tasks = [RequestTaskIds(SUBTOPOLOGY, sorted(self.owned))]
        if self.standby:
            request.standby_tasks = [RequestTaskIds(SUBTOPOLOGY, sorted(self.standby))]
        return request

    def _take_in(self, response: Message) -> None:
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        if response.active_tasks is None:
            return
        self._wanted = _numbers(response.active_tasks)
        before, self.standby = self.standby, _numbers(response.standby_tasks or [])
        # A standby task starts or stops at once; not reporting it would count as still having it.
        self._is_whole = before != self.standby
        if self._wanted & self.standby:
            raise InvariantBroken(
                f"{self.member_id} has the same active and standby task: {response}"
            )
        self._client.watch.standbys += len(self.standby)

    def _farewell(self) -> Message:
        self.standby = frozenset()
        return StreamsGroupHeartbeatRequest(GROUP, self.member_id, -1)


def _numbers(tasks: list[ResponseTaskIds]) -> frozenset[int]:
    return frozenset(index for each in tasks for index in each.partitions)


def make_member(client: CoordinatorClient, kind: str, member_id: str) -> Member:
    """Return a member of a classic, consumer or streams group; a classic one gets its id from the
    broker.
    """
    if kind == "classic":
        return ClassicMember(client)
    return (StreamsMember if kind == "streams" else ConsumerMember)(client, member_id)
