"""A request of every API about one topic, group and transactional id, made from the schemas."""

import itertools
from collections.abc import Iterator
from typing import Any

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import request_class
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.delete_topics import DeleteTopicState
from ottla.protocol.messages.describe_configs import DescribeConfigsResource
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.schema import Kind, Message, Type, covers
from ottla.protocol.types import ZERO_UUID, Offset, Uuid
from ottla.protocol.uuids import uuid_text

TOPIC, GROUP, TRANSACTIONAL_ID = "secret-topic", "secret-group", "secret-id"

_TEXTS = {
    "group_id": GROUP,
    "group_ids": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "coordinator_keys": GROUP,
    "transactional_id": TRANSACTIONAL_ID,
    "transactional_ids": TRANSACTIONAL_ID,
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "member_id": "member",
    "protocol_type": "consumer",
    "host": "127.0.0.1",
    "principal": "User:somebody",
}
_NUMBERS = {"replica_id": -1, "timeout_ms": 5000, "acks": 1, "producer_epoch": 0, "count": 3}
_NOT_FILLED = {"state_filter", "types_filter", "states_filter", "producer_id_filters", "cursor"}
# Fields that would change what a request is about.
_MISSING = itertools.count()
_DEFAULT = {"forgotten_topics_data", "regex", "subscribed_topic_regex", "replica_state", "rack_id"}


def sample(key: ApiKey, version: int, topic_id: Uuid) -> Message:
    """Return a request that names the topic, group and transactional id wherever it can."""
    return _filled(request_class(key)(), version, topic_id, key)


def _filled(message: Any, version: int, topic_id: Uuid, key: ApiKey) -> Any:
    for field in message.SCHEMA.fields:
        if not covers(field.versions, version) or field.name in _NOT_FILLED | _DEFAULT:
            continue
        value = _value(field.name, field.type, (version, topic_id, key))
        if value is not None:
            setattr(message, field.name, value)
    return message


def _value(name: str, kind: Type, about: tuple[int, Uuid, ApiKey]) -> Any:
    _, topic_id, _ = about
    match kind.kind:
        case Kind.STRING:
            return _TEXTS.get(name, TOPIC)
        case Kind.UUID:
            return topic_id if "topic" in name else ZERO_UUID
        case Kind.RECORDS:
            return bytes(build_batch([Record(Offset(0), 1, None, b"v")]))
        case Kind.ARRAY:
            assert kind.element is not None
            element = _value(name, kind.element, about)
            if element is None and name.startswith("partition"):
                return [0]
            return None if element is None else [element]
        case Kind.STRUCT:
            assert kind.struct is not None
            return _filled(kind.struct(), *about)
        case Kind.INT8 | Kind.INT16 | Kind.INT32 | Kind.INT64:
            return _NUMBERS.get(name)
        case _:
            return None


def special(key: ApiKey, index: int, version: int, topic_id: Uuid) -> tuple[Message, int]:
    """Return the request to which a check with a condition applies, and its version."""
    request: Any = sample(key, version, topic_id)
    match key, index:
        case ApiKey.PRODUCE, 0:
            batch = build_batch(
                [Record(Offset(0), 1, None, b"v")],
                producer=Producer(1, 0, 0),
                is_transactional=True,
            )
            request.topic_data[0].partition_data[0].records = bytes(batch)
        case ApiKey.PRODUCE, _:
            request.transactional_id = None
        case ApiKey.FETCH, 1:
            request.replica_state.replica_id = 7
        case ApiKey.METADATA, index:
            name = TOPIC if index == 0 else f"missing-{next(_MISSING)}"
            request = MetadataRequest([MetadataRequestTopic(name=name)])
        case ApiKey.FIND_COORDINATOR, index:
            share = f"{GROUP}:{uuid_text(topic_id)}:0"
            request.key_type = index
            request.coordinator_keys = [(GROUP, TRANSACTIONAL_ID, share)[index]]
        case (
            ApiKey.DESCRIBE_CONFIGS | ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _,
        ):
            resource = DescribeConfigsResource
            if key is not ApiKey.DESCRIBE_CONFIGS:
                resource = type(request.resources[0])
            named = ((2, TOPIC), (32, GROUP), (4, "1"), (8, "1"))
            request.resources = [resource(*each) for each in named]
        case ApiKey.INIT_PRODUCER_ID, index:
            request.transactional_id = TRANSACTIONAL_ID if index == 0 else None
            request.transaction_timeout_ms = 10_000
            request.producer_id, request.producer_epoch = -1, -1
        case ApiKey.ADD_PARTITIONS_TO_TXN, 0 | 1:
            version = 3
            request = sample(key, version, topic_id)
            assert isinstance(request, AddPartitionsToTxnRequest)
        case ApiKey.CREATE_TOPICS, index:
            request.topics[0].name = "new-topic"
            request.topics[0].num_partitions = request.topics[0].replication_factor = 1
            request.topics[0].assignments = request.topics[0].configs = []
            request.validate_only = True
        case ApiKey.OFFSET_COMMIT | ApiKey.TXN_OFFSET_COMMIT, _:
            request.member_id, request.generation_id_or_member_epoch = "", -1
            request.group_instance_id = None
        case ApiKey.DELETE_TOPICS, _:
            request.topics = [DeleteTopicState(name=TOPIC)]
            request.topic_names = []
        case ApiKey.CREATE_ACLS, _:
            request.creations[0].resource_type = 0
        case _:
            pass
    return request, version


def codes(message: Any) -> Iterator[ErrorCode]:
    """Yield every error code in a reply."""
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield ErrorCode(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from codes(each)


def texts(message: Any) -> Iterator[str]:
    """Yield every text in a reply."""
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from texts(each)
            elif isinstance(each, str):
                yield each
