"""CreatePartitions and DeleteTopics: changes of existing topics."""

from collections import Counter
from collections.abc import Iterable

from ottla.controller.decision import RECORDS_MAX, ControllerState, Decision, Refusal
from ottla.controller.placement import place
from ottla.controller.topic_creation import (
    PARTITIONS_MAX,
    TOO_MANY_PARTITIONS,
    TopicContext,
    new_partitions,
    partition_records,
    refuse_assignments,
)
from ottla.metadata.image import Image
from ottla.metadata.topics import Topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import RemoveTopicRecord
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.types import ZERO_UUID, Uuid

# -- CreatePartitions -----------------------------------------------------------------------


def decide_create_partitions(
    image: Image, request: CreatePartitionsRequest, context: TopicContext
) -> Decision[CreatePartitionsResponse]:
    """Add partitions to topics; with validate-only, return whether they could be added."""
    times = Counter(topic.name for topic in request.topics)
    records: list[Versioned] = []
    reply = CreatePartitionsResponse()
    for name, requested in {requested.name: requested for requested in request.topics}.items():
        outcome: list[Versioned] | Refusal
        if times[name] > 1:
            outcome = Refusal(ErrorCode.INVALID_REQUEST, f"topic {name[:300]} occurs twice")
        else:
            outcome = _grow(image, requested, context)
        if isinstance(outcome, list) and len(records) + len(outcome) > RECORDS_MAX:
            outcome = Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        if isinstance(outcome, list):
            records += outcome
            reply.results.append(CreatePartitionsTopicResult(name))
        else:
            result = CreatePartitionsTopicResult(name, int(outcome.code), outcome.message or None)
            reply.results.append(result)
    return Decision([] if request.validate_only else records, reply)


def _grow(
    image: Image, requested: CreatePartitionsTopic, context: TopicContext
) -> list[Versioned] | Refusal:
    topic = image.topics.named(requested.name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    count = len(topic.partitions)
    more = requested.count - count
    if more <= 0:
        text = f"Topic already has {count} partition(s)."
        if more:
            text = (
                f"The topic {topic.name} currently has {count} partition(s); "
                f"{requested.count} would not be an increase."
            )
        return Refusal(ErrorCode.INVALID_PARTITIONS, text)
    if more > PARTITIONS_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
    replicas = _more_replicas(image, topic, requested, context)
    if isinstance(replicas, Refusal):
        return replicas
    partitions = new_partitions(image, replicas)
    if isinstance(partitions, Refusal):
        return partitions
    return context.quota(more) or partition_records(image, topic.id, count, partitions)


def _more_replicas(
    image: Image, topic: Topic, requested: CreatePartitionsTopic, context: TopicContext
) -> list[tuple[int, ...]] | Refusal:
    more = requested.count - len(topic.partitions)
    factor = len(topic.partitions[min(topic.partitions)].replicas)
    if requested.assignments is None:
        listener = context.settings.inter_broker_listener
        return place(image, more, factor, context.random, listener)
    replicas = [tuple(given.broker_ids) for given in requested.assignments]
    if len(replicas) != more:
        text = (
            f"Attempted to add {more} additional partition(s), but only {len(replicas)} "
            "assignment(s) were specified."
        )
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return refuse_assignments(image, replicas, factor) or replicas


# -- DeleteTopics ---------------------------------------------------------------------------


def decide_delete_topics(
    state: ControllerState, request: DeleteTopicsRequest, context: TopicContext, version: int
) -> Decision[DeleteTopicsResponse]:
    """Delete topics by name or id, each on its own; one that occurs twice is rejected, once.

    ``version`` is that of the request: before 3 it does not know that deletion can be disabled.
    """
    items_requested = [DeleteTopicState(name=name) for name in request.topic_names] + request.topics
    reply = DeleteTopicsResponse()
    records: list[Versioned] = []
    chosen = Counter(
        _chosen(state.image, item) for item in items_requested if _refuse_form(item) is None
    )
    both = _named_both_ways(state.image, items_requested)
    refused: set[Uuid | str | None] = set()
    for item in items_requested:
        topic = _find(state.image, item)
        key = _chosen(state.image, item)
        if _refuse_form(item) is None and chosen[key] > 1:
            if key in refused:
                continue
            refused.add(key)
        refusal = _refuse_off(context, version) or _refuse_item(item, chosen, state.image)
        if refusal is None and topic is None:
            is_by_name = item.name is not None
            refusal = _unknown(is_by_name)
        if refusal is None and topic is not None:
            refusal = context.quota(len(topic.partitions))
        if refusal is None and len(records) >= RECORDS_MAX:
            refusal = Refusal(ErrorCode.POLICY_VIOLATION, "the request is too large")
        result = _result(item, topic, refusal)
        if topic is not None and chosen[key] > 1 and key in both:
            result.name, result.topic_id = topic.name, topic.id  # as in Kafka: both are returned
        reply.responses.append(result)
        if refusal is None and topic is not None:
            records.append(Versioned(RemoveTopicRecord(topic.id), 0))
    return Decision(records, reply)


def _refuse_off(context: TopicContext, version: int) -> Refusal | None:
    if context.settings.is_topic_deletion_enabled:
        return None
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    return Refusal(code, "delete.topic.enable is false")


def _refuse_item(
    item: DeleteTopicState, chosen: Counter[Uuid | str | None], image: Image
) -> Refusal | None:
    if (refusal := _refuse_form(item)) is not None:
        return refusal
    if chosen[_chosen(image, item)] > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "the topic occurs more than once")
    return None


def _refuse_form(item: DeleteTopicState) -> Refusal | None:
    if item.name is None and item.topic_id == ZERO_UUID:
        return Refusal(ErrorCode.INVALID_REQUEST, "neither a name nor an id was given")
    if item.name is not None and item.topic_id != ZERO_UUID:
        return Refusal(ErrorCode.INVALID_REQUEST, "both a name and an id were given")
    return None


def _find(image: Image, item: DeleteTopicState) -> Topic | None:
    if item.name is not None:
        return image.topics.named(item.name)
    return image.topics.by_id.get(item.topic_id)


def _chosen(image: Image, item: DeleteTopicState) -> Uuid | str | None:
    """Return what identifies the topic, whether it is given by name or by id."""
    topic = _find(image, item)
    if topic is not None:
        return topic.id
    return item.topic_id if item.name is None else item.name


def _named_both_ways(
    image: Image, items_requested: Iterable[DeleteTopicState]
) -> set[Uuid | str | None]:
    """Return the topics that occur by name and by id, in two items of one request."""
    items = [item for item in items_requested if _refuse_form(item) is None]
    by_name = {_chosen(image, item) for item in items if item.name is not None}
    return by_name & {_chosen(image, item) for item in items if item.name is None}


def _unknown(is_by_name: bool) -> Refusal:
    if is_by_name:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
    return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")


def _result(
    item: DeleteTopicState, topic: Topic | None, refusal: Refusal | None
) -> DeletableTopicResult:
    if refusal is None and topic is not None:
        return DeletableTopicResult(topic.name, topic.id)
    assert refusal is not None
    return DeletableTopicResult(item.name, item.topic_id, int(refusal.code), refusal.message)
