"""Which parts of a change the active controller takes out of a request, by the client's rights."""

from controller_images import TOPIC, image_of, topic

from ottla.api.cluster.controller_authorization import (
    Describable,
    authorize_configs,
    authorize_create_partitions,
    authorize_create_topics,
    authorize_delete_topics,
)
from ottla.api.security.access import Access
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Address
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType, Subject

CALLER = Caller("User:alice", "c", Address("10.0.0.1", 5), "CLIENT")
REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
IMAGE = image_of(topic("mine"), topic("seen"), topic("hidden"))
UNKNOWN_ID = Uuid(b"0123456789abcdef")


class Rights:
    """An authorizer with a set of (operation, resource type, name) that are allowed."""

    is_enabled = True
    version = 0

    def __init__(self, *allowed: tuple[AclOperation, ResourceType, str]) -> None:
        self.allowed = set(allowed)

    def allows(
        self,
        subject: Subject,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_audited: bool = True,
    ) -> bool:
        assert subject.principal == "User:alice"
        return (operation, resource_type, name) in self.allowed


def on_topics(operation: AclOperation, *names: str) -> list[tuple[AclOperation, ResourceType, str]]:
    return [(operation, ResourceType.TOPIC, name) for name in names]


def on_cluster(operation: AclOperation) -> tuple[AclOperation, ResourceType, str]:
    return (operation, ResourceType.CLUSTER, CLUSTER_NAME)


# Deletes `mine`, sees `seen` and the free name `free`, and knows nothing of `hidden`.
DELETER = Access(
    Rights(
        *on_topics(AclOperation.DELETE, "mine"),
        *on_topics(AclOperation.DESCRIBE, "mine", "seen", "free"),
    )
)


def test_topics_are_deleted_by_name_only_with_the_right_to() -> None:
    request = DeleteTopicsRequest(topic_names=["mine", "seen", "hidden", "free", "nowhere"])
    left, results = authorize_delete_topics(DELETER, CALLER, request, IMAGE)
    # No topic is called `free`, which the caller may know; `nowhere` looks like `hidden`.
    assert left.topic_names == ["mine", "free"]
    assert [(row.name, row.error_code) for row in results] == [
        ("seen", REFUSED),
        ("hidden", REFUSED),
        ("nowhere", REFUSED),
    ]


def test_name_of_a_topic_deleted_by_id_is_shown_only_to_who_may_describe_it() -> None:
    ids = [IMAGE.topics.ids[name] for name in ("mine", "seen", "hidden")]
    states = [DeleteTopicState(None, topic_id) for topic_id in (*ids, UNKNOWN_ID)]
    left, results = authorize_delete_topics(
        DELETER, CALLER, DeleteTopicsRequest(topics=states), IMAGE
    )
    assert [state.topic_id for state in left.topics] == [ids[0], UNKNOWN_ID]
    assert [(row.name, row.topic_id, row.error_code) for row in results] == [
        ("seen", ids[1], REFUSED),
        (None, ids[2], REFUSED),
    ]


def test_invalid_deletions_stay_in_and_are_rejected_later() -> None:
    both = DeleteTopicState("hidden", IMAGE.topics.ids["hidden"])
    twice = DeleteTopicState("seen", ZERO_UUID)
    request = DeleteTopicsRequest(topics=[both, twice, twice])
    left, results = authorize_delete_topics(DELETER, CALLER, request, IMAGE)
    assert (left.topics, results) == ([both, twice, twice], [])


def test_right_to_delete_on_the_cluster_deletes_every_topic() -> None:
    request = DeleteTopicsRequest(topic_names=["hidden", "nowhere"])
    access = Access(Rights(on_cluster(AclOperation.DELETE)))
    assert authorize_delete_topics(access, CALLER, request, IMAGE) == (request, [])


def created(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in names])


def test_topics_are_created_by_the_right_on_the_topic_or_on_the_cluster() -> None:
    request = created("mine", "other", "twice", "twice", "__cluster_metadata")
    access = Access(Rights(*on_topics(AclOperation.CREATE, "mine")))
    left, results = authorize_create_topics(access, CALLER, request)
    assert [topic.name for topic in left.topics] == [
        "mine",
        "twice",
        "twice",
        "__cluster_metadata",
    ]
    assert [(row.name, row.error_code) for row in results] == [("other", REFUSED)]
    access = Access(Rights(on_cluster(AclOperation.CREATE)))
    assert authorize_create_topics(access, CALLER, request) == (request, [])


def test_partitions_are_added_only_with_the_right_to_alter_the_topic() -> None:
    names = ("mine", "other", "twice", "twice")
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name) for name in names])
    access = Access(Rights(*on_topics(AclOperation.ALTER, "mine")))
    left, results = authorize_create_partitions(access, CALLER, request)
    assert [topic.name for topic in left.topics] == ["mine", "twice", "twice"]
    assert [(row.name, row.error_code) for row in results] == [("other", REFUSED)]


def test_configurations_are_altered_by_the_rights_on_their_resources() -> None:
    kinds = [(TOPIC, "mine"), (TOPIC, "other"), (4, "1"), (32, "group")]
    resources = [AlterConfigsResource(resource_type=k, resource_name=n) for k, n in kinds]
    request = IncrementalAlterConfigsRequest(resources=resources)
    access = Access(Rights(*on_topics(AclOperation.ALTER_CONFIGS, "mine")))
    left, results = authorize_configs(access, CALLER, request)
    assert left.resources == resources[:1]
    assert [(code, kind, name) for code, _, kind, name in results] == [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC, "other"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 4, "1"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, 32, "group"),
    ]


def test_configs_of_created_topics_are_shown_only_with_the_right_to_describe_them() -> None:
    access = Access(Rights(*on_topics(AclOperation.DESCRIBE_CONFIGS, "mine")))
    describable = Describable(access, CALLER)
    assert "mine" in describable
    assert "other" not in describable
