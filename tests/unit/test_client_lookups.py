"""Look-ups of clients, step by step: what they ask, when they pause, and when they give up."""

import pytest

from ottla.client.failures import NoBroker, Refused
from ottla.client.lookups import (
    Ask,
    AskEach,
    Pause,
    find_coordinator,
    find_leader,
    find_offsets,
    find_topic,
    wait_until_known,
)
from ottla.client.metadata import ClusterMetadata, Leader
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import Address

T = "orders"
P0 = TopicPartition(T, 0)


def fresh(doubts_max: int = 0) -> ClusterMetadata:
    return ClusterMetadata([Address("localhost", 9092)], doubts_max)


def reply(*leaders: int, code: int = 0) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=5)
        for index, leader in enumerate(leaders)
    ]
    topic = MetadataResponseTopic(error_code=code, name=T, partitions=partitions)
    return MetadataResponse(brokers=[MetadataResponseBroker(1, "b1", 9092)], topics=[topic])


def result_of(lookup, value):
    with pytest.raises(StopIteration) as done:
        lookup.send(value)
    return done.value.value


def test_topic_is_asked_for_once_and_then_known():
    metadata = fresh()
    lookup = find_topic(metadata, T)
    assert isinstance(next(lookup), Ask)
    assert result_of(lookup, reply(1)).partitions == (0,)
    assert result_of(find_topic(metadata, T), None).name == T


def test_unknown_topic_is_refused_at_the_last_of_its_attempts():
    lookup = find_topic(fresh(doubts_max=1), T)
    next(lookup)
    assert lookup.send(reply(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) == Pause(0)
    assert isinstance(lookup.send(True), Ask)
    with pytest.raises(Refused, match="orders: UNKNOWN_TOPIC_OR_PARTITION"):
        lookup.send(reply(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def test_topic_being_created_has_no_partitions_yet_and_is_asked_for_again():
    lookup = find_topic(fresh(), T)
    next(lookup)
    assert lookup.send(reply(code=ErrorCode.LEADER_NOT_AVAILABLE)) == Pause(0)


def test_error_that_is_not_retriable_is_refused_without_a_pause():
    lookup = find_topic(fresh(), T)
    next(lookup)
    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        lookup.send(reply(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def test_election_is_waited_for():
    lookup = find_leader(fresh(), P0)
    next(lookup)
    assert lookup.send(reply(-1)) == Pause(0)
    assert isinstance(lookup.send(True), Ask)
    assert result_of(lookup, reply(1)) == Leader(1, 5)


def test_partition_without_a_leader_is_refused_when_the_client_gives_up():
    lookup = find_leader(fresh(), P0)
    next(lookup)
    assert lookup.send(reply(-1)) == Pause(0)
    with pytest.raises(Refused, match="orders-0: LEADER_NOT_AVAILABLE"):
        lookup.send(False)


def test_single_attempt_does_not_wait_for_an_election():
    lookup = find_leader(fresh(), P0, attempts_max=1)
    next(lookup)
    with pytest.raises(Refused, match="orders-0: LEADER_NOT_AVAILABLE"):
        lookup.send(reply(-1))


def test_partition_that_does_not_exist_is_refused_and_its_topic_forgotten():
    metadata = fresh()
    lookup = find_leader(metadata, TopicPartition(T, 7))
    next(lookup)
    with pytest.raises(Refused, match="orders-7: UNKNOWN_TOPIC_OR_PARTITION"):
        lookup.send(reply(1))
    assert metadata.topic(T) is None


def test_leader_that_is_not_listed_as_a_broker_is_none():
    metadata = fresh()
    metadata.learn(reply(9))
    assert metadata.topic(T).leaders == {}


def test_address_of_a_coordinator_becomes_known():
    metadata = fresh()
    lookup = find_coordinator(metadata, 0, "group")
    (request,) = [next(lookup).request]
    assert isinstance(request, FindCoordinatorRequest)
    loading = Coordinator(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert lookup.send(FindCoordinatorResponse(coordinators=[loading])) == Pause(0)
    lookup.send(True)
    ready = Coordinator(node_id=4, host="b4", port=9094)
    assert result_of(lookup, FindCoordinatorResponse(coordinators=[ready])) == 4
    assert metadata.nodes[4] == Address("b4", 9094)


def offsets(code: int, offset: int) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=T, partitions=[row])])


def test_offsets_are_asked_of_the_new_leader_after_it_moved():
    metadata = fresh()
    metadata.learn(reply(1))
    lookup = find_offsets(metadata, {P0: -1}, committed=True)
    step = next(lookup)
    assert isinstance(step, AskEach)
    assert list(step.requests) == [1]
    assert lookup.send([offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]) == Pause(0)
    assert isinstance(lookup.send(True), Ask)  # the leader was forgotten
    assert isinstance(lookup.send(reply(1)), AskEach)
    assert lookup.send([NoBroker("down")]) == Pause(1)
    lookup.send(True)
    lookup.send(reply(1))
    assert result_of(lookup, [offsets(0, 42)]) == {P0: 42}


def test_last_failure_of_offsets_is_raised_when_the_client_gives_up():
    metadata = fresh()
    metadata.learn(reply(1))
    lookup = find_offsets(metadata, {P0: -1}, committed=True)
    next(lookup)
    lookup.send([NoBroker("down")])
    with pytest.raises(NoBroker, match="down"):
        lookup.send(False)


def test_new_topic_is_waited_for_at_the_brokers_that_do_not_know_it_yet():
    metadata = fresh()
    metadata.nodes = {node: Address(f"b{node}", 9092) for node in (1, 2, 3, 4)}
    lookup = wait_until_known(metadata, T)
    assert list(next(lookup).requests) == [1, 2, 3, 4]
    unknown = reply(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    denied = reply(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert lookup.send([reply(1), unknown, NoBroker("gone"), denied]) == Pause(0)
    assert list(lookup.send(True).requests) == [2]
    assert result_of(lookup, [reply(1)]) is True


def test_new_topic_that_a_broker_never_learns_of_is_given_up():
    metadata = fresh()
    metadata.nodes = {1: Address("b1", 9092)}
    lookup = wait_until_known(metadata, T)
    next(lookup)
    lookup.send([reply(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    assert result_of(lookup, False) is False
