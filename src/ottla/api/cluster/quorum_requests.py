"""The quorum's RPCs, answered: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot of
``__cluster_metadata``, DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.

Each handler converts a request for the raft core, calls it, and converts the reply; the sending
side is `ottla.raft.rpc_codec`. Errors are placed as in Kafka: a wrong cluster id, or a request that
is not about the one partition, is a top-level error alone; any other is an error of the partition,
with the leader that the node knows. There are no fetch sessions: every fetch names its partition.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from ottla.protocol.types import NO_LEADER, ZERO_UUID, LeaderEpoch, Millis, NodeId, Offset, Uuid
from ottla.raft.core import messages as core
from ottla.raft.core.effects import Role
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.view import QuorumView, ReplicaView
from ottla.raft.core.voters import Endpoint, ReplicaKey, VersionRange, VoterSet, find_endpoint
from ottla.raft.rpc_codec import PARTITION, TOPIC, TOPIC_ID

# The most bytes of a reply: the maximum of a batch.
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
# The longest wait, after which the reply is empty: no fetch waits forever.
FETCH_WAIT_MS_MAX: Final = 30_000
FETCH_ENDPOINTS_SINCE: Final = 17

_TOP_LEVEL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID})


class Quorum(Protocol):
    """The node's replica of the metadata log, for the handlers."""

    async def request(self, request: core.Request) -> core.Reply:
        """Pass it a request; the reply may come much later."""
        ...

    def describe(self) -> QuorumView:
        """Return its current view of the quorum."""
        ...

    def wall_clock(self) -> Millis:
        """Return the time that the ages in the view refer to."""
        ...


class RaftHandlers:
    """The handlers of one listener; ``listener`` is its name."""

    def __init__(self, quorum: Quorum, listener: str) -> None:
        self._quorum = quorum
        self._listener = listener

    def _leader(self, hint: core.LeaderHint) -> tuple[int, Endpoint | None]:
        leader_id = NO_LEADER if hint.leader_id is None else hint.leader_id
        return leader_id, find_endpoint(hint.endpoints, self._listener)

    # -- elections -----------------------------------------------------------

    async def on_vote(
        self, caller: Caller, request: vote.VoteRequest, version: int
    ) -> vote.VoteResponse:
        """Vote, or pre-vote from version 2 on."""
        if [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics] != [
            (TOPIC, [PARTITION])
        ]:
            return vote.VoteResponse(ErrorCode.INVALID_REQUEST)
        part = request.topics[0].partitions[0]
        reply = await self._quorum.request(
            core.VoteRequest(
                cluster_id=request.cluster_id,
                candidate=ReplicaKey(NodeId(part.replica_id), part.replica_directory_id),
                voter=_voter_key(request.voter_id, part.voter_directory_id),
                epoch=LeaderEpoch(part.replica_epoch),
                log_end=LogPosition(LeaderEpoch(part.last_offset_epoch), Offset(part.last_offset)),
                is_pre_vote=part.pre_vote,
            )
        )
        assert isinstance(reply, core.VoteReply)
        if reply.error in _TOP_LEVEL:
            return vote.VoteResponse(reply.error)
        leader_id, endpoint = self._leader(reply.leader)
        answer = vote.ResponsePartitionData(
            PARTITION, reply.error, leader_id, reply.leader.epoch, reply.is_granted
        )
        response = vote.VoteResponse(topics=[vote.ResponseTopicData(TOPIC, [answer])])
        if endpoint is not None:
            response.node_endpoints = [vote.NodeEndpoint(leader_id, endpoint.host, endpoint.port)]
        return response

    async def on_begin_epoch(
        self,
        caller: Caller,
        request: begin_quorum_epoch.BeginQuorumEpochRequest,
        version: int,
    ) -> begin_quorum_epoch.BeginQuorumEpochResponse:
        """BeginQuorumEpoch: the sender is the leader of a new epoch."""
        if [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics] != [
            (TOPIC, [PARTITION])
        ]:
            return begin_quorum_epoch.BeginQuorumEpochResponse(ErrorCode.INVALID_REQUEST)
        part = request.topics[0].partitions[0]
        reply = await self._quorum.request(
            core.BeginEpochRequest(
                cluster_id=request.cluster_id,
                leader_id=NodeId(part.leader_id),
                epoch=LeaderEpoch(part.leader_epoch),
                endpoints=tuple(Endpoint(e.name, e.host, e.port) for e in request.leader_endpoints),
                voter=_voter_key(request.voter_id, part.voter_directory_id),
            )
        )
        assert isinstance(reply, core.BeginEpochReply)
        if reply.error in _TOP_LEVEL:
            return begin_quorum_epoch.BeginQuorumEpochResponse(reply.error)
        leader_id, endpoint = self._leader(reply.leader)
        answer = begin_quorum_epoch.ResponsePartitionData(
            PARTITION, reply.error, leader_id, reply.leader.epoch
        )
        response = begin_quorum_epoch.BeginQuorumEpochResponse(
            topics=[begin_quorum_epoch.ResponseTopicData(TOPIC, [answer])]
        )
        if endpoint is not None:
            response.node_endpoints = [
                begin_quorum_epoch.NodeEndpoint(leader_id, endpoint.host, endpoint.port)
            ]
        return response

    async def on_end_epoch(
        self, caller: Caller, request: end_quorum_epoch.EndQuorumEpochRequest, version: int
    ) -> end_quorum_epoch.EndQuorumEpochResponse:
        """EndQuorumEpoch: the leader resigns."""
        if [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics] != [
            (TOPIC, [PARTITION])
        ]:
            return end_quorum_epoch.EndQuorumEpochResponse(ErrorCode.INVALID_REQUEST)
        part = request.topics[0].partitions[0]
        reply = await self._quorum.request(
            core.EndEpochRequest(
                cluster_id=request.cluster_id,
                leader_id=NodeId(part.leader_id),
                epoch=LeaderEpoch(part.leader_epoch),
                endpoints=tuple(Endpoint(e.name, e.host, e.port) for e in request.leader_endpoints),
                successors=_successors(part),
            )
        )
        assert isinstance(reply, core.EndEpochReply)
        if reply.error in _TOP_LEVEL:
            return end_quorum_epoch.EndQuorumEpochResponse(reply.error)
        leader_id, endpoint = self._leader(reply.leader)
        answer = end_quorum_epoch.ResponsePartitionData(
            PARTITION, reply.error, leader_id, reply.leader.epoch
        )
        response = end_quorum_epoch.EndQuorumEpochResponse(
            topics=[end_quorum_epoch.ResponseTopicData(TOPIC, [answer])]
        )
        if endpoint is not None:
            response.node_endpoints = [
                end_quorum_epoch.NodeEndpoint(leader_id, endpoint.host, endpoint.port)
            ]
        return response

    # -- replication ---------------------------------------------------------

    async def on_fetch(
        self, caller: Caller, request: fetch.FetchRequest, version: int
    ) -> fetch.FetchResponse:
        """Read the log for a replica; waits where there is nothing new."""
        if not _is_metadata_fetch(request):
            return fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        part = request.topics[0].partitions[0]
        replica_id = request.replica_id if version < 15 else request.replica_state.replica_id
        known = part.high_watermark
        reply = await self._quorum.request(
            core.FetchRequest(
                cluster_id=request.cluster_id,
                replica=ReplicaKey(NodeId(replica_id), part.replica_directory_id),
                epoch=LeaderEpoch(part.current_leader_epoch),
                log_end=LogPosition(
                    LeaderEpoch(part.last_fetched_epoch), Offset(part.fetch_offset)
                ),
                high_watermark=Offset(known) if known >= 0 else None,
                wait_ms_max=min(request.max_wait_ms, FETCH_WAIT_MS_MAX),
                bytes_max=max(1, min(request.max_bytes, part.partition_max_bytes, FETCH_BYTES_MAX)),
            )
        )
        assert isinstance(reply, core.FetchReply)
        if reply.error in _TOP_LEVEL:
            return fetch.FetchResponse(error_code=reply.error)
        leader_id, endpoint = self._leader(reply.leader)
        answer = fetch.FetchableTopicResponse(TOPIC, TOPIC_ID, [_fetched(reply, leader_id)])
        response = fetch.FetchResponse(responses=[answer])
        if endpoint is not None and version >= FETCH_ENDPOINTS_SINCE:
            response.node_endpoints = [fetch.NodeEndpoint(leader_id, endpoint.host, endpoint.port)]
        return response

    async def on_fetch_snapshot(
        self, caller: Caller, request: fetch_snapshot.FetchSnapshotRequest, version: int
    ) -> fetch_snapshot.FetchSnapshotResponse:
        """Read a chunk of a snapshot."""
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return fetch_snapshot.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        topic = request.topics[0]
        part = topic.partitions[0]
        if topic.name != TOPIC or part.partition != PARTITION:
            unknown = fetch_snapshot.ResponsePartitionSnapshot(
                part.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            return fetch_snapshot.FetchSnapshotResponse(
                topics=[fetch_snapshot.ResponseTopicSnapshot(topic.name, [unknown])]
            )
        snapshot = LogPosition(
            LeaderEpoch(part.snapshot_id.epoch), Offset(part.snapshot_id.end_offset)
        )
        reply = await self._quorum.request(
            core.FetchSnapshotRequest(
                cluster_id=request.cluster_id,
                replica=ReplicaKey(NodeId(request.replica_id), part.replica_directory_id),
                epoch=LeaderEpoch(part.current_leader_epoch),
                snapshot=snapshot,
                position=part.position,
                bytes_max=max(1, min(request.max_bytes, FETCH_BYTES_MAX)),
            )
        )
        assert isinstance(reply, core.FetchSnapshotReply)
        return self._snapshot_piece(reply, snapshot)

    def _snapshot_piece(
        self, reply: core.FetchSnapshotReply, snapshot: LogPosition
    ) -> fetch_snapshot.FetchSnapshotResponse:
        if reply.error in _TOP_LEVEL:
            return fetch_snapshot.FetchSnapshotResponse(error_code=reply.error)
        leader_id, endpoint = self._leader(reply.leader)
        answer = fetch_snapshot.ResponsePartitionSnapshot(
            index=PARTITION,
            error_code=reply.error,
            snapshot_id=fetch_snapshot.ResponseSnapshotId(snapshot.offset, snapshot.epoch),
            current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id, reply.leader.epoch),
        )
        if isinstance(reply.chunk, core.Chunk):
            assert isinstance(reply.chunk.payload, bytes)
            answer.size, answer.position = reply.size, reply.position
            answer.unaligned_records = reply.chunk.payload
        response = fetch_snapshot.FetchSnapshotResponse(
            topics=[fetch_snapshot.ResponseTopicSnapshot(TOPIC, [answer])]
        )
        if endpoint is not None:
            response.node_endpoints = [
                fetch_snapshot.NodeEndpoint(leader_id, endpoint.host, endpoint.port)
            ]
        return response

    # -- membership ----------------------------------------------------------

    async def on_add_voter(
        self, caller: Caller, request: add_raft_voter.AddRaftVoterRequest, version: int
    ) -> add_raft_voter.AddRaftVoterResponse:
        """Add a voter; answered after commit, unless the request does not wait for it."""
        listeners = [(e.name, Endpoint(e.name, e.host, e.port)) for e in request.listeners]
        if len(dict(listeners)) < len(listeners):
            return add_raft_voter.AddRaftVoterResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message="a listener is named twice"
            )
        reply = await self._quorum.request(
            core.AddVoterRequest(
                cluster_id=request.cluster_id,
                voter=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
                endpoints=tuple(endpoint for _, endpoint in listeners),
                is_ack_when_committed=request.ack_when_committed,
            )
        )
        assert isinstance(reply, core.VoterChangeReply)
        if _is_resent(caller) and reply.error is ErrorCode.DUPLICATE_VOTER:
            voter = self._quorum.describe().voters.get(NodeId(request.voter_id))
            if voter is not None and voter.key.directory_id == request.voter_directory_id:
                return add_raft_voter.AddRaftVoterResponse(error_message=None)
        return add_raft_voter.AddRaftVoterResponse(
            error_code=reply.error, error_message=_message(reply)
        )

    async def on_remove_voter(
        self, caller: Caller, request: remove_raft_voter.RemoveRaftVoterRequest, version: int
    ) -> remove_raft_voter.RemoveRaftVoterResponse:
        """Remove a voter; answered after commit."""
        reply = await self._quorum.request(
            core.RemoveVoterRequest(
                cluster_id=request.cluster_id,
                voter=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
            )
        )
        assert isinstance(reply, core.VoterChangeReply)
        if _is_resent(caller) and reply.error is ErrorCode.VOTER_NOT_FOUND:
            return remove_raft_voter.RemoveRaftVoterResponse(error_message=None)
        return remove_raft_voter.RemoveRaftVoterResponse(
            error_code=reply.error, error_message=_message(reply)
        )

    async def on_update_voter(
        self, caller: Caller, request: update_raft_voter.UpdateRaftVoterRequest, version: int
    ) -> update_raft_voter.UpdateRaftVoterResponse:
        """Update a voter's endpoints and versions."""
        feature = request.k_raft_version_feature
        reply = await self._quorum.request(
            core.UpdateVoterRequest(
                cluster_id=request.cluster_id,
                epoch=LeaderEpoch(request.current_leader_epoch),
                voter=ReplicaKey(NodeId(request.voter_id), request.voter_directory_id),
                endpoints=tuple(Endpoint(e.name, e.host, e.port) for e in request.listeners),
                kraft_versions=VersionRange(
                    feature.min_supported_version, feature.max_supported_version
                ),
            )
        )
        assert isinstance(reply, core.VoterChangeReply)
        if reply.error in _TOP_LEVEL:
            return update_raft_voter.UpdateRaftVoterResponse(error_code=reply.error)
        leader_id, endpoint = self._leader(reply.leader)
        return update_raft_voter.UpdateRaftVoterResponse(
            error_code=reply.error,
            current_leader=update_raft_voter.CurrentLeader(
                leader_id,
                reply.leader.epoch,
                "" if endpoint is None else endpoint.host,
                0 if endpoint is None else endpoint.port,
            ),
        )

    # -- description --------------------------------------------------

    def on_describe(
        self, caller: Caller, request: describe_quorum.DescribeQuorumRequest, version: int
    ) -> describe_quorum.DescribeQuorumResponse:
        """Describe the quorum; only its leader knows the offsets of the others."""
        asked = requested_partitions(request)
        if asked != [(TOPIC, [PARTITION])]:
            return unknown_partitions(asked)
        view = self._quorum.describe()
        if view.role is not Role.LEADER:
            return describe_quorum.DescribeQuorumResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        now = self._quorum.wall_clock()
        known = view.high_watermark
        reply = describe_quorum.ResponsePartitionData(
            partition_index=PARTITION,
            leader_id=NO_LEADER if view.leader_id is None else view.leader_id,
            leader_epoch=view.epoch,
            high_watermark=-1 if known is None else known,
            current_voters=voter_states(view, now),
            observers=[_replica_state(replica, now) for replica in view.observers],
        )
        return describe_quorum.DescribeQuorumResponse(
            topics=[describe_quorum.ResponseTopicData(TOPIC, [reply])],
            nodes=voter_nodes(view.voters),
        )


def _is_resent(caller: Caller) -> bool:
    """Say whether an earlier attempt of a forwarded request may have been served.

    Voters are not part of the image, so the ids in the image do not help. If the voters are as
    requested, that counts as success: an earlier attempt whose reply was lost is the likely cause.
    """
    return caller.request is not None and caller.request.is_resent


def _voter_key(node_id: int, directory_id: Uuid) -> ReplicaKey | None:
    return None if node_id < 0 else ReplicaKey(NodeId(node_id), directory_id)


def _successors(part: end_quorum_epoch.RequestPartitionData) -> tuple[ReplicaKey, ...]:
    """Return the successors of either version; the older one has no directory ids."""
    if part.preferred_candidates:
        return tuple(
            ReplicaKey(NodeId(c.candidate_id), c.candidate_directory_id)
            for c in part.preferred_candidates
        )
    return tuple(ReplicaKey(NodeId(node_id)) for node_id in part.preferred_successors)


def _is_metadata_fetch(request: fetch.FetchRequest) -> bool:
    """Say whether a fetch is of the metadata log, by its id: Kafka rejects versions with names."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return topic.topic_id == TOPIC_ID and topic.partitions[0].partition == PARTITION


def _fetched(reply: core.FetchReply, leader_id: int) -> fetch.PartitionData:
    response = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=reply.error,
        high_watermark=-1 if reply.high_watermark is None else reply.high_watermark,
        log_start_offset=-1 if reply.log_start is None else reply.log_start,
        current_leader=fetch.LeaderIdAndEpoch(leader_id, reply.leader.epoch),
        aborted_transactions=[],
        records=b"",
    )
    if reply.diverging is not None:
        response.diverging_epoch = fetch.EpochEndOffset(
            reply.diverging.epoch, reply.diverging.offset
        )
    if reply.snapshot is not None:
        response.snapshot_id = fetch.SnapshotId(reply.snapshot.offset, reply.snapshot.epoch)
    if isinstance(reply.records, core.Batches):
        assert isinstance(reply.records.payload, bytes)
        response.records = reply.records.payload
    return response


def _message(reply: core.VoterChangeReply) -> str | None:
    if reply.error is ErrorCode.NONE:
        return None
    return reply.message or reply.error.name


def requested_partitions(
    request: describe_quorum.DescribeQuorumRequest,
) -> list[tuple[str, list[int]]]:
    """Return the topics and partitions that a DescribeQuorum names."""
    return [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics]


def unknown_partitions(
    asked: Iterable[tuple[str, list[int]]],
) -> describe_quorum.DescribeQuorumResponse:
    """Return the answer about partitions other than the metadata log."""
    error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Only the metadata log has a quorum"
    return describe_quorum.DescribeQuorumResponse(
        topics=[
            describe_quorum.ResponseTopicData(
                name,
                [
                    describe_quorum.ResponsePartitionData(partition, error, message)
                    for partition in partitions
                ],
            )
            for name, partitions in asked
        ],
    )


def voter_states(view: QuorumView, now: Millis) -> list[describe_quorum.ReplicaState]:
    """Describe the voters. As in Kafka, voters of kraft.version 0 have no directory ids.

    A voter of a static quorum knows its own id only.
    """
    states = [_replica_state(replica, now) for replica in view.replicas]
    if not view.kraft_version:
        for state in states:
            state.replica_directory_id = ZERO_UUID
    return states


def _replica_state(replica: ReplicaView, now: Millis) -> describe_quorum.ReplicaState:
    fetched, caught_up = replica.last_fetch_age_ms, replica.last_caught_up_age_ms
    return describe_quorum.ReplicaState(
        replica.key.node_id,
        replica.key.directory_id,
        -1 if replica.log_end_offset is None else replica.log_end_offset,
        -1 if fetched is None else now - fetched,
        -1 if caught_up is None else now - caught_up,
    )


def voter_nodes(voters: VoterSet) -> list[describe_quorum.Node]:
    """Return the voters with their addresses."""
    return [
        describe_quorum.Node(
            voter.key.node_id,
            [describe_quorum.Listener(e.listener, e.host, e.port) for e in voter.endpoints],
        )
        for voter in voters
    ]
