"""AlterReplicaLogDirs: the messages of api key 34, versions 1-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema, array_of


class AlterReplicaLogDirTopic(Message):
    """Part of the message, in versions 1-2."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 2)),
            Field("partitions", array_of(INT32), (1, 2)),
        ),
    )


class AlterReplicaLogDir(Message):
    """Part of the message, in versions 1-2."""

    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("path", STRING, (1, 2)),
            Field("topics", array_of(AlterReplicaLogDirTopic), (1, 2)),
        ),
    )


class AlterReplicaLogDirsRequest(Message):
    """AlterReplicaLogDirs request, versions 1-2, flexible from 2."""

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=2,
        api_key=34,
        fields=(Field("dirs", array_of(AlterReplicaLogDir), (1, 2)),),
    )


class AlterReplicaLogDirPartitionResult(Message):
    """Part of the message, in versions 1-2."""

    partition_index: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 2)),
            Field("error_code", INT16, (1, 2)),
        ),
    )


class AlterReplicaLogDirTopicResult(Message):
    """Part of the message, in versions 1-2."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic_name", STRING, (1, 2)),
            Field("partitions", array_of(AlterReplicaLogDirPartitionResult), (1, 2)),
        ),
    )


class AlterReplicaLogDirsResponse(Message):
    """AlterReplicaLogDirs response, versions 1-2, flexible from 2."""

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=2,
        api_key=34,
        fields=(
            Field("throttle_time_ms", INT32, (1, 2)),
            Field("results", array_of(AlterReplicaLogDirTopicResult), (1, 2)),
        ),
    )
