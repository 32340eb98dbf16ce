"""CreateTopics, CreatePartitions and DeleteTopics."""

import pytest
from controller_cluster import ControllerCluster, directory
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.config.describe import Entry, describe_topic
from ottla.config.layers import Layers
from ottla.controller import topic_creation
from ottla.controller.decision import Refusal
from ottla.controller.topic_changes import decide_create_partitions, decide_delete_topics
from ottla.controller.topic_creation import decide_create_topics
from ottla.metadata.configs import ConfigResource
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.types import ZERO_UUID, Uuid

QUOTA = Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much")


def asked(name: str = "t", partitions: int = 1, factor: int = 1, **more: object) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)


def create(
    cluster: ControllerCluster, *topics: CreatableTopic, context=None, **more: object
) -> list:
    request = CreateTopicsRequest(topics=list(topics), **more)
    decision = decide_create_topics(cluster.state, request, context or cluster.topics)
    return cluster.take(decision).topics


def refused(cluster: ControllerCluster, topic: CreatableTopic, context=None) -> ErrorCode:
    before = cluster.image
    (result,) = create(cluster, topic, context=context)
    assert cluster.image is before or cluster.image == before
    assert result.error_code and result.error_message
    return ErrorCode(result.error_code)


# -- creation -------------------------------------------------------------------------------


def test_new_topic_has_all_live_replicas_in_sync() -> None:
    cluster = ControllerCluster(3)
    (result,) = create(cluster, asked("t", 4, 2))
    topic = cluster.topic("t")
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (4, 2)
    assert result.topic_id == topic.id != ZERO_UUID
    assert topic.partition_ids() == [0, 1, 2, 3]
    for partition in topic.partitions.values():
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(directory(i) for i in partition.replicas)


def test_minus_one_means_the_defaults() -> None:
    cluster = ControllerCluster(3)
    cluster.settings = replace(cluster.settings, partitions_default=5, replication_factor_default=3)
    (result,) = create(cluster, asked("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (5, 3)


def test_replica_on_a_broker_with_several_directories_is_unassigned() -> None:
    cluster = ControllerCluster()
    cluster.start(0, directories=2)
    create(cluster, asked())
    assert cluster.partition().directories == (DIRECTORY_UNASSIGNED,)


def test_partitions_have_no_directories_at_old_levels() -> None:
    cluster = ControllerCluster(level=MetadataVersion.IBP_3_6_IV2)
    cluster.start(0)
    create(cluster, asked())
    assert cluster.partition().directories == (ZERO_UUID,)


def test_validate_only_replies_the_same_and_writes_nothing() -> None:
    cluster = ControllerCluster(3)
    before = cluster.image
    good, bad = create(cluster, asked("t", 2, 3), asked("u", 1, 9), validate_only=True)
    assert good.error_code == 0 and good.num_partitions == 2
    assert bad.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.image == before


def test_invalid_topic_does_not_fail_the_others() -> None:
    cluster = ControllerCluster(1)
    results = create(cluster, asked("bad", 0), asked("good"))
    assert [r.name for r in results] == ["bad", "good"]
    assert [bool(r.error_code) for r in results] == [True, False]
    assert cluster.image.topics.names() == ["good"]


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n", "a:b"])
def test_invalid_names_are_rejected(name: str) -> None:
    assert refused(ControllerCluster(1), asked(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_longest_name_is_accepted() -> None:
    cluster = ControllerCluster(1)
    assert create(cluster, asked("a" * 249))[0].error_code == 0


def test_name_that_collides_in_metrics_is_rejected() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("a.b_c"), asked("plain"))
    for name in ("a_b.c", "a_b_c", "a.b.c"):
        assert refused(cluster, asked(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(cluster, asked("a.b_c")) is ErrorCode.TOPIC_ALREADY_EXISTS
    delete(cluster, names=["a.b_c"])
    assert create(cluster, asked("a_b.c"))[0].error_code == 0


def test_existing_topic_is_rejected() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("t"))
    assert refused(cluster, asked("t")) is ErrorCode.TOPIC_ALREADY_EXISTS
    [result] = create(cluster, asked("t"))
    assert result.error_message == "Topic 't' already exists."


def test_repeated_topic_is_not_created() -> None:
    cluster = ControllerCluster(1)
    results = create(cluster, asked("t"), asked("u"), asked("t", 2))
    assert [(r.name, r.error_code) for r in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", 0),
    ]
    assert cluster.image.topics.names() == ["u"]


def test_cluster_metadata_cannot_be_created() -> None:
    cluster = ControllerCluster(1)
    assert refused(cluster, asked("__cluster_metadata")) is ErrorCode.INVALID_REQUEST
    [result] = create(cluster, asked("__cluster_metadata"))
    text = "Creation of internal topic __cluster_metadata is prohibited."
    assert result.error_message == text, "Kafka's tests compare it"


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_invalid_partition_and_replica_counts_are_rejected(
    partitions: int, factor: int, code: ErrorCode
) -> None:
    assert refused(ControllerCluster(2), asked("t", partitions, factor)) is code


def test_creation_fails_without_a_live_broker() -> None:
    cluster = ControllerCluster(1)
    cluster.kill(0)
    assert refused(cluster, asked()) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_request_for_too_many_partitions_is_rejected() -> None:
    cluster = ControllerCluster(1)
    for result in create(cluster, asked("t", 9_999), asked("u", 2)):
        assert result.error_code == ErrorCode.POLICY_VIOLATION
    assert cluster.image.topics.names() == []


def test_ten_thousand_partitions_are_created_in_one_batch() -> None:
    cluster = ControllerCluster(3)
    (result,) = create(cluster, asked("t", 10_000, 1))
    assert result.error_code == 0
    assert cluster.image.topics.partition_count == 10_000


def test_configurations_are_written_and_returned() -> None:
    cluster = ControllerCluster(1)
    configs = [CreatableTopicConfig("retention.ms", "5000")]
    (result,) = create(cluster, asked("t", configs=configs))
    assert cluster.image.configs.of(ConfigResource(2, "t"))["retention.ms"] == "5000"
    replies = {entry.name: entry for entry in result.configs}
    assert replies["retention.ms"].value == "5000" and replies["retention.ms"].config_source == 1
    assert replies["cleanup.policy"].config_source == 5
    assert list(replies) == sorted(replies)


@pytest.mark.parametrize(
    ("key", "value"),
    [("retention.ms", "-5"), ("no.such.key", "1"), ("retention.ms", None), ("retention.ms", "x")],
)
def test_invalid_configurations_are_rejected(key: str, value: str | None) -> None:
    topic = asked("t", configs=[CreatableTopicConfig(key, value)])
    assert refused(ControllerCluster(1), topic) is ErrorCode.INVALID_CONFIG


def test_conflicting_configurations_are_rejected() -> None:
    configs = [
        CreatableTopicConfig("min.compaction.lag.ms", "9"),
        CreatableTopicConfig("max.compaction.lag.ms", "8"),
    ]
    assert refused(ControllerCluster(1), asked("t", configs=configs)) is ErrorCode.INVALID_CONFIG


def test_configurations_are_hidden_without_permission() -> None:
    cluster = ControllerCluster(1)
    (result,) = create(cluster, asked(), context=replace(cluster.topics, describable=()))
    assert result.error_code == 0
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (result.num_partitions, result.configs) == (-1, [])


def test_creation_is_charged_per_partition() -> None:
    cluster = ControllerCluster(1)
    charged: list[int] = []

    def quota(changes: int) -> Refusal | None:
        charged.append(changes)
        return QUOTA if changes > 3 else None

    context = replace(cluster.topics, quota=quota)
    assert refused(cluster, asked("t", 4), context) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert create(cluster, asked("t", 3), context=context)[0].error_code == 0
    assert charged == [4, 3]


# -- assigned replicas ----------------------------------------------------------------------


def by_name(*replicas: list[int], **more: object) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(i, r) for i, r in enumerate(replicas)]
    return CreatableTopic(
        **{
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            **more,
        }
    )


def test_assigned_replicas_are_used_and_live_ones_are_in_sync() -> None:
    cluster = ControllerCluster(3)
    cluster.kill(2)
    create(cluster, by_name([2, 0], [1, 2]))
    assert [p.replicas for p in map(cluster.topic("t").partitions.get, (0, 1))] == [(2, 0), (1, 2)]
    assert [p.isr for p in map(cluster.topic("t").partitions.get, (0, 1))] == [(0,), (1,)]
    assert cluster.partition("t", 0).leader == 0


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (by_name([0], num_partitions=1), ErrorCode.INVALID_REQUEST),
        (by_name([0], replication_factor=1), ErrorCode.INVALID_REQUEST),
        (by_name([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_name([0, 0]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_name([0, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_name([0], [0, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_name([2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            by_name(assignments=[CreatableReplicaAssignment(1, [0])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            by_name(assignments=[CreatableReplicaAssignment(0, [0])] * 2),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_invalid_assignments_are_rejected(topic: CreatableTopic, code: ErrorCode) -> None:
    cluster = ControllerCluster(3)
    cluster.kill(2)
    assert refused(cluster, topic) is code


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (
            by_name(assignments=[CreatableReplicaAssignment(1, [0])]),
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            by_name([0, 9]),
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            by_name([1, 1]),
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            by_name([0], [0, 1]),
            "The manual partition assignment includes a partition with 2 replica(s), but this is "
            "not consistent with previous partitions, which have 1 replica(s).",
        ),
        (asked("t", 10_001), "Excessively large number of partitions per request."),
        (
            asked("t", 1, configs=[CreatableTopicConfig("retention.ms", None)]),
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            asked("t", 1, configs=[CreatableTopicConfig("min.cleanable.dirty.ratio", "1.1")]),
            "Invalid value 1.1 for configuration min.cleanable.dirty.ratio: "
            "Value must be no more than 1",
        ),
    ],
)
def test_rejected_creation_is_explained_in_kafkas_words(topic: CreatableTopic, text: str) -> None:
    (result,) = create(ControllerCluster(2), topic)
    assert result.error_message == text


# -- CreatePartitions -----------------------------------------------------------------------


def grow(cluster: ControllerCluster, name: str, count: int, named=None, **more: object) -> int:
    assignments = None if named is None else [CreatePartitionsAssignment(r) for r in named]
    topics = [CreatePartitionsTopic(name, count, assignments)]
    request = CreatePartitionsRequest(topics=topics, **more)
    decision = decide_create_partitions(cluster.image, request, cluster.topics)
    (result,) = cluster.take(decision).results
    # Kafka returns no message for an unknown topic.
    is_explained = result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert is_explained == bool(result.error_message)
    return result.error_code


@pytest.mark.parametrize(
    ("count", "assignments", "text"),
    [
        (10_003, None, "Excessively large number of partitions per request."),
        (2, None, "Topic already has 2 partition(s)."),
        (1, None, "The topic t currently has 2 partition(s); 1 would not be an increase."),
        (
            4,
            [CreatePartitionsAssignment([0])],
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
    ],
)
def test_rejected_partitions_are_explained_in_kafkas_words(count, assignments, text) -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("t", 2))
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", count, assignments)])
    decision = decide_create_partitions(cluster.image, request, cluster.topics)
    (result,) = cluster.take(decision).results
    assert result.error_message == text


def test_new_partitions_have_the_topics_replication_factor() -> None:
    cluster = ControllerCluster(3)
    create(cluster, asked("t", 2, 2))
    old = dict(cluster.topic("t").partitions)
    assert grow(cluster, "t", 5) == 0
    partitions = cluster.topic("t").partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert all(len(p.replicas) == 2 for p in partitions.values())
    assert all(partitions[i] == old[i] for i in old)
    assert grow(cluster, "t", 6, [[2, 0]]) == 0
    assert cluster.partition("t", 5).replicas == (2, 0)


@pytest.mark.parametrize(
    ("name", "count", "named", "code"),
    [
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("none", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[0, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[0, 1], [1, 0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[0, 0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[0, 7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 20_000, None, ErrorCode.POLICY_VIOLATION),
        ("t", 2**31 - 1, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_invalid_create_partitions_is_rejected(
    name: str, count: int, named: list | None, code: ErrorCode
) -> None:
    cluster = ControllerCluster(4)
    create(cluster, by_name([0, 1], [1, 0]))
    cluster.kill(2)
    cluster.kill(3)
    before = cluster.image
    assert grow(cluster, name, count, named) == code
    assert cluster.image == before


def test_create_partitions_can_be_validated_only() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("t"))
    assert grow(cluster, "t", 3, validate_only=True) == 0
    assert cluster.topic("t").partition_ids() == [0]


def test_repeated_topic_gets_no_partitions() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("t"))
    topics = [CreatePartitionsTopic("t", n, None) for n in (2, 3)]
    decision = decide_create_partitions(
        cluster.image, CreatePartitionsRequest(topics=topics), cluster.topics
    )
    assert decision.records == []
    assert [r.error_code for r in decision.reply.results] == [ErrorCode.INVALID_REQUEST]


def test_create_partitions_and_deletion_are_charged() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("t", 3))
    charged: list[int] = []

    def quota(changes: int) -> Refusal | None:
        charged.append(changes)
        return QUOTA

    context = replace(cluster.topics, quota=quota)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", 5, None)])
    grown = decide_create_partitions(cluster.image, request, context)
    gone = decide_delete_topics(cluster.state, DeleteTopicsRequest(topic_names=["t"]), context, 5)
    assert grown.records == gone.records == []
    assert charged == [2, 3]
    assert gone.reply.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


# -- deletion -------------------------------------------------------------------------------


def delete(cluster: ControllerCluster, names=(), items=(), version: int = 6) -> list[ErrorCode]:
    request = DeleteTopicsRequest(topic_names=list(names), topics=list(items))
    decision = decide_delete_topics(cluster.state, request, cluster.topics, version)
    return [ErrorCode(r.error_code) for r in cluster.take(decision).responses]


def test_topics_are_deleted_by_name_and_by_id_with_their_configurations() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("a", configs=[CreatableTopicConfig("retention.ms", "1")]), asked("b"))
    by_id = DeleteTopicState(topic_id=cluster.topic("a").id)
    assert delete(cluster, items=[by_id, DeleteTopicState("b")]) == [ErrorCode.NONE] * 2
    assert cluster.image.topics.names() == []
    assert not cluster.image.configs.by_resource


def test_deletion_reply_contains_name_and_id() -> None:
    cluster = ControllerCluster(1)
    topic_id = create(cluster, asked("a"))[0].topic_id
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)])
    (result,) = decide_delete_topics(cluster.state, request, cluster.topics, 6).reply.responses
    assert (result.name, result.topic_id) == ("a", topic_id)


def test_deletion_of_an_unknown_topic_is_rejected() -> None:
    cluster = ControllerCluster(1)
    unknown = DeleteTopicState(topic_id=Uuid(b"x" * 16))
    assert delete(cluster, items=[DeleteTopicState("a"), unknown]) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_topic_given_by_name_and_id_is_not_deleted() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("a"), asked("b"), asked("c"))
    twice = [DeleteTopicState("a"), DeleteTopicState(topic_id=cluster.topic("a").id)]
    both = DeleteTopicState("b", cluster.topic("b").id)
    # The repeated topic has one result.
    assert (
        delete(cluster, items=[*twice, both, DeleteTopicState()]) == [ErrorCode.INVALID_REQUEST] * 3
    )
    assert delete(cluster, names=["c", "c"], version=5) == [ErrorCode.INVALID_REQUEST]
    assert cluster.image.topics.names() == ["a", "b", "c"]


def test_deletion_can_be_disabled() -> None:
    cluster = ControllerCluster(1)
    create(cluster, asked("a"))
    cluster.settings = replace(cluster.settings, is_topic_deletion_enabled=False)
    assert delete(cluster, names=["a"], version=5) == [ErrorCode.TOPIC_DELETION_DISABLED]
    assert delete(cluster, names=["a"], version=2) == [ErrorCode.INVALID_REQUEST]
    assert cluster.image.topics.names() == ["a"]


@given(st.lists(st.sampled_from(["a.b", "a_b", "ab", "c.", "c_", "_c"]), max_size=12))
def test_index_of_colliding_names_follows_any_history(names: list[str]) -> None:
    cluster = ControllerCluster(1)
    for name in names:
        # Every write compares the index with one computed from the image.
        if name in cluster.image.topics.ids:
            delete(cluster, names=[name])
        else:
            create(cluster, asked(name))
    alike = [name.replace(".", "_") for name in cluster.image.topics.names()]
    assert len(alike) == len(set(alike))


def test_equal_configurations_of_one_request_are_described_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request may create thousands of topics; each description takes half a millisecond."""
    described: list[dict[str, str]] = []

    def count(configs: dict[str, str], layers: Layers) -> list[Entry]:
        described.append(dict(configs))
        return describe_topic(configs, layers)

    monkeypatch.setattr(topic_creation, "describe_topic", count)
    cluster = ControllerCluster(1)
    short = [CreatableTopicConfig("retention.ms", "1000")]
    topics = [
        CreatableTopic(f"t{number}", 1, 1, configs=short if number % 2 else [])
        for number in range(10)
    ]
    request = CreateTopicsRequest(topics)
    reply = decide_create_topics(cluster.state, request, cluster.topics).reply
    assert described == [{}, {"retention.ms": "1000"}]
    shown = [
        {config.name: config.value for config in topic.configs or ()}["retention.ms"]
        for topic in reply.topics
    ]
    assert shown == ["604800000", "1000"] * 5
