"""DescribeLogDirs: the messages of api key 35, versions 1-5.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class DescribableLogDirTopic(Message):
    """Part of the message, in versions 1-5."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (1, 5)),
            Field("partitions", array_of(INT32), (1, 5)),
        ),
    )


class DescribeLogDirsRequest(Message):
    """DescribeLogDirs request, versions 1-5, flexible from 2."""

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 5),
        flexible=2,
        api_key=35,
        fields=(Field("topics", array_of(DescribableLogDirTopic), (1, 5), nullable=(1, 5)),),
    )


class DescribeLogDirsPartition(Message):
    """Part of the message, in versions 1-5."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 5)),
            Field("partition_size", INT64, (1, 5)),
            Field("offset_lag", INT64, (1, 5)),
            Field("is_future_key", BOOL, (1, 5)),
        ),
    )


class DescribeLogDirsTopic(Message):
    """Part of the message, in versions 1-5."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 5)),
            Field("partitions", array_of(DescribeLogDirsPartition), (1, 5)),
        ),
    )


class DescribeLogDirsResult(Message):
    """Part of the message, in versions 1-5."""

    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (1, 5)),
            Field("log_dir", STRING, (1, 5)),
            Field("topics", array_of(DescribeLogDirsTopic), (1, 5)),
            Field("total_bytes", INT64, (4, 5)),
            Field("usable_bytes", INT64, (4, 5)),
            Field("is_cordoned", BOOL, (5, 5)),
        ),
    )


class DescribeLogDirsResponse(Message):
    """DescribeLogDirs response, versions 1-5, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 5),
        flexible=2,
        api_key=35,
        fields=(
            Field("throttle_time_ms", INT32, (1, 5)),
            Field("error_code", INT16, (3, 5)),
            Field("results", array_of(DescribeLogDirsResult), (1, 5)),
        ),
    )
