"""Metadata records about brokers, controllers, features and transactions of records (KIP-631).

The types 6, 13 and 16 were removed before release; 21 occurs only in logs migrated from ZooKeeper.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    OWN_TAG_FIRST,
    STRING,
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class BrokerEndpoint(Message):
    """Part of `RegisterBrokerRecord`."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 4)),
            Field("host", STRING, (0, 4)),
            Field("port", UINT16, (0, 4)),
            Field("security_protocol", INT16, (0, 4)),
        ),
    )


class BrokerFeature(Message):
    """Part of `RegisterBrokerRecord`."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 4)),
            Field("min_supported_version", INT16, (0, 4)),
            Field("max_supported_version", INT16, (0, 4)),
        ),
    )


class RegisterBrokerRecord(Message):
    """A broker registered, fenced until it has caught up.

    Versions 0-4, flexible from 0.
    """

    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: int = 0
    end_points: list[BrokerEndpoint] = field(default_factory=list)
    features: list[BrokerFeature] = field(default_factory=list)
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: list[Uuid] = field(default_factory=list)
    cordoned_log_dirs: list[Uuid] | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=0,
        api_key=0,
        fields=(
            Field("broker_id", INT32, (0, 4)),
            Field("is_migrating_zk_broker", BOOL, (2, 4)),
            Field("incarnation_id", UUID, (0, 4)),
            Field("broker_epoch", INT64, (0, 4)),
            Field("end_points", array_of(BrokerEndpoint), (0, 4)),
            Field("features", array_of(BrokerFeature), (0, 4)),
            Field("rack", STRING, (0, 4), nullable=(0, 4)),
            Field("fenced", BOOL, (0, 4)),
            Field("in_controlled_shutdown", BOOL, (1, 4)),
            Field("log_dirs", array_of(UUID), (3, 4), tag=0, tagged=(3, 4)),
            Field(
                "cordoned_log_dirs", array_of(UUID), (4, 4), nullable=(4, 4), tag=1, tagged=(4, 4)
            ),
        ),
    )


class UnregisterControllerRecord(Message):
    """A controller was unregistered (KIP-1312).

    Version 0, flexible from 0.
    """

    controller_id: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=29,
        fields=(Field("controller_id", INT32, (0, 0)),),
    )


class UnregisterBrokerRecord(Message):
    """A broker was unregistered.

    Version 0, flexible from 0.
    """

    broker_id: int = 0
    broker_epoch: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=1,
        fields=(
            Field("broker_id", INT32, (0, 0)),
            Field("broker_epoch", INT64, (0, 0)),
        ),
    )


class FenceBrokerRecord(Message):
    """A broker lost its lease and leads nothing.

    Version 0, flexible from 0.
    """

    id: int = 0
    epoch: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=7,
        fields=(
            Field("id", INT32, (0, 0)),
            Field("epoch", INT64, (0, 0)),
        ),
    )


class UnfenceBrokerRecord(Message):
    """A broker has caught up and may lead.

    Version 0, flexible from 0.
    """

    id: int = 0
    epoch: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=8,
        fields=(
            Field("id", INT32, (0, 0)),
            Field("epoch", INT64, (0, 0)),
        ),
    )


class BrokerRegistrationChangeRecord(Message):
    """Changes of a registered broker; 0, an empty list or None means no change.

    For ``cordoned_log_dirs`` only None does: an empty list lifts every cordon.

    Versions 0-3, flexible from 0.
    """

    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: list[Uuid] = field(default_factory=list)
    cordoned_log_dirs: list[Uuid] | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 3),
        flexible=0,
        api_key=17,
        fields=(
            Field("broker_id", INT32, (0, 3)),
            Field("broker_epoch", INT64, (0, 3)),
            Field("fenced", INT8, (0, 3), tag=0, tagged=(0, 3)),
            Field("in_controlled_shutdown", INT8, (1, 3), tag=1, tagged=(1, 3)),
            Field("log_dirs", array_of(UUID), (2, 3), tag=2, tagged=(2, 3)),
            Field(
                "cordoned_log_dirs", array_of(UUID), (3, 3), nullable=(3, 3), tag=3, tagged=(3, 3)
            ),
        ),
    )


class ControllerEndpoint(Message):
    """Part of `RegisterControllerRecord`."""

    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("host", STRING, (0, 0)),
            Field("port", UINT16, (0, 0)),
            Field("security_protocol", INT16, (0, 0)),
        ),
    )


class ControllerFeature(Message):
    """Part of `RegisterControllerRecord`."""

    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (0, 0)),
            Field("min_supported_version", INT16, (0, 0)),
            Field("max_supported_version", INT16, (0, 0)),
        ),
    )


class RegisterControllerRecord(Message):
    """A controller registered with its endpoints and features.

    Version 0, flexible from 0.
    """

    controller_id: int = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = field(default_factory=list)
    features: list[ControllerFeature] = field(default_factory=list)

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=27,
        fields=(
            Field("controller_id", INT32, (0, 0)),
            Field("incarnation_id", UUID, (0, 0)),
            Field("zk_migration_ready", BOOL, (0, 0)),
            Field("end_points", array_of(ControllerEndpoint), (0, 0)),
            Field("features", array_of(ControllerFeature), (0, 0)),
        ),
    )


class FeatureLevelRecord(Message):
    """A feature was finalized at a level; 0 removes it.

    Version 0, flexible from 0.
    """

    name: str = ""
    feature_level: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=12,
        fields=(
            Field("name", STRING, (0, 0)),
            Field("feature_level", INT16, (0, 0)),
        ),
    )


class NoOpRecord(Message):
    """No change; shows that the active controller is alive.

    The tagged fields are specific to Ottla, and Kafka's nodes skip them: the id, API and reply of a
    forwarded request whose change is in the same batch (see `ottla.metadata.answered_requests`).

    Version 0, flexible from 0.
    """

    request_id: Uuid = ZERO_UUID
    request_api_key: int = 0
    reply: bytes = b""

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=20,
        fields=(
            Field("request_id", UUID, (0, 0), tag=OWN_TAG_FIRST, tagged=(0, 0)),
            Field("request_api_key", INT16, (0, 0), tag=OWN_TAG_FIRST + 1, tagged=(0, 0)),
            Field("reply", BYTES, (0, 0), tag=OWN_TAG_FIRST + 2, tagged=(0, 0)),
        ),
    )


class ZkMigrationStateRecord(Message):
    """The progress of a migration from ZooKeeper.

    Version 0, flexible from 0.
    """

    zk_migration_state: int = 0

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=21,
        fields=(Field("zk_migration_state", INT8, (0, 0)),),
    )


class BeginTransactionRecord(Message):
    """The following records take effect only with an `EndTransactionRecord`.

    Version 0, flexible from 0.
    """

    name: str | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=23,
        fields=(Field("name", STRING, (0, 0), nullable=(0, 0), tag=0, tagged=(0, 0)),),
    )


class EndTransactionRecord(Message):
    """The records since the `BeginTransactionRecord` take effect.

    Version 0, flexible from 0.
    """

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=24,
        fields=(),
    )


class AbortTransactionRecord(Message):
    """The records since the `BeginTransactionRecord` are discarded.

    Version 0, flexible from 0.
    """

    reason: str | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=25,
        fields=(Field("reason", STRING, (0, 0), nullable=(0, 0), tag=0, tagged=(0, 0)),),
    )
