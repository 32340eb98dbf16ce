"""DescribeQuorum on a broker: forwarded while there is a leader, answered here without one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.api.cluster.describe_quorum import LEADERLESS_MS, QuorumDescriptions, leaderless
from ottla.api.cluster.envelope import Forwarder
from ottla.api.cluster.quorum_requests import voter_states
from ottla.api.surface.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ClusterNotAuthorized, ProtocolFault
from ottla.protocol.frames import LENGTH_SIZE, Request, response_frame
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.envelope import EnvelopeResponse
from ottla.protocol.schema import Message
from ottla.protocol.types import ZERO_UUID, LeaderEpoch, Millis, NodeId, Offset, Uuid
from ottla.raft.core.effects import Role
from ottla.raft.core.view import QuorumView, ReplicaView
from ottla.raft.core.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.runtime.ports import Address
from simulation.loop import run_simulated
from simulation.random import SimRandom

CLIENT = Caller("User:alice", "app", Address("192.0.2.7", 55), "PLAINTEXT")
METADATA = DescribeQuorumRequest(
    [RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)


def voter(node_id: int) -> Voter:
    endpoint = Endpoint("CONTROLLER", f"c{node_id}", 9093)
    return Voter(ReplicaKey(NodeId(node_id), Uuid(bytes([node_id] * 16))), (endpoint,))


LOST = QuorumView(
    role=Role.PROSPECTIVE,
    epoch=LeaderEpoch(7),
    leader_id=NodeId(2),  # the last one, which this node still names
    voted=None,
    high_watermark=Offset(40),
    log_end_offset=Offset(42),
    durable_offset=Offset(42),
    kraft_version=1,
    voters=VoterSet(tuple(map(voter, (1, 2, 3)))),
    is_voter=True,
    is_led=False,
)
LED = replace(LOST, role=Role.FOLLOWER, is_led=True)


@dataclass
class Channel:
    """The connection to the controllers: answers after ``delay_s``."""

    delay_s: float

    async def ask(
        self, request: Message, timeout_ms: int, resend: Message | None = None
    ) -> Message:
        await asyncio.sleep(self.delay_s)
        reply = DescribeQuorumResponse(error_message="of the leader")
        frame = response_frame(ApiKey.DESCRIBE_QUORUM, 2, 5, reply)
        return EnvelopeResponse(bytes(frame[LENGTH_SIZE:]))


def ask(
    view: Callable[[], QuorumView],
    delay_s: float = 30.0,
    request: DescribeQuorumRequest = METADATA,
    *,
    is_allowed: bool = True,
) -> tuple[Any, float]:
    """Return the answer, and after which time it came."""

    answers: list[tuple[Any, float]] = []

    async def main() -> None:
        handler = QuorumDescriptions(
            NodeId(1),
            Forwarder(Channel(delay_s), 30_000, SimRandom(1)),
            view,
            lambda caller: is_allowed,
        )
        body = memoryview(encode(request, 2))
        header = Request(ApiKey.DESCRIBE_QUORUM, 2, 5, "app", body)
        reply = await handler.on_describe(CLIENT, header, body)
        answers.append((reply, asyncio.get_running_loop().time()))

    run_simulated(main())
    return answers[0]


def test_request_is_forwarded_while_there_is_a_leader() -> None:
    reply, took = ask(lambda: LED, delay_s=5)
    assert b"of the leader" in reply[0]
    assert took == pytest.approx(5)


def test_broker_without_a_leader_describes_the_voters_itself() -> None:
    reply, took = ask(lambda: LOST)
    assert LEADERLESS_MS / 1000 <= took < 1
    (partition,) = reply.topics[0].partitions
    assert (reply.error_code, partition.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (partition.leader_id, partition.leader_epoch) == (-1, 7)
    ends = {each.replica_id: each.log_end_offset for each in partition.current_voters}
    assert ends == {1: 42, 2: -1, 3: -1}
    assert {each.node_id: each.listeners[0].host for each in reply.nodes} == {
        1: "c1",
        2: "c2",
        3: "c3",
    }


def test_election_in_time_is_not_answered_as_a_lost_quorum() -> None:
    def view() -> QuorumView:
        is_electing = asyncio.get_running_loop().time() < 0.4
        return LOST if is_electing else LED

    reply, took = ask(view, delay_s=3)
    assert b"of the leader" in reply[0]
    assert took == pytest.approx(3)


def test_leader_that_is_lost_while_it_is_asked_ends_the_wait() -> None:
    reply, took = ask(lambda: LED if asyncio.get_running_loop().time() < 2 else LOST)
    assert reply.topics[0].partitions[0].leader_id == -1
    assert 2.4 < took < 3


def test_client_without_the_right_learns_nothing_about_the_voters() -> None:
    with pytest.raises(ClusterNotAuthorized):
        ask(lambda: LOST, is_allowed=False)


def test_only_the_metadata_log_is_described() -> None:
    other = DescribeQuorumRequest([RequestTopicData("orders", [RequestPartitionData(3)])])
    reply, _ = ask(lambda: LOST, request=other)
    (partition,) = reply.topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.partition_index == 3


def test_malformed_request_is_refused_at_once() -> None:
    handler = QuorumDescriptions(
        NodeId(1), Forwarder(Channel(1), 1, SimRandom(1)), lambda: LED, lambda caller: True
    )
    header = Request(ApiKey.DESCRIBE_QUORUM, 2, 5, "app", memoryview(b"\x05"))
    with pytest.raises(ProtocolFault):
        handler.on_describe(CLIENT, header, memoryview(b"\x05"))


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_voters_have_directory_ids_from_kraft_version_1_on(kraft_version: int) -> None:
    key = voter(1).key
    view = replace(
        LOST, kraft_version=kraft_version, replicas=(ReplicaView(key, None, None, None),)
    )
    expected = key.directory_id if kraft_version else ZERO_UUID
    [state] = voter_states(view, Millis(0))
    assert state.replica_directory_id == expected
    described = leaderless(view, NodeId(1)).topics[0].partitions[0].current_voters
    assert described[0].replica_directory_id == expected
