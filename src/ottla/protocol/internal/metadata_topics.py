"""Metadata records about topics, partitions and configuration (KIP-631).

A change record has only the changed fields: an absent field means no change.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class TopicRecord(Message):
    """A topic exists, under this name and id.

    Version 0, flexible from 0.
    """

    name: str = ""
    topic_id: Uuid = ZERO_UUID

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=2,
        fields=(
            Field("name", STRING, (0, 0)),
            Field("topic_id", UUID, (0, 0)),
        ),
    )


class RemoveTopicRecord(Message):
    """A topic was deleted with all its partitions.

    Version 0, flexible from 0.
    """

    topic_id: Uuid = ZERO_UUID

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=9,
        fields=(Field("topic_id", UUID, (0, 0)),),
    )


class PartitionRecord(Message):
    """The whole state of a partition.

    Versions 0-2, flexible from 0.
    """

    partition_id: int = -1
    topic_id: Uuid = ZERO_UUID
    replicas: list[int] = field(default_factory=list)
    isr: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: list[Uuid] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=3,
        fields=(
            Field("partition_id", INT32, (0, 2)),
            Field("topic_id", UUID, (0, 2)),
            Field("replicas", array_of(INT32), (0, 2)),
            Field("isr", array_of(INT32), (0, 2)),
            Field("removing_replicas", array_of(INT32), (0, 2)),
            Field("adding_replicas", array_of(INT32), (0, 2)),
            Field("leader", INT32, (0, 2)),
            Field("leader_recovery_state", INT8, (0, 2), tag=0, tagged=(0, 2)),
            Field("leader_epoch", INT32, (0, 2)),
            Field("partition_epoch", INT32, (0, 2)),
            Field("directories", array_of(UUID), (1, 2)),
            Field(
                "eligible_leader_replicas",
                array_of(INT32),
                (2, 2),
                nullable=(2, 2),
                tag=1,
                tagged=(2, 2),
            ),
            Field("last_known_elr", array_of(INT32), (2, 2), nullable=(2, 2), tag=2, tagged=(2, 2)),
        ),
    )


class PartitionChangeRecord(Message):
    """Changes of a partition; ``leader`` -2 means an unchanged leader.

    Versions 0-2, flexible from 0.
    """

    partition_id: int = -1
    topic_id: Uuid = ZERO_UUID
    isr: list[int] | None = None
    leader: int = -2
    replicas: list[int] | None = None
    removing_replicas: list[int] | None = None
    adding_replicas: list[int] | None = None
    leader_recovery_state: int = -1
    directories: list[Uuid] | None = None
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 2),
        flexible=0,
        api_key=5,
        fields=(
            Field("partition_id", INT32, (0, 2)),
            Field("topic_id", UUID, (0, 2)),
            Field("isr", array_of(INT32), (0, 2), nullable=(0, 2), tag=0, tagged=(0, 2)),
            Field("leader", INT32, (0, 2), tag=1, tagged=(0, 2)),
            Field("replicas", array_of(INT32), (0, 2), nullable=(0, 2), tag=2, tagged=(0, 2)),
            Field(
                "removing_replicas", array_of(INT32), (0, 2), nullable=(0, 2), tag=3, tagged=(0, 2)
            ),
            Field(
                "adding_replicas", array_of(INT32), (0, 2), nullable=(0, 2), tag=4, tagged=(0, 2)
            ),
            Field("leader_recovery_state", INT8, (0, 2), tag=5, tagged=(0, 2)),
            Field("directories", array_of(UUID), (1, 2), nullable=(1, 2), tag=8, tagged=(1, 2)),
            Field(
                "eligible_leader_replicas",
                array_of(INT32),
                (2, 2),
                nullable=(2, 2),
                tag=6,
                tagged=(2, 2),
            ),
            Field("last_known_elr", array_of(INT32), (2, 2), nullable=(2, 2), tag=7, tagged=(2, 2)),
        ),
    )


class ClearElrRecord(Message):
    """The eligible leader replicas of a topic were cleared; of all topics if none is named.

    Version 0, flexible from 0.
    """

    topic_name: str = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=28,
        fields=(Field("topic_name", STRING, (0, 0)),),
    )


class ConfigRecord(Message):
    """A configuration key of a resource was set, or unset when the value is null.

    Version 0, flexible from 0.
    """

    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=4,
        fields=(
            Field("resource_type", INT8, (0, 0)),
            Field("resource_name", STRING, (0, 0)),
            Field("name", STRING, (0, 0)),
            Field("value", STRING, (0, 0), nullable=(0, 0)),
        ),
    )


class EntityData(Message):
    """Part of `ClientQuotaRecord`."""

    entity_type: str = ""
    entity_name: str | None = ""

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity_type", STRING, (0, 0)),
            Field("entity_name", STRING, (0, 0), nullable=(0, 0)),
        ),
    )


class ClientQuotaRecord(Message):
    """A quota of a client, user or address was set or removed.

    Version 0, flexible from 0.
    """

    entity: list[EntityData] = field(default_factory=list)
    key: str = ""
    value: float = 0.0
    remove: bool = False

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=14,
        fields=(
            Field("entity", array_of(EntityData), (0, 0)),
            Field("key", STRING, (0, 0)),
            Field("value", FLOAT64, (0, 0)),
            Field("remove", BOOL, (0, 0)),
        ),
    )


class ProducerIdsRecord(Message):
    """Producer ids below ``next_producer_id`` have been allocated to a broker.

    Version 0, flexible from 0.
    """

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=15,
        fields=(
            Field("broker_id", INT32, (0, 0)),
            Field("broker_epoch", INT64, (0, 0)),
            Field("next_producer_id", INT64, (0, 0)),
        ),
    )
