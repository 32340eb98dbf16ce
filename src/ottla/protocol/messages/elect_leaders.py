"""ElectLeaders: the messages of api key 43, versions 0-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class TopicPartitions(Message):
    """Part of the message, in versions 0-2."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (0, 2)),
            Field("partitions", array_of(INT32), (0, 2)),
        ),
    )


class ElectLeadersRequest(Message):
    """ElectLeaders request, versions 0-2, flexible from 2."""

    election_type: int = 0
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: int = 60000
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=43,
        fields=(
            Field("election_type", INT8, (1, 2)),
            Field("topic_partitions", array_of(TopicPartitions), (0, 2), nullable=(0, 2)),
            Field("timeout_ms", INT32, (0, 2)),
        ),
    )


class PartitionResult(Message):
    """Part of the message, in versions 0-2."""

    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_id", INT32, (0, 2)),
            Field("error_code", INT16, (0, 2)),
            Field("error_message", STRING, (0, 2), nullable=(0, 2)),
        ),
    )


class ReplicaElectionResult(Message):
    """Part of the message, in versions 0-2."""

    topic: str = ""
    partition_result: list[PartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (0, 2)),
            Field("partition_result", array_of(PartitionResult), (0, 2)),
        ),
    )


class ElectLeadersResponse(Message):
    """ElectLeaders response, versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=2,
        api_key=43,
        fields=(
            Field("throttle_time_ms", INT32, (0, 2)),
            Field("error_code", INT16, (1, 2)),
            Field("replica_election_results", array_of(ReplicaElectionResult), (0, 2)),
        ),
    )
