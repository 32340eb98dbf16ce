"""Handlers of client telemetry (KIP-714): GetTelemetrySubscriptions and PushTelemetry.

`ottla.observability.client_telemetry` decides what a client pushes and when. Metrics of an accepted
push are decompressed on a worker thread and passed to the receiver. Without a receiver they are
dropped unread, and ApiVersions does not list the APIs, as in Kafka.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from ottla.api.surface.routes import Caller
from ottla.observability.client_telemetry import (
    CODECS,
    ClientTelemetry,
    Connection,
    Push,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import InvalidRecord
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.compression import decompress
from ottla.protocol.types import Uuid
from ottla.protocol.uuids import uuid_text
from ottla.runtime.ports import Clock, Worker

PENDING_MAX: Final = 64
"""Pushes that wait for the worker thread; more are throttled."""

_EXPANSION_MAX: Final = 10
"""How much larger than ``telemetry.max.bytes`` decompressed metrics may be."""

_LABEL_LENGTH_MAX: Final = 200
"""Clients choose their ids and names, and a receiver may write them once per resource."""


class ClientInfo(msgspec.Struct, frozen=True):
    """The client of a push, for the receiver."""

    instance: Uuid
    labels: dict[str, str]
    silent_ms_max: int
    """How long its metrics are kept after its last push."""


class Receiver(Protocol):
    """Receives metrics of clients."""

    def read(self, client: ClientInfo, data: bytes) -> Callable[[], None]:
        """Parse metrics on the worker thread; return what stores them, on the event loop.

        Raises:
            ValueError: the bytes are not OTLP metrics.
        """
        ...

    def failed(self) -> None:
        """Count a push that could not be read."""
        ...


class TelemetryHandlers:
    """Telemetry of the clients of one broker."""

    def __init__(
        self,
        telemetry: ClientTelemetry,
        receiver: Receiver | None,
        clock: Clock,
        worker: Worker,
        bytes_max: int,
    ) -> None:
        self._telemetry = telemetry
        self._receiver = receiver
        self._clock = clock
        self._worker = worker
        self._bytes_max = bytes_max
        self._pending = 0

    def on_get(
        self, caller: Caller, request: GetTelemetrySubscriptionsRequest, version: int
    ) -> GetTelemetrySubscriptionsResponse:
        """Return what the client shall push."""
        found = self._telemetry.get(
            request.client_instance_id,
            _properties(caller, request.client_instance_id),
            Connection(caller.listener, caller.peer),
            self._clock.monotonic(),
        )
        if isinstance(found, ErrorCode):
            return GetTelemetrySubscriptionsResponse(error_code=found)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=found.instance,
            subscription_id=found.subscription_id,
            accepted_compression_types=list(CODECS),
            push_interval_ms=found.selection.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=True,
            requested_metrics=list(found.selection.metrics),
        )

    def on_push(
        self, caller: Caller, request: PushTelemetryRequest, version: int
    ) -> PushTelemetryResponse | Awaitable[PushTelemetryResponse]:
        """Accept the metrics of a client, or say why not."""
        push = Push(
            request.client_instance_id,
            request.subscription_id,
            request.compression_type,
            len(request.metrics),
            request.terminating,
        )
        properties = _properties(caller, request.client_instance_id)
        connection = Connection(caller.listener, caller.peer)
        code = self._telemetry.push(push, properties, connection, self._clock.monotonic())
        if code is not ErrorCode.NONE or self._receiver is None or not request.metrics:
            return PushTelemetryResponse(error_code=code)
        if self._pending >= PENDING_MAX:
            return PushTelemetryResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        silent_ms_max = self._telemetry.silent_ms_max(push.instance)
        client = ClientInfo(push.instance, _labels(caller, properties), silent_ms_max)
        return self._receive(self._receiver, client, Compression(push.codec), request.metrics)

    async def _receive(
        self, receiver: Receiver, client: ClientInfo, codec: Compression, data: bytes
    ) -> PushTelemetryResponse:
        self._pending += 1
        try:
            store = await self._worker.run(
                lambda: receiver.read(client, self._unpacked(codec, data))
            )
        except (InvalidRecord, ValueError):
            receiver.failed()
            self._telemetry.failed(client.instance, ErrorCode.INVALID_RECORD)
            return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
        finally:
            self._pending -= 1
        store()
        return PushTelemetryResponse()

    def _unpacked(self, codec: Compression, data: bytes) -> bytes:
        return decompress(codec, data, _EXPANSION_MAX * self._bytes_max)


def _properties(caller: Caller, instance: Uuid) -> dict[str, str]:
    """Return the properties that the selectors of subscriptions name."""
    found = {
        "client_instance_id": uuid_text(instance),
        "client_software_name": caller.software_name,
        "client_software_version": caller.software_version,
        "client_source_address": caller.peer.host,
        "client_source_port": str(caller.peer.port),
    }
    if caller.client_id is not None:
        found["client_id"] = caller.client_id
    return found


def _labels(caller: Caller, properties: dict[str, str]) -> dict[str, str]:
    """Return the labels of the client's series: not its port, which is new with each connection."""
    names = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
    labels = {name: properties[name] for name in names if properties.get(name)}
    labels["user"] = caller.principal.removeprefix("User:")
    return {name: value[:_LABEL_LENGTH_MAX] for name, value in labels.items()}
