"""The quorum's RPCs as clients see them: Kafka's errors in Kafka's fields, and no side effects."""

import asyncio
from collections.abc import Callable

import pytest
from raft_bench import CLUSTER, Bench, directory, record, voter, wait_applied, wait_role

from ottla.api.cluster.quorum_requests import RaftHandlers
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import ANONYMOUS, Caller, Routes
from ottla.protocol.api_keys import Listener
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.internal.framing import encode_framed
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
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from ottla.raft import rpc_codec
from ottla.raft.core import messages as core
from ottla.raft.core.effects import Role
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.voters import ReplicaKey, VersionRange
from ottla.raft.driver import RaftDriver
from ottla.runtime.ports import Address

CALLER = Caller(ANONYMOUS, None, Address("test", 1), "CONTROLLER")
OWN = voter(1)
OTHER = voter(2)
EPOCH = LeaderEpoch(1)
E = ErrorCode


class LeaderResponse:
    """A leader's response, and whether its quorum is unchanged."""

    def __init__(self, message: Message, before: object, after: object) -> None:
        self.message = message
        self.is_unchanged = before == after


HANDLERS: dict[type[Message], str] = {
    vote.VoteRequest: "on_vote",
    begin_quorum_epoch.BeginQuorumEpochRequest: "on_begin_epoch",
    end_quorum_epoch.EndQuorumEpochRequest: "on_end_epoch",
    fetch.FetchRequest: "on_fetch",
    fetch_snapshot.FetchSnapshotRequest: "on_fetch_snapshot",
    add_raft_voter.AddRaftVoterRequest: "on_add_voter",
    remove_raft_voter.RemoveRaftVoterRequest: "on_remove_voter",
    update_raft_voter.UpdateRaftVoterRequest: "on_update_voter",
    describe_quorum.DescribeQuorumRequest: "on_describe",
}


async def ask(driver: RaftDriver, request: Message, version: int | None = None) -> Message:
    """Send a request in its encoded form, so that nothing unencoded gets through."""
    version = type(request).SCHEMA.versions[1] if version is None else version
    arrived = decode(type(request), version, encode(request, version))
    handler = getattr(RaftHandlers(driver, "CONTROLLER"), HANDLERS[type(request)])
    answer = handler(CALLER, arrived, version)
    response = await answer if asyncio.iscoroutine(answer) else answer
    return decode(type(response), version, encode(response, version))


def ask_leader(request: Message, version: int | None = None) -> LeaderResponse:
    """Send to the single voter of a quorum, which leads epoch 1 and has committed all records."""
    found: list[LeaderResponse] = []

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await driver.propose([record("a")], EPOCH)
        await wait_applied(driver, driver.describe().log_end_offset)
        before = still(driver)
        message = await ask(driver, request, version)
        found.append(LeaderResponse(message, before, still(driver)))

    Bench().play(scenario)
    return found[0]


def still(driver: RaftDriver) -> object:
    view = driver.describe()
    return (view.role, view.epoch, view.leader_id, view.voted, view.voters, view.log_end_offset)


# -- requests with one wrong field -------------------------------------------


def vote_message(**changed: object) -> Message:
    given = {
        "cluster_id": CLUSTER,
        "candidate": OTHER.key,
        "voter": OWN.key,
        "epoch": EPOCH,
        "log_end": LogPosition(LeaderEpoch(0), Offset(0)),
    }
    return rpc_codec.to_message(core.VoteRequest(**(given | changed)))  # type: ignore[arg-type]


def begin_message(**changed: object) -> Message:
    given = {"cluster_id": CLUSTER, "leader_id": NodeId(2), "epoch": EPOCH, "voter": OWN.key}
    return rpc_codec.to_message(core.BeginEpochRequest(**(given | changed)))  # type: ignore[arg-type]


def end_message(**changed: object) -> Message:
    given = {"cluster_id": CLUSTER, "leader_id": NodeId(2), "epoch": EPOCH}
    return rpc_codec.to_message(core.EndEpochRequest(**(given | changed)))  # type: ignore[arg-type]


def fetch_message(**changed: object) -> Message:
    given = {
        "cluster_id": CLUSTER,
        "replica": OTHER.key,
        "epoch": EPOCH,
        "log_end": LogPosition(LeaderEpoch(0), Offset(0)),
        "bytes_max": 1 << 20,
    }
    return rpc_codec.to_message(core.FetchRequest(**(given | changed)))  # type: ignore[arg-type]


def snapshot_message(**changed: object) -> Message:
    given = {
        "cluster_id": CLUSTER,
        "replica": OTHER.key,
        "epoch": EPOCH,
        "snapshot": LogPosition(EPOCH, Offset(2)),
        "position": 0,
        "bytes_max": 100,
    }
    return rpc_codec.to_message(core.FetchSnapshotRequest(**(given | changed)))  # type: ignore[arg-type]


def add_message(**changed: object) -> Message:
    given = {"cluster_id": CLUSTER, "voter": OTHER.key, "endpoints": OTHER.endpoints}
    return rpc_codec.to_message(core.AddVoterRequest(**(given | changed)))  # type: ignore[arg-type]


def remove_message(**changed: object) -> Message:
    given = {"cluster_id": CLUSTER, "voter": OTHER.key}
    return rpc_codec.to_message(core.RemoveVoterRequest(**(given | changed)))  # type: ignore[arg-type]


def update_message(**changed: object) -> Message:
    given = {
        "cluster_id": CLUSTER,
        "epoch": EPOCH,
        "voter": OWN.key,
        "endpoints": OWN.endpoints,
        "kraft_versions": VersionRange(0, 1),
    }
    return rpc_codec.to_message(core.UpdateVoterRequest(**(given | changed)))  # type: ignore[arg-type]


ALL = [
    vote_message,
    begin_message,
    end_message,
    fetch_message,
    snapshot_message,
    add_message,
    remove_message,
    update_message,
]


@pytest.mark.parametrize("make", ALL)
def test_request_for_another_cluster_gets_a_top_level_error(make: Callable[..., Message]) -> None:
    reply = ask_leader(make(cluster_id="another"))
    assert reply.message.error_code == E.INCONSISTENT_CLUSTER_ID  # type: ignore[attr-defined]
    assert not getattr(reply.message, "topics", []), "and nothing else is said"
    assert reply.is_unchanged


def partition_of(message: Message) -> Message:
    topics = message.responses if isinstance(message, fetch.FetchResponse) else message.topics  # type: ignore[attr-defined]
    assert message.error_code == E.NONE  # type: ignore[attr-defined]
    found: Message = topics[0].partitions[0]
    return found


PARTITION_ERRORS = [
    ("vote, stale epoch", vote_message(epoch=LeaderEpoch(0)), E.INVALID_REQUEST),
    (
        "pre-vote, stale epoch",
        vote_message(epoch=LeaderEpoch(0), is_pre_vote=True),
        E.FENCED_LEADER_EPOCH,
    ),
    ("vote, wrong directory", vote_message(voter=voter(1, 9).key), E.INVALID_VOTER_KEY),
    ("vote, another voter", vote_message(voter=OTHER.key), E.INVALID_VOTER_KEY),
    ("vote, from ourselves", vote_message(candidate=OWN.key), E.INVALID_REQUEST),
    ("vote, nobody", vote_message(candidate=ReplicaKey(NodeId(-3))), E.INVALID_REQUEST),
    (
        "vote, negative offset",
        vote_message(log_end=LogPosition(LeaderEpoch(0), Offset(-1))),
        E.INVALID_REQUEST,
    ),
    ("begin, stale epoch", begin_message(epoch=LeaderEpoch(0)), E.FENCED_LEADER_EPOCH),
    ("begin, two leaders", begin_message(), E.INVALID_REQUEST),
    ("end, stale epoch", end_message(epoch=LeaderEpoch(0)), E.FENCED_LEADER_EPOCH),
    ("end, not the leader", end_message(), E.INVALID_REQUEST),
    ("fetch, stale epoch", fetch_message(epoch=LeaderEpoch(0)), E.FENCED_LEADER_EPOCH),
    ("fetch, newer epoch", fetch_message(epoch=LeaderEpoch(7)), E.UNKNOWN_LEADER_EPOCH),
    ("fetch, by ourselves", fetch_message(replica=OWN.key), E.INVALID_REQUEST),
    ("fetch, negative wait", fetch_message(wait_ms_max=-5), E.INVALID_REQUEST),
    (
        "fetch, negative offset",
        fetch_message(log_end=LogPosition(LeaderEpoch(0), Offset(-7))),
        E.INVALID_REQUEST,
    ),
    ("snapshot, stale epoch", snapshot_message(epoch=LeaderEpoch(0)), E.FENCED_LEADER_EPOCH),
    ("snapshot, newer epoch", snapshot_message(epoch=LeaderEpoch(7)), E.UNKNOWN_LEADER_EPOCH),
    ("snapshot, unknown", snapshot_message(), E.SNAPSHOT_NOT_FOUND),
    (
        "snapshot, the first voters",
        snapshot_message(snapshot=LogPosition(LeaderEpoch(0), Offset(0))),
        E.SNAPSHOT_NOT_FOUND,
    ),
]


@pytest.mark.parametrize(
    ("request_", "error"),
    [row[1:] for row in PARTITION_ERRORS],
    ids=[r[0] for r in PARTITION_ERRORS],
)
def test_partition_error_is_returned_with_the_leader(request_: Message, error: ErrorCode) -> None:
    reply = ask_leader(request_)
    part = partition_of(reply.message)
    assert part.error_code == error, ErrorCode(part.error_code)  # type: ignore[attr-defined]
    leader = part.current_leader if hasattr(part, "current_leader") else part
    assert (leader.leader_id, leader.leader_epoch) == (1, 1)  # type: ignore[attr-defined]
    endpoints = reply.message.node_endpoints  # type: ignore[attr-defined]
    assert [(e.node_id, e.host, e.port) for e in endpoints] == [(1, "n1", 9093)]
    assert reply.is_unchanged


TOP_ERRORS = [
    ("add, known voter", add_message(voter=OWN.key, endpoints=OWN.endpoints), E.DUPLICATE_VOTER),
    ("add, no directory", add_message(voter=ReplicaKey(NodeId(2))), E.INVALID_REQUEST),
    ("add, no listener", add_message(endpoints=()), E.INVALID_REQUEST),
    ("add, listener twice", add_message(endpoints=OTHER.endpoints * 2), E.INVALID_REQUEST),
    ("add, cannot be reached", add_message(), E.REQUEST_TIMED_OUT),
    ("remove, unknown voter", remove_message(), E.VOTER_NOT_FOUND),
    ("remove, wrong directory", remove_message(voter=voter(1, 9).key), E.VOTER_NOT_FOUND),
    ("remove, the last", remove_message(voter=OWN.key), E.VOTER_NOT_FOUND),
    ("update, unknown voter", update_message(voter=OTHER.key), E.VOTER_NOT_FOUND),
    ("update, wrong directory", update_message(voter=voter(1, 9).key), E.VOTER_NOT_FOUND),
    ("update, stale epoch", update_message(epoch=LeaderEpoch(0)), E.FENCED_LEADER_EPOCH),
    ("update, newer epoch", update_message(epoch=LeaderEpoch(5)), E.UNKNOWN_LEADER_EPOCH),
    (
        "update, cannot run it",
        update_message(kraft_versions=VersionRange(0, 0)),
        E.INVALID_REQUEST,
    ),
]


@pytest.mark.parametrize(
    ("request_", "error"), [row[1:] for row in TOP_ERRORS], ids=[row[0] for row in TOP_ERRORS]
)
def test_invalid_voter_change_is_rejected(request_: Message, error: ErrorCode) -> None:
    reply = ask_leader(request_)
    code = reply.message.error_code  # type: ignore[attr-defined]
    assert code == error, ErrorCode(code)
    assert reply.is_unchanged


def other_topic(message: Message) -> Message:
    topic = message.topics[0]  # type: ignore[attr-defined]
    for name in ("topic_name", "topic", "name"):
        if hasattr(topic, name):
            setattr(topic, name, "orders")
    if hasattr(topic, "topic_id"):
        topic.topic_id = directory(5)
    return message


def other_partition(message: Message) -> Message:
    part = message.topics[0].partitions[0]  # type: ignore[attr-defined]
    for name in ("partition_index", "partition"):
        if hasattr(part, name):
            setattr(part, name, 1)
    return message


def two_partitions(message: Message) -> Message:
    message.topics[0].partitions *= 2  # type: ignore[attr-defined]
    return message


def nothing(message: Message) -> Message:
    message.topics = []  # type: ignore[attr-defined]
    return message


@pytest.mark.parametrize("bend", [other_topic, other_partition, two_partitions, nothing])
@pytest.mark.parametrize("make", [vote_message, begin_message, end_message, fetch_message])
def test_request_for_another_partition_gets_a_top_level_error(
    make: Callable[[], Message], bend: Callable[[Message], Message]
) -> None:
    reply = ask_leader(bend(make()))
    assert reply.message.error_code == E.INVALID_REQUEST  # type: ignore[attr-defined]
    assert reply.is_unchanged


def test_snapshot_of_another_partition_is_unknown() -> None:
    for bend in (other_topic, other_partition):
        part = partition_of(ask_leader(bend(snapshot_message())).message)
        assert part.error_code == E.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]
    for bend in (two_partitions, nothing):
        reply = ask_leader(bend(snapshot_message()))
        assert reply.message.error_code == E.INVALID_REQUEST  # type: ignore[attr-defined]


# -- valid requests ----------------------------------------------------------


@pytest.mark.parametrize("version", [13, 15, 17, 18])
def test_replica_fetches_by_topic_id(version: int) -> None:
    response = ask_leader(fetch_message(), version)
    part = partition_of(response.message)
    assert isinstance(part, fetch.PartitionData)
    assert part.error_code == E.NONE
    reply = rpc_codec.to_reply(response.message, "CONTROLLER")
    assert isinstance(reply, core.FetchReply)
    assert isinstance(reply.records, core.Batches)
    assert (reply.records.base_offset, reply.records.end.epoch) == (0, 1)
    assert reply.high_watermark == reply.records.end.offset
    assert (reply.leader.leader_id, reply.leader.epoch) == (1, 1)


def test_unknown_fetch_position_gets_the_diverging_epoch() -> None:
    response = ask_leader(fetch_message(log_end=LogPosition(EPOCH, Offset(900))))
    reply = rpc_codec.to_reply(response.message, "CONTROLLER")
    assert isinstance(reply, core.FetchReply)
    assert reply.diverging is not None
    assert reply.diverging.epoch == 1
    assert reply.records is None


def test_snapshots_are_served_in_chunks() -> None:
    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await driver.propose([record("a")], EPOCH)
        await wait_applied(driver, driver.describe().log_end_offset)
        taken = await driver.take_snapshot(driver.applied, iter([[encode_framed(record("a"))]]))
        assert taken is not None
        data, size = b"", 1
        while len(data) < size:
            message = snapshot_message(snapshot=taken, position=len(data))
            reply = rpc_codec.to_reply(await ask(driver, message), "CONTROLLER")
            assert isinstance(reply, core.FetchSnapshotReply)
            assert isinstance(reply.chunk, core.Chunk)
            assert 0 < reply.chunk.length <= 100
            assert isinstance(reply.chunk.payload, bytes)
            data, size = data + reply.chunk.payload, reply.size
        for position in (size, -1, 1 << 40):
            message = snapshot_message(snapshot=taken, position=position)
            part = partition_of(await ask(driver, message))
            assert part.error_code == E.POSITION_OUT_OF_RANGE  # type: ignore[attr-defined]
        empty = rpc_codec.to_reply(await ask(driver, fetch_message()), "CONTROLLER")
        assert isinstance(empty, core.FetchReply)
        assert empty.snapshot == taken, "an empty replica is sent the snapshot"

    Bench().play(scenario)


def test_leader_describes_the_quorum() -> None:
    message = describe_quorum.DescribeQuorumRequest(
        [
            describe_quorum.RequestTopicData(
                rpc_codec.TOPIC, [describe_quorum.RequestPartitionData(rpc_codec.PARTITION)]
            )
        ]
    )
    reply = ask_leader(message).message
    assert isinstance(reply, describe_quorum.DescribeQuorumResponse)
    part = reply.topics[0].partitions[0]
    assert (part.leader_id, part.leader_epoch, reply.error_code) == (1, 1, E.NONE)
    assert (reply.error_message, part.error_message) == ("", ""), "as Kafka's tests compare it"
    [state] = part.current_voters
    assert (state.replica_id, state.replica_directory_id) == (1, directory(1))
    assert state.log_end_offset == part.high_watermark > 0
    assert state.last_fetch_timestamp > 1_000_000_000_000, "wall time, not the loop's"
    assert [(n.node_id, n.listeners[0].host) for n in reply.nodes] == [(1, "n1")]
    unknown = ask_leader(other_topic(message)).message
    assert unknown.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]


def test_log_described_twice_in_one_request_is_unknown() -> None:
    row = describe_quorum.RequestTopicData(
        rpc_codec.TOPIC, [describe_quorum.RequestPartitionData(0)]
    )
    reply = ask_leader(describe_quorum.DescribeQuorumRequest([row, row])).message
    assert isinstance(reply, describe_quorum.DescribeQuorumResponse)
    codes = [part.error_code for topic in reply.topics for part in topic.partitions]
    assert (codes, reply.nodes) == ([E.UNKNOWN_TOPIC_OR_PARTITION] * 2, [])


def test_fetch_by_name_gets_a_top_level_error() -> None:
    reply = ask_leader(fetch_message(cluster_id=None), 12).message
    assert isinstance(reply, fetch.FetchResponse)
    assert (reply.error_code, reply.responses) == (E.INVALID_REQUEST, [])


@pytest.mark.parametrize(("version", "endpoints"), [(16, 0), (17, 1)])
def test_rejected_fetch_contains_the_log_start(version: int, endpoints: int) -> None:
    reply = ask_leader(fetch_message(epoch=LeaderEpoch(0)), version).message
    assert isinstance(reply, fetch.FetchResponse)
    [part] = reply.responses[0].partitions
    assert part.error_code == E.FENCED_LEADER_EPOCH
    assert (part.log_start_offset, part.aborted_transactions) == (0, [])
    assert len(reply.node_endpoints) == endpoints


def test_only_the_leader_describes_and_changes_the_quorum() -> None:
    async def scenario(driver: RaftDriver) -> None:
        message = describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.RequestTopicData(
                    rpc_codec.TOPIC, [describe_quorum.RequestPartitionData()]
                )
            ]
        )
        for request in (message, add_message(), remove_message()):
            reply = await ask(driver, request)
            assert reply.error_code == E.NOT_LEADER_OR_FOLLOWER  # type: ignore[attr-defined]

    Bench((voter(1), voter(2), voter(3))).play(scenario)


def test_routes_are_those_of_a_controller_listener() -> None:
    async def scenario(driver: RaftDriver) -> None:
        routes = Routes(
            Listener.CONTROLLER,
            bind_routes(Listener.CONTROLLER, handlers_of(raft=RaftHandlers(driver, "CONTROLLER"))),
        )
        assert [int(key) for key, _ in routes] == [1, 52, 53, 54, 55, 59, 80, 81, 82]

    Bench().play(scenario)


# -- invalid responses -------------------------------------------------------


@pytest.mark.parametrize("make", [vote_message, begin_message, end_message, fetch_message])
def test_response_of_another_shape_is_rejected(make: Callable[[], Message]) -> None:
    reply = ask_leader(make()).message
    name = "responses" if isinstance(reply, fetch.FetchResponse) else "topics"
    for topics in ([], getattr(reply, name) * 2):
        setattr(reply, name, topics)
        with pytest.raises(Fault):
            rpc_codec.to_reply(reply, "CONTROLLER")


def test_damaged_records_in_a_response_are_rejected() -> None:
    reply = ask_leader(fetch_message()).message
    assert isinstance(reply, fetch.FetchResponse)
    part = reply.responses[0].partitions[0]
    assert part.records is not None
    part.records = bytes(part.records)[:-1] + b"\xff"
    with pytest.raises(Fault):
        rpc_codec.to_reply(reply, "CONTROLLER")


def test_incomplete_position_is_rejected() -> None:
    reply = ask_leader(fetch_message()).message
    assert isinstance(reply, fetch.FetchResponse)
    reply.responses[0].partitions[0].diverging_epoch = fetch.EpochEndOffset(3, -1)
    with pytest.raises(Fault):
        rpc_codec.to_reply(reply, "CONTROLLER")


@pytest.mark.parametrize("make", ALL)
def test_requests_roundtrip_through_the_protocol(make: Callable[..., Message]) -> None:
    """Client and server side agree on every field: the handler gets the core's own message."""
    received: list[core.Request] = []

    class Ear:
        async def request(self, request: core.Request) -> core.Reply:
            received.append(request)
            raise Fault("received")

    async def scenario() -> None:
        message = make()
        with pytest.raises(Fault):
            await ask(Ear(), message)  # type: ignore[arg-type]
        again = rpc_codec.to_message(received[0])
        version = type(message).SCHEMA.versions[1]
        assert encode(again, version) == encode(message, version)

    asyncio.run(scenario())


def test_vote_without_a_directory_is_for_this_node() -> None:
    message = vote_message()
    reply = partition_of(ask_leader(message, 0).message)
    assert reply.error_code == E.NONE  # type: ignore[attr-defined]
    assert reply.vote_granted is False  # type: ignore[attr-defined]
    assert ZERO_UUID not in (OWN.key.directory_id,)
