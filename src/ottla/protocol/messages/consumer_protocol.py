"""Consumer protocol: what members of a classic group tell each other.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BYTES, INT32, STRING, Field, Message, Schema, array_of


class SubscriptionTopicPartition(Message):
    """Part of the message, in versions 1-3."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (1, 3)),
            Field("partitions", array_of(INT32), (1, 3)),
        ),
    )


class ConsumerProtocolSubscription(Message):
    """Consumer protocol subscription, versions 0-3, never flexible."""

    topics: list[str] = field(default_factory=list)
    user_data: bytes | None = None
    owned_partitions: list[SubscriptionTopicPartition] = field(default_factory=list)
    generation_id: int = -1
    rack_id: str | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=None,
        api_key=None,
        fields=(
            Field("topics", array_of(STRING), (0, 3)),
            Field("user_data", BYTES, (0, 3), nullable=(0, 3)),
            Field("owned_partitions", array_of(SubscriptionTopicPartition), (1, 3)),
            Field("generation_id", INT32, (2, 3)),
            Field("rack_id", STRING, (3, 3), nullable=(3, 3)),
        ),
    )


class AssignmentTopicPartition(Message):
    """Part of the message, in versions 0-3."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("topic", STRING, (0, 3)),
            Field("partitions", array_of(INT32), (0, 3)),
        ),
    )


class ConsumerProtocolAssignment(Message):
    """Consumer protocol assignment, versions 0-3, never flexible."""

    assigned_partitions: list[AssignmentTopicPartition] = field(default_factory=list)
    user_data: bytes | None = None
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=None,
        api_key=None,
        fields=(
            Field("assigned_partitions", array_of(AssignmentTopicPartition), (0, 3)),
            Field("user_data", BYTES, (0, 3), nullable=(0, 3)),
        ),
    )
