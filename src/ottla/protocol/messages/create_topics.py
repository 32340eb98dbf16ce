"""CreateTopics: the messages of api key 19, versions 2-7.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class CreatableReplicaAssignment(Message):
    """Part of the message, in versions 2-7."""

    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (2, 7)),
            Field("broker_ids", array_of(INT32), (2, 7)),
        ),
    )


class CreatableTopicConfig(Message):
    """Part of the message, in versions 2-7."""

    name: str = ""
    value: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (2, 7)),
            Field("value", STRING, (2, 7), nullable=(2, 7)),
        ),
    )


class CreatableTopic(Message):
    """Part of the message, in versions 2-7."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (2, 7)),
            Field("num_partitions", INT32, (2, 7)),
            Field("replication_factor", INT16, (2, 7)),
            Field("assignments", array_of(CreatableReplicaAssignment), (2, 7)),
            Field("configs", array_of(CreatableTopicConfig), (2, 7)),
        ),
    )


class CreateTopicsRequest(Message):
    """CreateTopics request, versions 2-7, flexible from 5."""

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 7),
        flexible=5,
        api_key=19,
        fields=(
            Field("topics", array_of(CreatableTopic), (2, 7)),
            Field("timeout_ms", INT32, (2, 7)),
            Field("validate_only", BOOL, (2, 7)),
        ),
    )


class CreatableTopicConfigs(Message):
    """Part of the message, in versions 5-7."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (5, 7)),
            Field("value", STRING, (5, 7), nullable=(5, 7)),
            Field("read_only", BOOL, (5, 7)),
            Field("config_source", INT8, (5, 7)),
            Field("is_sensitive", BOOL, (5, 7)),
        ),
    )


class CreatableTopicResult(Message):
    """Part of the message, in versions 2-7."""

    name: str = ""
    topic_id: Uuid = ZERO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (2, 7)),
            Field("topic_id", UUID, (7, 7)),
            Field("error_code", INT16, (2, 7)),
            Field("error_message", STRING, (2, 7), nullable=(2, 7)),
            Field("topic_config_error_code", INT16, (5, 7), tag=0, tagged=(5, 7)),
            Field("num_partitions", INT32, (5, 7)),
            Field("replication_factor", INT16, (5, 7)),
            Field("configs", array_of(CreatableTopicConfigs), (5, 7), nullable=(5, 7)),
        ),
    )


class CreateTopicsResponse(Message):
    """CreateTopics response, versions 2-7, flexible from 5."""

    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 7),
        flexible=5,
        api_key=19,
        fields=(
            Field("throttle_time_ms", INT32, (2, 7)),
            Field("topics", array_of(CreatableTopicResult), (2, 7)),
        ),
    )
