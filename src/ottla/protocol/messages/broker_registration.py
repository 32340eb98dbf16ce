"""BrokerRegistration: the messages of api key 62, versions 0-4.

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
    UINT16,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class Listener(Message):
    """Part of the message, in versions 0-4."""

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


class Feature(Message):
    """Part of the message, in versions 0-4."""

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


class BrokerRegistrationRequest(Message):
    """BrokerRegistration request, versions 0-4, flexible from 0."""

    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    rack: str | None = ""
    is_migrating_zk_broker: bool = False
    log_dirs: list[Uuid] = field(default_factory=list)
    previous_broker_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=0,
        api_key=62,
        fields=(
            Field("broker_id", INT32, (0, 4)),
            Field("cluster_id", STRING, (0, 4)),
            Field("incarnation_id", UUID, (0, 4)),
            Field("listeners", array_of(Listener), (0, 4)),
            Field("features", array_of(Feature), (0, 4)),
            Field("rack", STRING, (0, 4), nullable=(0, 4)),
            Field("is_migrating_zk_broker", BOOL, (1, 4)),
            Field("log_dirs", array_of(UUID), (2, 4)),
            Field("previous_broker_epoch", INT64, (3, 4)),
        ),
    )


class BrokerRegistrationResponse(Message):
    """BrokerRegistration response, versions 0-4, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 4),
        flexible=0,
        api_key=62,
        fields=(
            Field("throttle_time_ms", INT32, (0, 4)),
            Field("error_code", INT16, (0, 4)),
            Field("broker_epoch", INT64, (0, 4)),
        ),
    )
