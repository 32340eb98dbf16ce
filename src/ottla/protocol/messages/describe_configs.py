"""DescribeConfigs: the messages of api key 32, versions 1-4.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Field, Message, Schema, array_of


class DescribeConfigsResource(Message):
    """Part of the message, in versions 1-4."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("resource_type", INT8, (1, 4)),
            Field("resource_name", STRING, (1, 4)),
            Field("configuration_keys", array_of(STRING), (1, 4), nullable=(1, 4)),
        ),
    )


class DescribeConfigsRequest(Message):
    """DescribeConfigs request, versions 1-4, flexible from 4."""

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 4),
        flexible=4,
        api_key=32,
        fields=(
            Field("resources", array_of(DescribeConfigsResource), (1, 4)),
            Field("include_synonyms", BOOL, (1, 4)),
            Field("include_documentation", BOOL, (3, 4)),
        ),
    )


class DescribeConfigsSynonym(Message):
    """Part of the message, in versions 1-4."""

    name: str = ""
    value: str | None = ""
    source: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 4)),
            Field("value", STRING, (1, 4), nullable=(1, 4)),
            Field("source", INT8, (1, 4)),
        ),
    )


class DescribeConfigsResourceResult(Message):
    """Part of the message, in versions 1-4."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0
    documentation: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 4)),
            Field("value", STRING, (1, 4), nullable=(1, 4)),
            Field("read_only", BOOL, (1, 4)),
            Field("config_source", INT8, (1, 4)),
            Field("is_sensitive", BOOL, (1, 4)),
            Field("synonyms", array_of(DescribeConfigsSynonym), (1, 4)),
            Field("config_type", INT8, (3, 4)),
            Field("documentation", STRING, (3, 4), nullable=(3, 4)),
        ),
    )


class DescribeConfigsResult(Message):
    """Part of the message, in versions 1-4."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("error_code", INT16, (1, 4)),
            Field("error_message", STRING, (1, 4), nullable=(1, 4)),
            Field("resource_type", INT8, (1, 4)),
            Field("resource_name", STRING, (1, 4)),
            Field("configs", array_of(DescribeConfigsResourceResult), (1, 4)),
        ),
    )


class DescribeConfigsResponse(Message):
    """DescribeConfigs response, versions 1-4, flexible from 4."""

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 4),
        flexible=4,
        api_key=32,
        fields=(
            Field("throttle_time_ms", INT32, (1, 4)),
            Field("results", array_of(DescribeConfigsResult), (1, 4)),
        ),
    )
