"""The state of a cluster is found out in two seconds, whatever part of it is gone. Virtual time."""

import asyncio
from collections.abc import Callable

from fake_cluster import FakeCluster, with_cluster

from ottla.client.cluster import Cluster
from ottla.operations.cluster_state import ClusterState, observe
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.schema import Message

SECONDS_MAX = 2.0
"""The promise: this long, from the first connection on."""
NODES = (1, 2, 3)


def quorum(leader: int, *voters: int) -> DescribeQuorumResponse:
    """Describe a quorum; voters from 101 on are no brokers."""
    state = ResponsePartitionData(
        leader_id=leader, current_voters=[ReplicaState(voter) for voter in voters]
    )
    nodes = [Node(voter, [Listener("CONTROLLER", f"b{voter % 100}", 9092)]) for voter in voters]
    return DescribeQuorumResponse(topics=[ResponseTopicData(partitions=[state])], nodes=nodes)


def observed(
    describe: Callable[[], Message | str],
    cut_off: tuple[int, ...] = (),
    silent: tuple[int, ...] = (),
) -> ClusterState:
    """Observe three brokers, some of them out of reach."""
    fake = FakeCluster(nodes=3)
    for key in (ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_QUORUM):
        fake.served[key] = (0, 2)

    def answer(node: int, message: Message) -> Message | str | None:
        if isinstance(message, DescribeClusterRequest):
            brokers = [DescribeClusterBroker(n, f"b{n}", 9092) for n in NODES]
            return DescribeClusterResponse(cluster_id="c", brokers=brokers)
        return describe() if isinstance(message, DescribeQuorumRequest) else None

    fake.script = [answer]
    states: list[ClusterState] = []

    async def scenario(cluster: Cluster) -> None:
        states.append(await observe(cluster))
        assert asyncio.get_running_loop().time() < SECONDS_MAX

    with_cluster(fake, scenario, cut_off=cut_off, silent=silent)
    return states[0]


def test_everything_answers() -> None:
    state = observed(lambda: quorum(1, 1, 2, 3))
    assert (state.unreachable, state.quorum_failure) == ({}, "")
    assert state.reached_voters == {1, 2, 3}
    assert state.quorum is not None and state.quorum.has_leader


def test_two_machines_are_switched_off_and_the_quorum_has_no_leader() -> None:
    state = observed(lambda: quorum(-1, 1, 2, 3), cut_off=(1, 2))
    assert state.unreachable == {1: "not connected in time", 2: "not connected in time"}
    assert state.reached_voters == {3}


def test_two_processes_are_killed_and_the_quorum_does_not_answer() -> None:
    state = observed(lambda: "no reply", silent=(2, 3))
    assert state.unreachable == {2: "connection refused", 3: "connection refused"}
    assert state.quorum is None
    assert state.quorum_failure == "no answer within 1.2 s"


def test_voters_that_are_no_brokers_are_tried_without_a_leader() -> None:
    state = observed(lambda: quorum(-1, 101, 102, 103), cut_off=(1,), silent=(2,))
    assert state.reached_voters == {103}
    state = observed(lambda: quorum(101, 101, 102, 103), cut_off=(1,), silent=(2,))
    assert state.reached_voters == {101, 102, 103}, "their leader knows better"


def test_quorum_that_may_not_be_described_does_not_hide_the_rest() -> None:
    refused = DescribeQuorumResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    state = observed(lambda: refused)
    assert state.quorum is None
    assert "CLUSTER_AUTHORIZATION_FAILED" in state.quorum_failure
    assert len(state.brokers) == 3
