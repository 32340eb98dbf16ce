"""AlterClientQuotas: the messages of api key 49, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class RequestEntityData(Message):
    """Part of the message, in versions 0-1."""

    entity_type: str = ""
    entity_name: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity_type", STRING, (0, 1)),
            Field("entity_name", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class OpData(Message):
    """Part of the message, in versions 0-1."""

    key: str = ""
    value: float = 0.0
    remove: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 1)),
            Field("value", FLOAT64, (0, 1)),
            Field("remove", BOOL, (0, 1)),
        ),
    )


class RequestEntryData(Message):
    """Part of the message, in versions 0-1."""

    entity: list[RequestEntityData] = field(default_factory=list)
    ops: list[OpData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity", array_of(RequestEntityData), (0, 1)),
            Field("ops", array_of(OpData), (0, 1)),
        ),
    )


class AlterClientQuotasRequest(Message):
    """AlterClientQuotas request, versions 0-1, flexible from 1."""

    entries: list[RequestEntryData] = field(default_factory=list)
    validate_only: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=49,
        fields=(
            Field("entries", array_of(RequestEntryData), (0, 1)),
            Field("validate_only", BOOL, (0, 1)),
        ),
    )


class ResponseEntityData(Message):
    """Part of the message, in versions 0-1."""

    entity_type: str = ""
    entity_name: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity_type", STRING, (0, 1)),
            Field("entity_name", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class ResponseEntryData(Message):
    """Part of the message, in versions 0-1."""

    error_code: int = 0
    error_message: str | None = ""
    entity: list[ResponseEntityData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("entity", array_of(ResponseEntityData), (0, 1)),
        ),
    )


class AlterClientQuotasResponse(Message):
    """AlterClientQuotas response, versions 0-1, flexible from 1."""

    throttle_time_ms: int = 0
    entries: list[ResponseEntryData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=49,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("entries", array_of(ResponseEntryData), (0, 1)),
        ),
    )
