"""The group coordinator of a broker: finds the shard of a group and has it decide.

Every method answers for this broker alone and returns the reply, or what to await for it. A
group whose shard is not here raises `NotCoordinator`, one still being read `CoordinatorLoading`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from ottla.coordinators.groups.classic.join import Joining
from ottla.coordinators.groups.classic.rebalance import join_refused
from ottla.coordinators.groups.describe import describe_group, list_groups
from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.offsets.committed import TopicPartition
from ottla.coordinators.groups.requests import (
    decide_delete_groups,
    decide_fetch,
    decide_heartbeat,
    decide_leave,
    decide_offset_commit,
    decide_offset_delete,
    decide_partitions_deleted,
    decide_stable_fetch,
    decide_sync,
    decide_txn_offset_commit,
    read_offsets,
)
from ottla.coordinators.groups.settings import GroupSettings
from ottla.coordinators.groups.share.topic_deletion import decide_shared_topics_deleted
from ottla.coordinators.parked import Settled
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.topics import partition_for
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.describe_groups import DescribedGroup
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.messages.list_groups import ListedGroup
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from ottla.protocol.types import Uuid
from ottla.protocol.uuids import uuid_text
from ottla.runtime.ports import Random

Reply = TypeVar("Reply")
Answered: TypeAlias = Reply | Awaitable[Reply]


BeforeDelete: TypeAlias = Callable[[str], Awaitable[ErrorCode]]
"""What has to go before a group may; called with its id. NONE where there is no objection."""


class Client(msgspec.Struct, frozen=True):
    """Who asks: the name it gives itself and where it connects from, as Kafka records them."""

    client_id: str
    host: str


class GroupCoordinator(msgspec.Struct, frozen=True):
    """All groups that this broker coordinates. ``partition_count`` is that of their topic."""

    runtime: CoordinatorRuntime[GroupMachine]
    settings: GroupSettings
    partition_count: Callable[[], int]
    random: Random
    before_delete: list[BeforeDelete] = msgspec.field(default_factory=list)

    name: str = "group-coordinator"

    def index_of(self, group_id: str) -> int:
        """Return the partition that a group belongs to."""
        return partition_for(group_id, self.partition_count())

    def _view(self, group_id: str) -> GroupsView:
        view = self.runtime.shard(self.index_of(group_id)).committed()
        assert isinstance(view, GroupsView)
        return view

    # -- the classic protocol --------------------------------------------------

    def join(
        self, request: JoinGroupRequest, version: int, client: Client
    ) -> Answered[JoinGroupResponse]:
        """JoinGroup."""
        timeout_ms, settings = request.session_timeout_ms, self.settings
        if not request.group_id:
            return join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            return join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        uuid = self.random.uuid()
        fresh_id = _member_id(request.group_instance_id or client.client_id, uuid)
        ids = fresh_id, uuid_text(uuid)

        def decide(machine: GroupMachine, now: Any, ticket: Any) -> Any:  # noqa: ANN401
            joining = Joining(request, version, client.client_id, client.host, *ids, ticket)
            return machine.join_classic(joining, now)

        return self.runtime.submit(self.index_of(request.group_id), decide)

    def sync(self, request: SyncGroupRequest) -> Answered[SyncGroupResponse]:
        """SyncGroup."""
        if not request.group_id:
            return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_sync(machine, request, ticket, now),
        )

    def heartbeat(self, request: HeartbeatRequest) -> Answered[HeartbeatResponse]:
        """Heartbeat."""
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_heartbeat(machine, request, now),
        )

    def leave(self, request: LeaveGroupRequest) -> Answered[LeaveGroupResponse]:
        """LeaveGroup; ``members`` is filled in every version."""
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_leave(machine, request, now),
        )

    # -- offsets ---------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, version: int) -> Answered[OffsetCommitResponse]:
        """OffsetCommit; topics have their names."""
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_offset_commit(machine, request, version, now),
            may_linger=True,
        )

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> Answered[TxnOffsetCommitResponse]:
        """TxnOffsetCommit, once the transaction is known to be open."""
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_txn_offset_commit(machine, request, version, now),
        )

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Answered[OffsetFetchResponseGroup]:
        """OffsetFetch of one group; topics have their names."""
        if not require_stable:
            shard = self.runtime.shard(self.index_of(request.group_id))
            if shard.is_caught_up:
                return read_offsets(self._view(request.group_id), request)
            # An offset that was told once must not fall: answered when the log is committed.
            return self.runtime.submit(
                self.index_of(request.group_id),
                lambda machine, now, ticket: decide_fetch(machine, request),
            )
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_stable_fetch(machine, request),
        )

    def delete_offsets(self, request: OffsetDeleteRequest) -> Answered[OffsetDeleteResponse]:
        """OffsetDelete."""
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        return self.runtime.submit(
            self.index_of(request.group_id),
            lambda machine, now, ticket: decide_offset_delete(machine, request),
        )

    # -- groups ----------------------------------------------------------------

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Return the groups of all shards that are loaded here."""
        wanted_states, wanted_types = list(states), list(types)
        found: list[ListedGroup] = []
        for _, shard in self.runtime.active():
            view = shard.committed()
            assert isinstance(view, GroupsView)
            found.extend(list_groups(view, wanted_states, wanted_types))
        return found

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """Describe one classic group."""
        return describe_group(self._view(group_id), group_id, version)

    async def prepare_delete(self, group_id: str) -> ErrorCode:
        """Let go of what is kept elsewhere for a group that is to be deleted."""
        for prepare in self.before_delete:
            code = await prepare(group_id)
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    def delete(self, group_ids: list[str]) -> Answered[list[DeletableGroupResult]]:
        """Delete groups of one shard."""
        return self.runtime.submit(
            self.index_of(group_ids[0]),
            lambda machine, now, ticket: decide_delete_groups(machine, group_ids),
        )

    # -- the image -------------------------------------------------------------

    def on_image(self, delta: Delta, image: Image) -> None:
        """Forget the offsets of topics that were deleted; what cannot be written now expires."""
        deleted: list[TopicPartition] = [
            (topic.name, index) for topic in delta.deleted_topics() for index in topic.partitions
        ]
        ids = frozenset(topic.id for topic in delta.deleted_topics())
        if deleted:
            for _, shard in list(self.runtime.active()):
                shard.submit(
                    lambda machine, now: decide_partitions_deleted(machine, deleted), Settled()
                )
                shard.submit(
                    lambda machine, now: decide_shared_topics_deleted(machine, ids), Settled()
                )


def _member_id(prefix: str, uuid: Uuid) -> str:
    """Return an id nobody has: what the client calls itself, and a UUID as Java prints it."""
    text = uuid.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return f"{prefix}-{'-'.join(parts)}"
