"""FindCoordinator: the messages of api key 10, versions 0-6.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class FindCoordinatorRequest(Message):
    """FindCoordinator request, versions 0-6, flexible from 3."""

    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=3,
        api_key=10,
        fields=(
            Field("key", STRING, (0, 3)),
            Field("key_type", INT8, (1, 6)),
            Field("coordinator_keys", array_of(STRING), (4, 6)),
        ),
    )


class Coordinator(Message):
    """Part of the message, in versions 4-6."""

    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (4, 6)),
            Field("node_id", INT32, (4, 6)),
            Field("host", STRING, (4, 6)),
            Field("port", INT32, (4, 6)),
            Field("error_code", INT16, (4, 6)),
            Field("error_message", STRING, (4, 6), nullable=(4, 6)),
        ),
    )


class FindCoordinatorResponse(Message):
    """FindCoordinator response, versions 0-6, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[Coordinator] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 6),
        flexible=3,
        api_key=10,
        fields=(
            Field("throttle_time_ms", INT32, (1, 6)),
            Field("error_code", INT16, (0, 3)),
            Field("error_message", STRING, (1, 3), nullable=(1, 3)),
            Field("node_id", INT32, (0, 3)),
            Field("host", STRING, (0, 3)),
            Field("port", INT32, (0, 3)),
            Field("coordinators", array_of(Coordinator), (4, 6)),
        ),
    )
