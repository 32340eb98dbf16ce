"""DeleteRecords: the messages of api key 21, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, INT64, STRING, Field, Message, Schema, array_of


class DeleteRecordsPartition(Message):
    """Part of the message, in versions 0-2."""

    partition_index: int = 0
    offset: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 2)),
            Field("offset", INT64, (0, 2)),
        ),
    )


class DeleteRecordsTopic(Message):
    """Part of the message, in versions 0-2."""

    name: str = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 2)),
            Field("partitions", array_of(DeleteRecordsPartition), (0, 2)),
        ),
    )


class DeleteRecordsRequest(Message):
    """DeleteRecords request, versions 0-2, flexible from 2."""

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=21,
        fields=(
            Field("topics", array_of(DeleteRecordsTopic), (0, 2)),
            Field("timeout_ms", INT32, (0, 2)),
        ),
    )


class DeleteRecordsPartitionResult(Message):
    """Part of the message, in versions 0-2."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (0, 2)),
            Field("low_watermark", INT64, (0, 2)),
            Field("error_code", INT16, (0, 2)),
        ),
    )


class DeleteRecordsTopicResult(Message):
    """Part of the message, in versions 0-2."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 2)),
            Field("partitions", array_of(DeleteRecordsPartitionResult), (0, 2)),
        ),
    )


class DeleteRecordsResponse(Message):
    """DeleteRecords response, versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=21,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("topics", array_of(DeleteRecordsTopicResult), (0, 2)),
        ),
    )
