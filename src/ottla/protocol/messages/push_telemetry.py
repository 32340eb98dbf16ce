"""PushTelemetry: the messages of api key 72, versions 0-0.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from ottla.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, UUID, Field, Message, Schema
from ottla.protocol.types import ZERO_UUID, Uuid


class PushTelemetryRequest(Message):
    """PushTelemetry request, versions 0-0, flexible from 0."""

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=72,
        fields=(
            Field("client_instance_id", UUID, (0, 0)),
            Field("subscription_id", INT32, (0, 0)),
            Field("terminating", BOOL, (0, 0)),
            Field("compression_type", INT8, (0, 0)),
            Field("metrics", BYTES, (0, 0)),
        ),
    )


class PushTelemetryResponse(Message):
    """PushTelemetry response, versions 0-0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 0),
        flexible=0,
        api_key=72,
        fields=(
            Field("throttle_time_ms", INT32, (0, 0)),
            Field("error_code", INT16, (0, 0)),
        ),
    )
