"""AlterPartition: the messages of api key 56, versions 2-3.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, INT64, UUID, Field, Message, Schema, array_of
from ottla.protocol.types import ZERO_UUID, Uuid


class BrokerState(Message):
    """Part of the message, in versions 3-3."""

    broker_id: int = 0
    broker_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("broker_id", INT32, (3, 3)),
            Field("broker_epoch", INT64, (3, 3)),
        ),
    )


class RequestPartitionData(Message):
    """Part of the message, in versions 2-3."""

    partition_index: int = 0
    leader_epoch: int = 0
    new_isr: list[int] = field(default_factory=list)
    new_isr_with_epochs: list[BrokerState] = field(default_factory=list)
    leader_recovery_state: int = 0
    partition_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (2, 3)),
            Field("leader_epoch", INT32, (2, 3)),
            Field("new_isr", array_of(INT32), (2, 2)),
            Field("new_isr_with_epochs", array_of(BrokerState), (3, 3)),
            Field("leader_recovery_state", INT8, (2, 3)),
            Field("partition_epoch", INT32, (2, 3)),
        ),
    )


class RequestTopicData(Message):
    """Part of the message, in versions 2-3."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[RequestPartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (2, 3)),
            Field("partitions", array_of(RequestPartitionData), (2, 3)),
        ),
    )


class AlterPartitionRequest(Message):
    """AlterPartition request, versions 2-3, flexible from 2."""

    broker_id: int = 0
    broker_epoch: int = -1
    topics: list[RequestTopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 3),
        flexible=2,
        api_key=56,
        fields=(
            Field("broker_id", INT32, (2, 3)),
            Field("broker_epoch", INT64, (2, 3)),
            Field("topics", array_of(RequestTopicData), (2, 3)),
        ),
    )


class ResponsePartitionData(Message):
    """Part of the message, in versions 2-3."""

    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: list[int] = field(default_factory=list)
    leader_recovery_state: int = 0
    partition_epoch: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (2, 3)),
            Field("error_code", INT16, (2, 3)),
            Field("leader_id", INT32, (2, 3)),
            Field("leader_epoch", INT32, (2, 3)),
            Field("isr", array_of(INT32), (2, 3)),
            Field("leader_recovery_state", INT8, (2, 3)),
            Field("partition_epoch", INT32, (2, 3)),
        ),
    )


class ResponseTopicData(Message):
    """Part of the message, in versions 2-3."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[ResponsePartitionData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_id", UUID, (2, 3)),
            Field("partitions", array_of(ResponsePartitionData), (2, 3)),
        ),
    )


class AlterPartitionResponse(Message):
    """AlterPartition response, versions 2-3, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[ResponseTopicData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(2, 3),
        flexible=2,
        api_key=56,
        fields=(
            Field("throttle_time_ms", INT32, (2, 3)),
            Field("error_code", INT16, (2, 3)),
            Field("topics", array_of(ResponseTopicData), (2, 3)),
        ),
    )
