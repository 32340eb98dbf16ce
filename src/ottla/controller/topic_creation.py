"""CreateTopics. Each topic of a request succeeds or fails on its own.

A topic is created by its record, then its configurations, then its partitions, all in one batch.
Replicas are placed (`placement.py`) or given in the request; those that are alive are in sync from
the start, and the first of them leads.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from ottla.config.describe import describe_topic
from ottla.controller.config_rules import (
    refuse_long_value,
    refuse_schema_validation,
    refuse_topic_configs,
)
from ottla.controller.decision import (
    BATCH_RECORDS_MAX,
    ROWS_PER_STEP,
    ControllerState,
    Decision,
    Refusal,
    Steps,
    finish,
)
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import default_directory
from ottla.controller.partition_index import may_collide, unified
from ottla.controller.placement import place
from ottla.controller.reassignments import refuse_assignment
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.metadata.snapshot_records import partition_record
from ottla.metadata.topics import DIRECTORY_MIGRATING, PartitionRegistration
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import ConfigRecord, TopicRecord
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.types import TopicIdPartition, Uuid
from ottla.runtime.ports import Random
from ottla.storage.directory.partition_names import is_topic_name

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
# Stands for the configured default number of partitions or replicas.
DEFAULT = -1
# As many as Kafka creates for one request.
PARTITIONS_MAX = 10_000
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."  # Kafka's text

Quota = Callable[[int], Refusal | None]
"""Charges a number of partition changes to the client (KIP-599); an error if it is too many."""


def unlimited(changes: int) -> Refusal | None:
    """Charge nothing."""
    return None


class TopicContext(msgspec.Struct, frozen=True):
    """The input of decisions about topics beside the state.

    ``describable`` are the topics whose configurations the client may see, None for all.
    """

    settings: DecisionSettings
    random: Random
    quota: Quota = unlimited
    describable: Container[str] | None = None


class _Configurations:
    """Checks and describes the configurations of new topics, equal ones only once.

    A request may create thousands of topics, and a described topic has about fifty rows.
    """

    def __init__(self, image: Image, context: TopicContext) -> None:
        self._image = image
        self._layers = context.settings.configs.layers(image)
        self._checked: dict[tuple[tuple[str, str], ...], Refusal | None] = {}
        self._described: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def of(self, topic: CreatableTopic) -> dict[str, str] | Refusal:
        """Return the valid configuration of a topic."""
        missing = [config.name for config in topic.configs if config.value is None]
        if missing:
            text = f"Null value not supported for topic configs: {', '.join(missing)}"
            return Refusal(ErrorCode.INVALID_CONFIG, text)
        configs = {
            config.name: config.value for config in topic.configs if config.value is not None
        }
        key = tuple(configs.items())
        if key not in self._checked:
            refusal = refuse_long_value(configs)
            self._checked[key] = (
                refusal
                or refuse_topic_configs(configs, {}, self._layers)
                or refuse_schema_validation(self._image, configs, {})
            )
        return self._checked[key] or configs

    def described(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return every key of a topic; its own values as they were sent."""
        key = tuple(configs.items())
        if key not in self._described:
            entries = describe_topic(configs, self._layers)
            self._described[key] = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=None if entry.is_sensitive else configs.get(entry.name, entry.value),
                    read_only=entry.is_read_only,
                    config_source=int(entry.source),
                    is_sensitive=entry.is_sensitive,
                )
                for entry in sorted(entries, key=lambda entry: entry.name)
            ]
        return list(self._described[key])


class _Created(msgspec.Struct, frozen=True):
    """A topic that can be created: its records and its result."""

    records: list[Versioned]
    result: CreatableTopicResult


def decide_create_topics(
    state: ControllerState, request: CreateTopicsRequest, context: TopicContext
) -> Decision[CreateTopicsResponse]:
    """Create the valid topics; with validate-only, return what would be created."""
    return finish(create_topics_steps(state, request, context))


def create_topics_steps(
    state: ControllerState, request: CreateTopicsRequest, context: TopicContext
) -> Steps[Decision[CreateTopicsResponse]]:
    """Decide as `decide_create_topics` does, in steps."""
    names = Counter(topic.name for topic in request.topics)
    too_many = _refuse_size(request, context)
    records: list[Versioned] = []
    reply = CreateTopicsResponse()
    configurations = _Configurations(state.image, context)
    stop = ROWS_PER_STEP
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        if len(records) + len(reply.topics) >= stop:
            stop += ROWS_PER_STEP
            yield
        refusal = too_many or _refuse_name(state, name, names[name])
        outcome = refusal or _create(state.image, topic, context, configurations)
        if (
            isinstance(outcome, _Created)
            # They share one batch, with one more record for the request's identity.
            and len(records) + len(outcome.records) >= BATCH_RECORDS_MAX
        ):
            outcome = Refusal(ErrorCode.POLICY_VIOLATION, "the request is too large")
        if isinstance(outcome, _Created):
            records += outcome.records
            reply.topics.append(outcome.result)
        else:
            reply.topics.append(
                CreatableTopicResult(
                    name=name, error_code=int(outcome.code), error_message=outcome.message
                )
            )
    return Decision([] if request.validate_only else records, reply)


def _refuse_size(request: CreateTopicsRequest, context: TopicContext) -> Refusal | None:
    total = sum(_partition_count(topic, context.settings) for topic in request.topics)
    if total > PARTITIONS_MAX:
        return Refusal(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
    return None


def _partition_count(topic: CreatableTopic, settings: DecisionSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == DEFAULT:
        return settings.partitions_default
    return max(topic.num_partitions, 0)


def _refuse_name(state: ControllerState, name: str, times: int) -> Refusal | None:
    if times > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, f"topic {name[:300]} occurs {times} times")
    if name == CLUSTER_METADATA_TOPIC:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )
    if not is_topic_name(name):
        text = (
            f"'{name[:300]}' is no valid topic name: 1 to 249 letters, digits, dots, underscores "
            "and dashes, and neither '.' nor '..'"
        )
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    if name in state.image.topics.ids:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    alike = state.index.alike.get(unified(name), ()) if may_collide(name) else ()
    if alike:
        text = f"topic {name} collides with topic {alike[0]} in metric names"
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    return None


def _create(
    image: Image, topic: CreatableTopic, context: TopicContext, configurations: _Configurations
) -> _Created | Refusal:
    configs = configurations.of(topic)
    if isinstance(configs, Refusal):
        return configs
    replicas = _replicas(image, topic, context)
    if isinstance(replicas, Refusal):
        return replicas
    partitions = new_partitions(image, replicas)
    if isinstance(partitions, Refusal):
        return partitions
    refusal = context.quota(len(partitions))
    if refusal is not None:
        return refusal
    topic_id = context.random.uuid()
    records = [Versioned(TopicRecord(topic.name, topic_id), 0)]
    records += [
        Versioned(ConfigRecord(int(ConfigResourceType.TOPIC), topic.name, key, value), 0)
        for key, value in configs.items()
    ]
    records += partition_records(image, topic_id, 0, partitions)
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if context.describable is None or topic.name in context.describable:
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0].replicas)
        result.configs = configurations.described(configs)
    else:
        result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return _Created(records, result)


def restore_configs(
    image: Image, reply: CreateTopicsResponse, context: TopicContext
) -> CreateTopicsResponse:
    """Fill in the configurations of created topics, as they are now."""
    configurations = _Configurations(image, context)
    for result in reply.topics:
        is_there = image.topics.ids.get(result.name) == result.topic_id
        if is_there and not result.error_code and not result.topic_config_error_code:
            resource = ConfigResource(ConfigResourceType.TOPIC, result.name)
            result.configs = configurations.described(image.configs.of(resource))
    return reply


def _replicas(
    image: Image, topic: CreatableTopic, context: TopicContext
) -> list[tuple[int, ...]] | Refusal:
    if topic.assignments:
        return _named_replicas(image, topic)
    settings = context.settings
    if topic.replication_factor < DEFAULT or topic.replication_factor == 0:
        text = "the replication factor must be at least 1, or -1 for the default"
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if topic.num_partitions < DEFAULT or topic.num_partitions == 0:
        text = "the number of partitions must be at least 1, or -1 for the default"
        return Refusal(ErrorCode.INVALID_PARTITIONS, text)
    factor = topic.replication_factor
    if factor == DEFAULT:
        factor = settings.replication_factor_default
    count = _partition_count(topic, settings)
    return place(image, count, factor, context.random, settings.inter_broker_listener)


def _named_replicas(image: Image, topic: CreatableTopic) -> list[tuple[int, ...]] | Refusal:
    if topic.replication_factor != DEFAULT or topic.num_partitions != DEFAULT:
        text = "with an assignment, the number of partitions and of replicas must both be -1"
        return Refusal(ErrorCode.INVALID_REQUEST, text)
    named = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(named) != len(topic.assignments) or sorted(named) != list(range(len(named))):
        text = "partitions should be a consecutive 0-based integer sequence"
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    replicas = [named[partition_id] for partition_id in range(len(named))]
    return refuse_assignments(image, replicas, len(replicas[0])) or replicas


def refuse_assignments(
    image: Image, assignments: Sequence[Sequence[int]], replication_factor: int
) -> Refusal | None:
    """Return what is wrong with the replicas requested for new partitions, or None."""
    for replicas in assignments:
        refusal = refuse_assignment(image, replicas, replication_factor)
        if refusal is not None:
            return refusal
        if not any(image.cluster.is_active(replica) for replica in replicas):
            text = f"none of the brokers {list(replicas)} is alive"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return None


def new_partitions(
    image: Image, assignments: Sequence[tuple[int, ...]]
) -> list[PartitionRegistration] | Refusal:
    """Return partitions in their initial state."""
    has_directories = image.metadata_version().is_directory_assignment_supported()
    partitions: list[PartitionRegistration] = []
    for replicas in assignments:
        isr = tuple(replica for replica in replicas if image.cluster.is_active(replica))
        if not isr:
            text = f"none of the brokers {list(replicas)} is alive"
            return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        directories = tuple(
            default_directory(image, replica) if has_directories else DIRECTORY_MIGRATING
            for replica in replicas
        )
        partitions.append(PartitionRegistration(replicas, isr, isr[0], 0, 0, directories))
    return partitions


def partition_records(
    image: Image, topic_id: Uuid, first: int, partitions: Sequence[PartitionRegistration]
) -> list[Versioned]:
    """Return the records of new partitions, numbered from ``first`` on."""
    level = image.metadata_version()
    return [
        partition_record(TopicIdPartition(topic_id, partition_id), partition, level)
        for partition_id, partition in enumerate(partitions, first)
    ]
