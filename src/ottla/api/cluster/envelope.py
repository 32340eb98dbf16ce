"""Forwarding: a broker sends a client's request to the active controller in an Envelope (KIP-590).

    client --request--> broker --Envelope(request, principal, address)--> active controller
    client <--response- broker <--Envelope(response)--------------------- active controller

    request_data          request header and body, as the client sent them, without length
    request_principal     a DefaultPrincipalData
    client_host_address   4 or 16 bytes, an IP address
    response_data         response header and body, without length

A broker that gets no reply sends the request again with the same id (`IdentifiedEnvelope`): the
controller finds out whether an earlier attempt was committed, and sends the same reply
(`ottla.controller.decide_once`). A broker of Apache Kafka sends no id, and a controller of Apache
Kafka ignores it; then a second attempt is a new request, as it is in Kafka.

An error of the Envelope itself is about forwarding: after NOT_CONTROLLER the broker looks for the
new controller. An error of the request is in the response inside.
"""

import ipaddress
import logging
from collections.abc import Awaitable
from typing import Final, Protocol, TypeVar

import msgspec

from ottla.api.security.access import OPEN, Access
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.replies import LARGE_BYTES, NO_REPLY, Answer, Chunk, Result, finished, paced
from ottla.api.surface.routes import Caller, Route, Routes
from ottla.api.surface.row import Forwarding
from ottla.api.surface.table import SURFACE
from ottla.api.surface.throttle_field import FIELD, throttle_of, with_throttle
from ottla.client.controller_client import ResendingControllerClient
from ottla.metadata.answered_requests import RequestIdentity
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode_prefix, decode_steps, encode, encode_steps
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotController, ProtocolFault, RequestTimedOut
from ottla.protocol.forwarding import IdentifiedEnvelope
from ottla.protocol.frames import (
    Request,
    UnsupportedRequest,
    parse_request_header,
    parse_response_header,
)
from ottla.protocol.headers import (
    RequestHeader,
    request_header_version,
    response_header_version,
)
from ottla.protocol.internal.principal import (
    DefaultPrincipalData,
    decode_principal,
    encode_principal,
)
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.schema import Message, covers
from ottla.protocol.types import ZERO_UUID
from ottla.runtime.host_address import canonical_host, without_scope
from ottla.runtime.ports import Address, Random

log = logging.getLogger(__name__)

_NOT_LEADING: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)


# -- the controller's side ---------------------------------------------------------


T = TypeVar("T")


class RequestTime(Protocol):
    """Charges clients for the time that their forwarded requests take on this node."""

    @property
    def is_active(self) -> bool:
        """Whether any quota is set."""
        ...

    async def measure(self, work: Awaitable[T]) -> tuple[T, float]:
        """Await ``work``; return its result, and for how many seconds it kept the loop busy."""
        ...

    def charge_forwarded(self, caller: Caller, spent_s: float) -> int:
        """Charge a client; return for how many milliseconds to throttle it."""
        ...


class EnvelopeHandler(msgspec.Struct, frozen=True):
    """Opens envelopes and serves the request inside by the routes of the controller listener."""

    routes: Routes
    request_time: RequestTime | None = None

    def open(self, caller: Caller, request: Request, body: memoryview) -> Awaitable[Result]:
        """Decode an Envelope and serve the request inside.

        Raises:
            ProtocolFault: at once: the body is not an Envelope.
        """
        envelope, _ = decode_prefix(IdentifiedEnvelope, request.version, body)
        return self.handle(caller, envelope, request.version)

    async def handle(
        self, caller: Caller, request: EnvelopeRequest, version: int
    ) -> EnvelopeResponse:
        """Serve the request inside."""
        try:
            sender = _sender(caller, request)  # as in Kafka: checked before the request inside
            inner = parse_request_header(request.request_data)
        except ProtocolFault as fault:
            log.info("envelope rejected peer=%s reason=%s", caller.peer, fault)
            return EnvelopeResponse(None, _envelope_error(fault))
        if isinstance(inner, UnsupportedRequest):
            return EnvelopeResponse(None, ErrorCode.UNSUPPORTED_VERSION)
        found = self.routes.find(inner.key) if is_forwarded(inner.key) else None
        if found is None:
            return EnvelopeResponse(None, ErrorCode.INVALID_REQUEST)
        route, versions = found
        if not covers(versions, inner.version):
            return EnvelopeResponse(None, ErrorCode.UNSUPPORTED_VERSION)
        body = await self._served(route, inner, sender)
        return body if isinstance(body, EnvelopeResponse) else await _encoded(inner, body)

    async def _served(
        self, route: Route, inner: Request, sender: Caller
    ) -> Message | EnvelopeResponse:
        """Serve the request inside, and charge its client for the time on this controller.

        The broker throttles its client for the longer time: that of the reply, or its own.
        """
        if self.request_time is None or not self.request_time.is_active:
            return await _serve(route, inner, sender)
        body, spent_s = await self.request_time.measure(_serve(route, inner, sender))
        throttle_ms = self.request_time.charge_forwarded(sender, spent_s)
        if throttle_ms > getattr(body, FIELD, throttle_ms):
            charged = with_throttle(inner.key, inner.version, body, throttle_ms)
            assert isinstance(charged, Message), "a message stays one"
            return charged
        return body


def with_envelope(
    routes: Routes, access: Access = OPEN, request_time: RequestTime | None = None
) -> Routes:
    """Return the routes of a controller listener, with Envelope in front of ``routes``.

    Only nodes may send one; the request inside is authorized as its client's.
    """
    handlers = handlers_of(envelope=EnvelopeHandler(routes, request_time))
    envelope = bind_routes(routes.kind, handlers, access=access)
    return Routes(routes.kind, (*routes.routes, *envelope))


def is_forwarded(key: ApiKey) -> bool:
    """Say whether brokers forward an API; others are refused inside an Envelope, as in Kafka."""
    row = SURFACE.get(key)
    return row is not None and row.forwarding is not None


class BadPrincipal(ProtocolFault):
    """The principal inside an Envelope cannot be decoded."""

    code = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def _envelope_error(fault: ProtocolFault) -> ErrorCode:
    return fault.code if isinstance(fault, BadPrincipal) else ErrorCode.INVALID_REQUEST


def _sender(caller: Caller, request: EnvelopeRequest) -> Caller:
    """Return the caller of the request inside: the client, not the broker."""
    try:
        principal = decode_principal(request.request_principal or b"")
    except ProtocolFault as fault:
        raise BadPrincipal(str(fault)) from fault
    try:
        host = canonical_host(str(ipaddress.ip_address(bytes(request.client_host_address))))
    except ValueError as error:
        raise ProtocolFault(f"client address: {error}") from error
    inner = parse_request_header(request.request_data)
    client_id = inner.client_id if isinstance(inner, Request) else None
    identity = None
    if isinstance(request, IdentifiedEnvelope) and request.request_id != ZERO_UUID:
        identity = RequestIdentity(request.request_id, request.is_resent)
    return Caller(
        f"{principal.type}:{principal.name}",
        client_id,
        Address(host, 0),
        caller.listener,
        is_token_authenticated=principal.token_authenticated,
        is_forwarded=True,
        request=identity,
    )


async def _serve(route: Route, inner: Request, sender: Caller) -> Message | EnvelopeResponse:
    """Return the response to the request inside, or that to the Envelope if forwarding failed."""
    try:
        # Bytes after the last field are ignored, as everywhere: see `Dispatcher.open`.
        steps = decode_steps(request_class(inner.key), inner.version, inner.body)
        message, _ = await paced(steps)
    except ProtocolFault:
        return EnvelopeResponse(None, ErrorCode.INVALID_REQUEST)
    try:
        result = await finished(route.handle(sender, message, inner.version))
        body = result.body if isinstance(result, Answer) else result
    except NotController:
        return EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)
    except Fault as fault:
        from ottla.api.surface.error_reply import error_reply_steps  # few requests fail

        refusal = error_reply_steps(inner.key, inner.version, message, fault.code, str(fault))
        body = await paced(refusal) or NO_REPLY
    if not isinstance(body, Message):
        return EnvelopeResponse(None, ErrorCode.UNKNOWN_SERVER_ERROR)
    if getattr(body, "error_code", 0) in _NOT_LEADING:
        return EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)
    return body


async def _encoded(inner: Request, body: Message) -> EnvelopeResponse:
    data = bytearray(inner.correlation_id.to_bytes(4, "big", signed=True))
    if response_header_version(inner.key, inner.version):
        data.append(0)  # no tagged fields
    await paced(encode_steps(data, body, inner.version))
    return EnvelopeResponse(bytes(data))


# -- the broker's side -------------------------------------------------------------


class ForwardingRefused(Fault):
    """The reply to an Envelope has an error of forwarding."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class Forwarder(msgspec.Struct, frozen=True):
    """Forwards requests to the active controller unchanged."""

    controller: ResendingControllerClient
    request_timeout_ms: int
    random: Random

    def forward(self, caller: Caller, request: Request, body: memoryview) -> Awaitable[Result]:
        """Forward one request and return the body of the response unchanged.

        Bytes after the last field are not forwarded.

        Raises:
            ProtocolFault: at once: the body is not a request.
        """
        if len(body) >= LARGE_BYTES:
            return self._forward_large(caller, request, body)
        message, end = decode_prefix(request_class(request.key), request.version, body)
        return self._forward(caller, request, body[:end], message)

    async def _forward_large(self, caller: Caller, request: Request, body: memoryview) -> Result:
        """Forward a request that is decoded in steps; close the connection if it is malformed."""
        try:
            steps = decode_steps(request_class(request.key), request.version, body)
            message, end = await paced(steps)
        except ProtocolFault as fault:
            log.warning("connection closed peer=%s reason=%s", caller.peer, fault)
            return Answer(NO_REPLY, close=True)
        return await self._forward(caller, request, body[:end], message)

    async def _forward(
        self, caller: Caller, request: Request, body: memoryview, message: Message
    ) -> Result:
        timeout_ms = self._timeout_ms(request.key, message)
        try:
            response = await self._send(
                caller, request.key, _request_data(request, body), timeout_ms
            )
        except RequestTimedOut:
            return await _refused(request, message, ErrorCode.REQUEST_TIMED_OUT)
        if response.error_code or response.response_data is None:
            code = ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            return await _refused(request, message, code)
        correlation_id, answer = parse_response_header(
            request.key, request.version, response.response_data
        )
        if correlation_id != request.correlation_id:
            raise ProtocolFault(f"forwarded {request.correlation_id}, answered {correlation_id}")
        chunks: list[Chunk] = [bytes(answer)]
        throttle_ms = throttle_of(request.key, request.version, bytes(answer[:4]))
        # The controller's throttle time, for changes of partitions, mutes the client here.
        return Answer(chunks, throttle_ms) if throttle_ms > 0 else chunks

    async def forward_message(self, caller: Caller, request: Message, timeout_ms: int) -> Message:
        """Send a request of this broker on behalf of a client, or its own; return the response.

        The controller authorizes the client, or for a request of its own the broker.

        Raises:
            RequestTimedOut: no active controller answered in time.
            ForwardingRefused: forwarding failed. ProtocolFault: the response is malformed.
        """
        if caller.is_own:
            return await self.controller.ask(request, timeout_ms)
        key = ApiKey(request.SCHEMA.api_key or 0)
        version = APIS[key].versions[1]
        header = Request(key, version, 0, caller.client_id, memoryview(b""))
        body = bytearray()
        await paced(encode_steps(body, request, version))
        data = _request_data(header, memoryview(body))
        response = await self._send(caller, key, data, timeout_ms)
        if response.error_code or response.response_data is None:
            code = ErrorCode(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            raise ForwardingRefused(f"{key.title}: {code.name}")
        _, answer = parse_response_header(key, version, response.response_data)
        message, _ = await paced(decode_steps(response_class(key), version, bytes(answer)))
        return message

    async def _send(
        self, caller: Caller, key: ApiKey, data: bytes, timeout_ms: int
    ) -> EnvelopeResponse:
        envelope = IdentifiedEnvelope(
            request_data=data,
            request_principal=encode_principal(_principal(caller)),
            client_host_address=_packed(caller.peer.host),
        )
        resend = None
        if _forwarding(key).is_change:
            envelope.request_id = self.random.uuid()
            resend = msgspec.structs.replace(envelope, is_resent=True)
        response = await self.controller.ask(envelope, timeout_ms, resend)
        assert isinstance(response, EnvelopeResponse)
        return response

    def _timeout_ms(self, key: ApiKey, message: Message) -> int:
        field = _forwarding(key).timeout_field
        timeout_ms = None if field is None else getattr(message, field)
        if isinstance(timeout_ms, int) and timeout_ms > 0:
            return min(timeout_ms, self.request_timeout_ms)
        return self.request_timeout_ms


def _forwarding(key: ApiKey) -> Forwarding:
    found = SURFACE[key].forwarding
    assert found is not None, "only what is forwarded comes here"
    return found


def _request_data(request: Request, body: memoryview) -> bytes:
    header = RequestHeader(request.key, request.version, request.correlation_id, request.client_id)
    return encode(header, request_header_version(request.key, request.version)) + bytes(body)


def _principal(caller: Caller) -> DefaultPrincipalData:
    kind, _, name = caller.principal.partition(":")
    return DefaultPrincipalData(kind, name, caller.is_token_authenticated)


def _packed(host: str) -> bytes:
    """Return an IP address as bytes; zeros for a peer without one, such as a simulated one."""
    try:
        return ipaddress.ip_address(without_scope(host)).packed
    except ValueError:
        return bytes(4)


async def _refused(request: Request, message: Message, code: ErrorCode) -> Result:
    """Return the error reply, made in steps: it may repeat all names of the request."""
    from ottla.api.surface.error_reply import error_reply_steps

    key, version = request.key, request.version
    reply = await paced(error_reply_steps(key, version, message, code))
    if reply is None:
        raise ProtocolFault(f"{key.title} v{version} has no field for the error {code.name}")
    data = bytearray()
    await paced(encode_steps(data, reply, version))
    chunks: list[Chunk] = [data]
    return chunks
