"""Authorizes the parts of a change that the active controller decides: topics and configurations.

Each function takes out of a request what its client may not do, and returns the results to add to
the reply; the rest is decided as usual. Kafka's rules: `ottla.api.security.authorization_rules`.
"""

from collections import Counter
from typing import Any, TypeVar

from msgspec.structs import replace

from ottla.api.cluster.long_changes import Authorize, all_authorized
from ottla.api.security.access import Access
from ottla.api.surface.routes import Caller
from ottla.controller.topic_creation import CLUSTER_METADATA_TOPIC
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.types import ZERO_UUID
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType

_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_MESSAGE = "Authorization failed."

Configs = TypeVar(
    "Configs",
    alter_configs.AlterConfigsRequest,
    incremental_alter_configs.IncrementalAlterConfigsRequest,
)


class Describable:
    """The topics whose configurations a client may see, as a container of names."""

    def __init__(self, access: Access, caller: Caller) -> None:
        self._access = access
        self._caller = caller

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, str)
        return self._access.allows(
            self._caller,
            AclOperation.DESCRIBE_CONFIGS,
            ResourceType.TOPIC,
            name,
            is_audited=False,
        )


def authorize_create_topics(
    access: Access, caller: Caller, request: CreateTopicsRequest
) -> tuple[CreateTopicsRequest, list[CreatableTopicResult]]:
    """Take out the topics that the client may not create.

    A name that is there twice, or that nobody can create, stays in, and is an invalid request.
    """
    names = Counter(topic.name for topic in request.topics)
    refused = {
        name
        for name, times in names.items()
        if times == 1
        and name != CLUSTER_METADATA_TOPIC
        and not access.may_create_topic(caller, name)
    }
    if not refused:
        return request, []
    results = [
        CreatableTopicResult(name=name, error_code=_REFUSED, error_message=_MESSAGE)
        for name in names
        if name in refused
    ]
    allowed = [topic for topic in request.topics if topic.name not in refused]
    return replace(request, topics=allowed), results


def authorize_create_partitions(
    access: Access, caller: Caller, request: CreatePartitionsRequest
) -> tuple[CreatePartitionsRequest, list[CreatePartitionsTopicResult]]:
    """Take out the topics that the client may not alter; one that is there twice stays in."""
    names = Counter(topic.name for topic in request.topics)
    refused = {
        name
        for name, times in names.items()
        if times == 1 and not access.allows(caller, AclOperation.ALTER, ResourceType.TOPIC, name)
    }
    if not refused:
        return request, []
    results = [
        CreatePartitionsTopicResult(name, _REFUSED, None) for name in names if name in refused
    ]
    allowed = [topic for topic in request.topics if topic.name not in refused]
    return replace(request, topics=allowed), results


def authorize_delete_topics(
    access: Access, caller: Caller, request: DeleteTopicsRequest, image: Image
) -> tuple[DeleteTopicsRequest, list[DeletableTopicResult]]:
    """Take out the topics that the client may not delete.

    A client that may describe a name learns that no topic has it. A topic given by an id that no
    topic has stays in as well; the name of one that has is in its error only if the client may
    describe the topic. What is there twice, or has both a name and an id, stays in, and is an
    invalid request.
    """
    delete, describe = AclOperation.DELETE, AclOperation.DESCRIBE
    if access.allows(caller, delete, ResourceType.CLUSTER, CLUSTER_NAME, is_audited=False):
        return request, []
    results: list[DeletableTopicResult] = []
    named = [*map(DeleteTopicState, request.topic_names), *request.topics]
    times = Counter((item.name, item.topic_id) for item in named)

    def is_allowed(item: DeleteTopicState) -> bool:
        has_both = item.name is not None and item.topic_id != ZERO_UUID
        if has_both or times[item.name, item.topic_id] > 1:
            return True
        by_id = image.topics.by_id.get(item.topic_id)
        if item.name is None and by_id is None:
            return True
        name = item.name if item.name is not None else by_id.name if by_id is not None else ""
        may_describe = access.allows(caller, describe, ResourceType.TOPIC, name, is_audited=False)
        may_delete = access.allows(caller, delete, ResourceType.TOPIC, name)
        if item.name is None:
            is_refused = not may_delete
        else:
            is_refused = not may_describe or (name in image.topics.ids and not may_delete)
        if is_refused:
            shown = name if item.name is not None or may_describe else None
            results.append(DeletableTopicResult(shown, item.topic_id, _REFUSED, _MESSAGE))
        return not is_refused

    names = [each for each in request.topic_names if is_allowed(DeleteTopicState(name=each))]
    topics = [each for each in request.topics if is_allowed(each)]
    return replace(request, topic_names=names, topics=topics), results


def authorize_configs(
    access: Access, caller: Caller, request: Configs
) -> tuple[Configs, list[tuple[ErrorCode, str, int, str]]]:
    """Take out the resources that the client may not configure.

    Their results are an error code, its message, and the type and name of the resource.
    """
    kept = []
    results = []
    for each in request.resources:
        kind, name = each.resource_type, each.resource_name
        code = access.refuse_configs(caller, AclOperation.ALTER_CONFIGS, kind, name)
        if code is None:
            kept.append(each)
        else:
            results.append((code, _MESSAGE, kind, name))
    return replace(request, resources=kept), results


def authorize_rows(key: ApiKey, access: Access, caller: Caller, image: Image) -> Authorize:
    """Return how an API takes out rows; most of them authorize the whole request before."""
    match key:
        case ApiKey.CREATE_TOPICS:
            return lambda request: authorize_create_topics(access, caller, request)
        case ApiKey.DELETE_TOPICS:
            return lambda request: authorize_delete_topics(access, caller, request, image)
        case ApiKey.CREATE_PARTITIONS:
            return lambda request: authorize_create_partitions(access, caller, request)
        case ApiKey.ALTER_CONFIGS:
            return lambda request: _config_results(access, caller, request, alter_configs)
        case ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return lambda request: _config_results(
                access, caller, request, incremental_alter_configs
            )
        case _:
            return all_authorized


# Of two modules with classes of the same names, so none can be annotated.
def _config_results(access: Access, caller: Caller, request: Any, messages: Any) -> Any:  # noqa: ANN401
    kept, refused = authorize_configs(access, caller, request)
    return kept, [messages.AlterConfigsResourceResponse(*each) for each in refused]
