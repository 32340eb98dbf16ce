"""ControllerRegistration: the messages of api key 70, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT16,
    INT32,
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
    """Part of the message, in versions 0-0."""

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


class Feature(Message):
    """Part of the message, in versions 0-0."""

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


class ControllerRegistrationRequest(Message):
    """ControllerRegistration request, versions 0-0, flexible from 0."""

    controller_id: int = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=70,
        fields=(
            Field("controller_id", INT32, (0, 0)),
            Field("incarnation_id", UUID, (0, 0)),
            Field("zk_migration_ready", BOOL, (0, 0)),
            Field("listeners", array_of(Listener), (0, 0)),
            Field("features", array_of(Feature), (0, 0)),
        ),
    )


class ControllerRegistrationResponse(Message):
    """ControllerRegistration response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=70,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("error_message", STRING, (0, 0), nullable=(0, 0)),
        ),
    )
