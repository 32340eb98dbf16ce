"""APIs of features that the listener does not have: SASL, client telemetry.

Apache Kafka serves them all the same and answers with an error; closing the connection instead
would look like a network failure to a client.

    SaslHandshake, SaslAuthenticate    ILLEGAL_SASL_STATE: the listener has no SASL
    GetTelemetrySubscriptions          no metric is subscribed to
    PushTelemetry                      UNKNOWN_SUBSCRIPTION_ID for any other subscription
"""

from struct import Struct
from typing import Final

import msgspec

from ottla.api.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.records.crc import crc32c
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Random

# Kafka's defaults: zstd, lz4, gzip and snappy, in order of preference; five minutes.
_CODECS: Final = (4, 3, 1, 2)
_PUSH_INTERVAL_MS: Final = 300_000
_NO_METRICS: Final = f"[]{_PUSH_INTERVAL_MS}".encode()
_RESERVED_IDS: Final = frozenset({ZERO_UUID, Uuid((1).to_bytes(16, "big"))})
_FOUR_INT32: Final = Struct(">IIII")


class SaslHandlers(msgspec.Struct, frozen=True):
    """SASL on a listener that has none."""

    def on_handshake(
        self, caller: Caller, request: SaslHandshakeRequest, version: int
    ) -> SaslHandshakeResponse:
        """Reject the handshake."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def on_authenticate(
        self, caller: Caller, request: SaslAuthenticateRequest, version: int
    ) -> SaslAuthenticateResponse:
        """Reject the authentication."""
        text = f"listener {caller.listener} does not authenticate clients"
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)


class TelemetryHandlers(msgspec.Struct, frozen=True):
    """Client telemetry (KIP-714) while nothing receives it; not advertised, as in Kafka."""

    random: Random
    bytes_max: int

    def on_get(
        self, caller: Caller, request: GetTelemetrySubscriptionsRequest, version: int
    ) -> GetTelemetrySubscriptionsResponse:
        """Subscribe to no metric."""
        instance = request.client_instance_id
        if instance == ZERO_UUID:
            instance = self.random.uuid()
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance,
            subscription_id=subscription_id(instance),
            accepted_compression_types=list(_CODECS),
            push_interval_ms=_PUSH_INTERVAL_MS,
            telemetry_max_bytes=self.bytes_max,
            delta_temporality=True,
        )

    def on_push(
        self, caller: Caller, request: PushTelemetryRequest, version: int
    ) -> PushTelemetryResponse:
        """Drop the metrics of a client with the right subscription id; reject others."""
        code = ErrorCode.NONE
        if request.client_instance_id in _RESERVED_IDS:
            code = ErrorCode.INVALID_REQUEST
        elif request.subscription_id != subscription_id(request.client_instance_id):
            code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        elif request.compression_type not in (0, *_CODECS):
            code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif len(request.metrics) > self.bytes_max:
            code = ErrorCode.TELEMETRY_TOO_LARGE
        return PushTelemetryResponse(error_code=code)


def subscription_id(instance: Uuid) -> int:
    """Return the id of the subscription to no metric, an int32: Kafka's for the same instance."""
    first, second, third, fourth = (int(part) for part in _FOUR_INT32.unpack(instance))
    # Java's hash of a UUID: both halves, then both halves of that, in exclusive or.
    found = crc32c(_NO_METRICS, 0, len(_NO_METRICS)) ^ first ^ second ^ third ^ fourth
    return found - (1 << 32) if found >= 1 << 31 else found
