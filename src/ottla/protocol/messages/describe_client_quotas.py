"""DescribeClientQuotas: the messages of api key 48, versions 0-1.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class ComponentData(Message):
    """Part of the message, in versions 0-1."""

    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity_type", STRING, (0, 1)),
            Field("match_type", INT8, (0, 1)),
            Field("match", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class DescribeClientQuotasRequest(Message):
    """DescribeClientQuotas request, versions 0-1, flexible from 1."""

    components: list[ComponentData] = field(default_factory=list)
    strict: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=48,
        fields=(
            Field("components", array_of(ComponentData), (0, 1)),
            Field("strict", BOOL, (0, 1)),
        ),
    )


class EntityData(Message):
    """Part of the message, in versions 0-1."""

    entity_type: str = ""
    entity_name: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity_type", STRING, (0, 1)),
            Field("entity_name", STRING, (0, 1), nullable=(0, 1)),
        ),
    )


class ValueData(Message):
    """Part of the message, in versions 0-1."""

    key: str = ""
    value: float = 0.0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("key", STRING, (0, 1)),
            Field("value", FLOAT64, (0, 1)),
        ),
    )


class EntryData(Message):
    """Part of the message, in versions 0-1."""

    entity: list[EntityData] = field(default_factory=list)
    values: list[ValueData] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("entity", array_of(EntityData), (0, 1)),
            Field("values", array_of(ValueData), (0, 1)),
        ),
    )


class DescribeClientQuotasResponse(Message):
    """DescribeClientQuotas response, versions 0-1, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        api_key=48,
        fields=(
            Field("throttle_time_ms", INT32, (0, 1)),
            Field("error_code", INT16, (0, 1)),
            Field("error_message", STRING, (0, 1), nullable=(0, 1)),
            Field("entries", array_of(EntryData), (0, 1), nullable=(0, 1)),
        ),
    )
