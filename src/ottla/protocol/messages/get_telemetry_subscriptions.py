"""GetTelemetrySubscriptions: the messages of api key 71, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    Field,
    Message,
    Schema,
    array_of,
)
from ottla.protocol.types import ZERO_UUID, Uuid


class GetTelemetrySubscriptionsRequest(Message):
    """GetTelemetrySubscriptions request, versions 0-0, flexible from 0."""

    client_instance_id: Uuid = ZERO_UUID
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=71,
        fields=(Field("client_instance_id", UUID, (0, 0)),),
    )


class GetTelemetrySubscriptionsResponse(Message):
    """GetTelemetrySubscriptions response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: int = 0
    accepted_compression_types: list[int] = field(default_factory=list)
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=71,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
            Field("client_instance_id", UUID, (0, 0)),
            Field("subscription_id", INT32, (0, 0)),
            Field("accepted_compression_types", array_of(INT8), (0, 0)),
            Field("push_interval_ms", INT32, (0, 0)),
            Field("telemetry_max_bytes", INT32, (0, 0)),
            Field("delta_temporality", BOOL, (0, 0)),
            Field("requested_metrics", array_of(STRING), (0, 0)),
        ),
    )
