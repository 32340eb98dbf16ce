"""Decisions of a shard of groups, one per request. Pure: machine and request in, decision out.

A classic request to a group of another kind is answered as if there were no such member, unless
that kind has a handler for classic members.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.coordinators.decision import Decision, ReplyFuture, TimerChange
from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.classic.member_requests import heartbeat, leave, note_commit, sync
from ottla.coordinators.groups.classic.rebalance import Effects, sync_refused
from ottla.coordinators.groups.kind import Committer, Group
from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.offsets.committed import TopicPartition, offsets_in
from ottla.coordinators.groups.offsets.rules import (
    check_commit,
    commit_objection,
    commit_offsets,
    commit_transactional,
    delete_all,
    delete_of_partitions,
    delete_offsets,
    fetch_offsets,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Millis

_STALE_EPOCH_SINCE: Final = 6
"""The first version of TxnOffsetCommit whose clients know STALE_MEMBER_EPOCH (KIP-1319)."""

# -- the classic protocol --------------------------------------------------------------


def decide_sync(
    machine: GroupMachine, request: SyncGroupRequest, future: ReplyFuture, now: Millis
) -> Decision:
    """SyncGroup."""
    host = machine.classic_handler_of(request.group_id)
    if host is not None:
        return host.sync(machine, request)
    effects = Effects(machine.settings, now)
    group = machine.classic(request.group_id)
    if group is None:
        effects.answer(future, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    else:
        sync(group, request, future, effects)
    return effects.decision()


def decide_heartbeat(machine: GroupMachine, request: HeartbeatRequest, now: Millis) -> Decision:
    """Heartbeat."""
    host = machine.classic_handler_of(request.group_id)
    if host is not None:
        return host.heartbeat(machine, request)
    effects = Effects(machine.settings, now)
    group = machine.classic(request.group_id)
    code = ErrorCode.UNKNOWN_MEMBER_ID
    if group is not None:
        code = heartbeat(group, request, effects)
    return effects.decision(HeartbeatResponse(error_code=code))


def decide_leave(machine: GroupMachine, request: LeaveGroupRequest, now: Millis) -> Decision:
    """LeaveGroup, from version 3 on for several members."""
    host = machine.classic_handler_of(request.group_id)
    if host is not None:
        return host.leave(machine, request, now)
    effects = Effects(machine.settings, now)
    group = machine.classic(request.group_id)
    if group is not None:
        return effects.decision(leave(group, request.members, effects))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    replies = [
        MemberResponse(each.member_id, each.group_instance_id, unknown) for each in request.members
    ]
    return Decision(reply=LeaveGroupResponse(members=replies))


# -- offsets ---------------------------------------------------------------------------


def decide_offset_commit(
    machine: GroupMachine, request: OffsetCommitRequest, version: int, now: Millis
) -> Decision:
    """OffsetCommit. The first offset creates a missing group."""
    group = machine.groups.get(request.group_id)
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        is_transactional=False,
        version=version,
    )
    asked = ((t.name, t.topic_id, each) for t in request.topics for each in t.partitions)
    length_max = machine.settings.offset_metadata_max_bytes
    code = commit_objection(check_commit(group, committer), asked, length_max)
    if code is not ErrorCode.NONE:
        return Decision(reply=commit_refused(request, code))
    commit = commit_offsets(request, machine.settings, now)
    packed = machine.commits(request.group_id, commit, now)
    # The next decision must see a group that this commit creates.
    may_linger = group is not None
    timers = commit_timers(machine, group, request.member_id, now)
    return Decision(
        reply=commit.reply,
        timers=timers,
        # It counts as a heartbeat whether or not the log accepts it.
        refused=lambda fault: Decision(timers=timers),
        packed=packed,
        may_linger=may_linger,
    )


def commit_timers(
    machine: GroupMachine, group: Group | None, member_id: str, now: Millis
) -> Sequence[TimerChange]:
    """Return the session timers that a commit of a member restarts."""
    if not isinstance(group, ClassicGroup) or not group.members:
        return ()
    effects = Effects(machine.settings, now)
    note_commit(group, member_id, effects)
    return effects.timers


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return an OffsetCommit with the same error for every partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(e.partition_index, code) for e in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def decide_txn_offset_commit(
    machine: GroupMachine, request: TxnOffsetCommitRequest, version: int, now: Millis
) -> Decision:
    """TxnOffsetCommit: the records are part of the producer's transaction in this partition.

    The log and the verification of the transaction check that it is open and the producer's own.
    """
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        is_transactional=True,
        version=version,
    )
    asked = ((t.name, t.topic_id, each) for t in request.topics for each in t.partitions)
    check = check_commit(machine.groups.get(request.group_id), committer)
    code = commit_objection(check, asked, machine.settings.offset_metadata_max_bytes)
    if code is not ErrorCode.NONE:
        is_stale = code is ErrorCode.STALE_MEMBER_EPOCH and version < _STALE_EPOCH_SINCE
        response = ErrorCode.ILLEGAL_GENERATION if is_stale else code
        return Decision(reply=txn_commit_refused(request, response))
    commit = commit_transactional(request, machine.settings)
    producer = Producer(request.producer_id, request.producer_epoch)
    packed = machine.commits(request.group_id, commit, now)
    return Decision(reply=commit.reply, producer=producer, packed=packed)


def txn_commit_refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Return a TxnOffsetCommit with the same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [
                    TxnOffsetCommitResponsePartition(each.partition_index, code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def decide_stable_fetch(machine: GroupMachine, request: OffsetFetchRequestGroup) -> Decision:
    """OffsetFetch with ``require_stable``: from the newest state, answered when committed.

    The client prefers to retry over starting at an offset that is about to change (KIP-447).
    """
    group = machine.groups.get(request.group_id)
    offsets = machine.offsets.of_group(request.group_id)
    if group is not None:
        code = group.check_offset_fetch(request.member_id, request.member_epoch)
        if code is not ErrorCode.NONE:
            return Decision(reply=OffsetFetchResponseGroup(request.group_id, error_code=code))

    def is_unstable(place: TopicPartition) -> bool:
        return machine.offsets.is_pending(request.group_id, place)

    return Decision(reply=fetch_offsets(request, offsets, is_unstable))


def decide_fetch(machine: GroupMachine, request: OffsetFetchRequestGroup) -> Decision:
    """OffsetFetch from the newest state, answered when committed."""
    return Decision(reply=read_offsets(machine.view(), request))


def read_offsets(view: GroupsView, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """OffsetFetch from the committed state."""
    group = view.groups.get(request.group_id)
    if group is not None:
        code = group.check_offset_fetch(request.member_id, request.member_epoch)
        if code is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(request.group_id, error_code=code)
    offsets = offsets_in(view.offsets, request.group_id)
    return fetch_offsets(request, offsets, lambda place: False)


def decide_offset_delete(machine: GroupMachine, request: OffsetDeleteRequest) -> Decision:
    """OffsetDelete."""
    group = machine.groups.get(request.group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if group is None or code is not ErrorCode.NONE:
        return Decision(reply=OffsetDeleteResponse(error_code=code))
    records, reply = delete_offsets(request, group, machine.offsets)
    return Decision(records, reply, may_split=True)


def decide_partitions_deleted(
    machine: GroupMachine, partitions: Iterable[TopicPartition]
) -> Decision:
    """Delete the offsets of deleted partitions."""
    return Decision(delete_of_partitions(partitions, machine.offsets), may_split=True)


# -- whole groups ------------------------------------------------------------------------


def decide_delete_groups(machine: GroupMachine, group_ids: Iterable[str]) -> Decision:
    """DeleteGroups, including their offsets."""
    records: list[CoordinatorRecord] = []
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(group_ids):
        group = machine.groups.get(group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is not None and code is ErrorCode.NONE:
            records.extend(delete_all(group_id, machine.offsets))
            records.extend(group.tombstones())
        results.append(DeletableGroupResult(group_id, code))
    return Decision(records, results, may_split=True)
