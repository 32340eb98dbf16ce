"""Converts the core's messages to Kafka's requests, and Kafka's responses to the core's replies.

This is the client side; the server side is `ottla.api.cluster.quorum_requests`. Pure. A response
that violates Kafka's rules raises `ProtocolFault` and counts as no response. A response with a
top-level error contains no epoch, so it counts as one from a replica that is behind: retry later.
"""

from typing import Final, TypeAlias, assert_never

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import NO_LEADER, LeaderEpoch, NodeId, Offset, Uuid
from ottla.raft.core import messages as core
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.voters import (
    NO_RECONFIGURATION,
    Endpoint,
    Endpoints,
    VersionRange,
)
from ottla.raft.metadata_log import checked_batches

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = Uuid(bytes(15) + b"\x01")
PARTITION: Final = 0
KRAFT_VERSION: Final = "kraft.version"
CHANGE_TIMEOUT_MS: Final = 30_000
# Sent when the high watermark is unknown: the leader then does not answer early because of it.
HIGH_WATERMARK_UNKNOWN: Final = -1


# -- requests ----------------------------------------------------------------


def to_message(request: core.Request) -> Message:  # noqa: PLR0911 - one per request
    """Return the request to send; its version is chosen when it is sent."""
    match request:
        case core.VoteRequest():
            return _vote(request)
        case core.BeginEpochRequest():
            return _begin_epoch(request)
        case core.EndEpochRequest():
            return _end_epoch(request)
        case core.FetchRequest():
            return _fetch(request)
        case core.FetchSnapshotRequest():
            return _fetch_snapshot(request)
        case core.ApiVersionsRequest():
            return api_versions.ApiVersionsRequest("ottla", "0")
        case core.UpdateVoterRequest():
            return _update_voter(request)
        case core.AddVoterRequest():
            return _add_voter(request)
        case core.RemoveVoterRequest():
            return remove_raft_voter.RemoveRaftVoterRequest(
                request.cluster_id, request.voter.node_id, request.voter.directory_id
            )
        case _:
            assert_never(request)


def _vote(request: core.VoteRequest) -> vote.VoteRequest:
    partition = vote.RequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.is_pre_vote,
    )
    message = vote.VoteRequest(request.cluster_id)
    message.topics = [vote.RequestTopicData(TOPIC, [partition])]
    if request.voter is not None:
        message.voter_id = request.voter.node_id
        partition.voter_directory_id = request.voter.directory_id
    return message


def _begin_epoch(request: core.BeginEpochRequest) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.RequestPartitionData(
        partition_index=PARTITION, leader_id=request.leader_id, leader_epoch=request.epoch
    )
    message = begin_quorum_epoch.BeginQuorumEpochRequest(
        request.cluster_id,
        topics=[begin_quorum_epoch.RequestTopicData(TOPIC, [partition])],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(e.listener, e.host, e.port) for e in request.endpoints
        ],
    )
    if request.voter is not None:
        message.voter_id = request.voter.node_id
        partition.voter_directory_id = request.voter.directory_id
    return message


def _end_epoch(request: core.EndEpochRequest) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.RequestPartitionData(
        partition_index=PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.node_id for key in request.successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(key.node_id, key.directory_id)
            for key in request.successors
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        request.cluster_id,
        topics=[end_quorum_epoch.RequestTopicData(TOPIC, [partition])],
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(e.listener, e.host, e.port) for e in request.endpoints
        ],
    )


def _fetch(request: core.FetchRequest) -> fetch.FetchRequest:
    known = request.high_watermark
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.log_end.offset,
        last_fetched_epoch=request.log_end.epoch,
        log_start_offset=-1,
        partition_max_bytes=request.bytes_max,
        replica_directory_id=request.replica.directory_id,
        high_watermark=HIGH_WATERMARK_UNKNOWN if known is None else known,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        replica_state=fetch.ReplicaState(request.replica.node_id),
        max_wait_ms=request.wait_ms_max,
        max_bytes=request.bytes_max,
        topics=[fetch.FetchTopic(TOPIC, TOPIC_ID, [partition])],
    )


def _fetch_snapshot(request: core.FetchSnapshotRequest) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.RequestSnapshotId(
            request.snapshot.offset, request.snapshot.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        request.cluster_id,
        request.replica.node_id,
        request.bytes_max,
        [fetch_snapshot.RequestTopicSnapshot(TOPIC, [partition])],
    )


def _add_voter(request: core.AddVoterRequest) -> add_raft_voter.AddRaftVoterRequest:
    return add_raft_voter.AddRaftVoterRequest(
        request.cluster_id,
        CHANGE_TIMEOUT_MS,
        request.voter.node_id,
        request.voter.directory_id,
        [add_raft_voter.Listener(e.listener, e.host, e.port) for e in request.endpoints],
        request.is_ack_when_committed,
    )


def _update_voter(request: core.UpdateVoterRequest) -> update_raft_voter.UpdateRaftVoterRequest:
    return update_raft_voter.UpdateRaftVoterRequest(
        request.cluster_id,
        request.epoch,
        request.voter.node_id,
        request.voter.directory_id,
        [update_raft_voter.Listener(e.listener, e.host, e.port) for e in request.endpoints],
        update_raft_voter.KRaftVersionFeature(
            request.kraft_versions.lowest, request.kraft_versions.highest
        ),
    )


# -- responses ---------------------------------------------------------------


def to_reply(response: Message, listener: str) -> core.Reply:  # noqa: PLR0911 - one per reply
    """Convert a response. ``listener`` is the listener name of the endpoints in it.

    Raises:
        Fault: the response violates Kafka's rules, or the records in it are damaged.
    """
    match response:
        case vote.VoteResponse():
            return _vote_reply(response, listener)
        case begin_quorum_epoch.BeginQuorumEpochResponse():
            return core.BeginEpochReply(*_error_and_hint(response, listener))
        case end_quorum_epoch.EndQuorumEpochResponse():
            return core.EndEpochReply(*_error_and_hint(response, listener))
        case fetch.FetchResponse():
            return _fetch_reply(response, listener)
        case fetch_snapshot.FetchSnapshotResponse():
            return _fetch_snapshot_reply(response, listener)
        case api_versions.ApiVersionsResponse():
            return _api_versions_reply(response)
        case update_raft_voter.UpdateRaftVoterResponse():
            return _update_voter_reply(response, listener)
        case add_raft_voter.AddRaftVoterResponse() | remove_raft_voter.RemoveRaftVoterResponse():
            return core.VoterChangeReply(
                _error(response.error_code), _BEHIND, response.error_message or ""
            )
        case _:
            raise ProtocolFault(f"{type(response).__name__} is not a response of a quorum API")


_BEHIND: Final = core.LeaderHint(LeaderEpoch(0))


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _hint(leader_id: int, epoch: int, endpoints: Endpoints = ()) -> core.LeaderHint:
    if epoch < 0:
        return _BEHIND
    known = None if leader_id == NO_LEADER else NodeId(leader_id)
    return core.LeaderHint(LeaderEpoch(epoch), known, endpoints)


_WithEndpoints: TypeAlias = (
    vote.VoteResponse
    | begin_quorum_epoch.BeginQuorumEpochResponse
    | end_quorum_epoch.EndQuorumEpochResponse
    | fetch.FetchResponse
    | fetch_snapshot.FetchSnapshotResponse
)


def _endpoints(response: _WithEndpoints, leader_id: int, listener: str) -> Endpoints:
    return tuple(
        Endpoint(listener, e.host, e.port)
        for e in response.node_endpoints
        if e.node_id == leader_id
    )


_EpochResponse: TypeAlias = (
    vote.VoteResponse
    | begin_quorum_epoch.BeginQuorumEpochResponse
    | end_quorum_epoch.EndQuorumEpochResponse
)


def _error_and_hint(response: _EpochResponse, listener: str) -> tuple[ErrorCode, core.LeaderHint]:
    """Return the error of the one partition in a response, and the leader it names."""
    if response.error_code:
        return _error(response.error_code), _BEHIND
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise ProtocolFault(f"{type(response).__name__} must have exactly one partition")
    part = response.topics[0].partitions[0]
    _check_partition(response.topics[0].topic_name, part.partition_index)
    endpoints = _endpoints(response, part.leader_id, listener)
    return _error(part.error_code), _hint(part.leader_id, part.leader_epoch, endpoints)


def _vote_reply(response: vote.VoteResponse, listener: str) -> core.VoteReply:
    error, hint = _error_and_hint(response, listener)
    is_granted = not response.error_code and response.topics[0].partitions[0].vote_granted
    return core.VoteReply(error, hint, is_granted)


def _check_partition(topic: str, partition: int) -> None:
    if topic != TOPIC or partition != PARTITION:
        raise ProtocolFault(f"unexpected partition in a response: {topic[:100]!r}-{partition}")


def _fetch_reply(response: fetch.FetchResponse, listener: str) -> core.FetchReply:
    if response.error_code:
        return core.FetchReply(_error(response.error_code), _BEHIND)
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        raise ProtocolFault("a Fetch response must have exactly one partition")
    topic = response.responses[0]
    part = topic.partitions[0]
    if topic.topic != TOPIC and topic.topic_id != TOPIC_ID:
        raise ProtocolFault("a Fetch response for another topic")
    endpoints = _endpoints(response, part.current_leader.leader_id, listener)
    leader = part.current_leader
    return core.FetchReply(
        _error(part.error_code),
        _hint(leader.leader_id, leader.leader_epoch, endpoints),
        high_watermark=_offset(part.high_watermark),
        log_start=_offset(part.log_start_offset),
        diverging=_position(part.diverging_epoch.epoch, part.diverging_epoch.end_offset),
        snapshot=_position(part.snapshot_id.epoch, part.snapshot_id.end_offset),
        records=checked_batches(part.records) if part.records else None,
    )


def _offset(value: int) -> Offset | None:
    return Offset(value) if value >= 0 else None


def _position(epoch: int, offset: int) -> LogPosition | None:
    """Return the position in a response; None if it has neither epoch nor offset."""
    if epoch < 0 and offset < 0:
        return None
    if epoch < 0 or offset < 0:
        raise ProtocolFault(f"incomplete position: epoch {epoch}, offset {offset}")
    return LogPosition(LeaderEpoch(epoch), Offset(offset))


def _fetch_snapshot_reply(
    response: fetch_snapshot.FetchSnapshotResponse, listener: str
) -> core.FetchSnapshotReply:
    if response.error_code:
        return core.FetchSnapshotReply(_error(response.error_code), _BEHIND)
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise ProtocolFault("a FetchSnapshot response must have exactly one partition")
    part = response.topics[0].partitions[0]
    _check_partition(response.topics[0].name, part.index)
    leader = part.current_leader
    endpoints = _endpoints(response, leader.leader_id, listener)
    data = bytes(part.unaligned_records)
    return core.FetchSnapshotReply(
        _error(part.error_code),
        _hint(leader.leader_id, leader.leader_epoch, endpoints),
        snapshot=LogPosition(
            LeaderEpoch(part.snapshot_id.epoch), Offset(part.snapshot_id.end_offset)
        ),
        size=part.size,
        position=part.position,
        chunk=core.Chunk(len(data), data),
    )


def _api_versions_reply(response: api_versions.ApiVersionsResponse) -> core.ApiVersionsReply:
    versions = NO_RECONFIGURATION
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            versions = VersionRange(feature.min_version, feature.max_version)
    return core.ApiVersionsReply(_error(response.error_code), versions)


def _update_voter_reply(
    response: update_raft_voter.UpdateRaftVoterResponse, listener: str
) -> core.VoterChangeReply:
    leader = response.current_leader
    endpoints = (Endpoint(listener, leader.host, leader.port),) if leader.host else ()
    hint = _hint(leader.leader_id, leader.leader_epoch, endpoints)
    return core.VoterChangeReply(_error(response.error_code), hint)
