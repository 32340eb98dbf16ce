"""From a frame to its reply: find the route, decode, call, encode; errors become replies, too.

Synchronous and without a connection. `Dispatcher.open` reads a frame and raises where the
connection has to be closed; `Dispatcher.call` runs the handler; `Dispatcher.settle` encodes.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ottla.api.surface.replies import (
    BYTES_MAX,
    LARGE_BYTES,
    Answer,
    Body,
    Chunk,
    Handled,
    NoReply,
    Reply,
    ReplyTooLong,
    Result,
    Steps,
    Work,
    finish,
    is_file,
    length_of,
    reply_of,
)
from ottla.api.surface.routes import Caller, FastPath, Route, Routes
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode_prefix, decode_steps, encode_steps
from ottla.protocol.codec.layout import has_records
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ProtocolFault, UnsupportedVersion
from ottla.protocol.frames import (
    LENGTH_SIZE,
    Request,
    UnsupportedRequest,
    parse_request_header,
    refuse_version,
    response_frame,
)
from ottla.protocol.headers import response_header_version
from ottla.protocol.messages import request_class
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Message, covers
from ottla.server.api_versions import ApiVersions, is_software, unsupported
from ottla.server.authenticator import SASL_KEYS, Authenticator, Treatment
from ottla.server.error_mapping import is_planned, to_error_code
from ottla.server.events import ServerEvents

if TYPE_CHECKING:
    from ottla.observability.request_traces import RequestTrace

log = logging.getLogger(__name__)

# Length and correlation id of a response, then for header v1 the count of tagged fields: none.
_PLAIN_HEAD: Final = Struct(">ii")
_TAGGED_HEAD: Final = Struct(">iiB")
# A body up to this size is copied after its header: one buffer is cheaper to send than two.
JOINED_BYTES_MAX: Final = 4096
_TEXT_MAX: Final = 200


class Call(msgspec.Struct):
    """A request being served: its header, its route, and its message once decoded."""

    request: Request
    route: Route
    message: Message | None
    holds_frame: bool
    """Whether an unfinished handler may still read the frame."""
    is_large: bool = False
    """Whether the message is still to be decoded, by `Dispatcher.decode_steps`."""
    trace: "RequestTrace | None" = None
    """Set if the request was sampled."""
    is_denied: bool = False
    """Whether its client may not act on the cluster: not even a request between nodes is exempt."""


class Outgoing(NamedTuple):
    """The reply to a request: chunks (none for no reply), and what follows them."""

    chunks: tuple[Chunk, ...]
    throttle_ms: int = 0
    close: bool = False

    @property
    def held(self) -> int:
        """The memory that the reply holds until it is sent; file slices hold none."""
        return sum(length_of(chunk) for chunk in self.chunks if not is_file(chunk))


def _refusing(key: ApiKey, authenticator: Authenticator | None) -> Authenticator | None:
    """Return the authenticator if it refuses the request; None if the request is served.

    Raises:
        ProtocolFault: the connection has to be closed.
    """
    if authenticator is None:
        return None
    treatment = authenticator.receive(key)
    if treatment is Treatment.CLOSE:
        raise ProtocolFault(f"{key.title} before authentication")
    return authenticator if treatment is Treatment.REFUSE else None


class Dispatcher(msgspec.Struct, frozen=True):
    """Dispatches the requests of one listener."""

    listener: str
    routes: Routes
    api_versions: ApiVersions
    events: ServerEvents

    @property
    def fast_paths(self) -> Mapping[int, tuple[ApiKey, FastPath]]:
        """The fast paths, by API key."""
        return self.routes.fast_paths

    def route_of(self, key: ApiKey) -> Route:
        """Return the route of an API that is served here."""
        found = self.routes.find(key)
        assert found is not None, f"{key.title} is served"
        return found[0]

    def open(self, frame: memoryview, authenticator: Authenticator | None) -> Call | Outgoing:
        """Read a frame; return the call to make, or the reply if none is needed.

        Raises:
            ProtocolFault: not a request, not served here, or not allowed before authentication.
        """
        request = parse_request_header(frame)
        if isinstance(request, UnsupportedRequest):
            if request.key is not ApiKey.API_VERSIONS:
                raise refuse_version(request)
            is_refused = _refusing(request.key, authenticator) is not None
            code = ErrorCode.ILLEGAL_SASL_STATE
            reply = ApiVersionsResponse(error_code=code) if is_refused else unsupported()
            body = response_frame(request.key, 0, request.correlation_id, reply)
            return Outgoing((body,), close=is_refused)
        key, version = request.key, request.version
        refusing = _refusing(key, authenticator)
        if refusing is not None:
            route = Route(key, _refusal_of(key, refusing))
        else:
            route = self._route(request, authenticator)
            if self.routes.disabled(key):
                return self._disabled(request)
        if route.raw:
            return Call(request, route, None, route.keeps_body)
        if len(request.body) >= LARGE_BYTES:
            return Call(request, route, None, holds_frame=True, is_large=True)
        # Bytes after the last field are ignored, as in Kafka: librdkafka sends three bytes too many
        # when it requests all topics.
        message, _ = decode_prefix(request_class(key), version, request.body)
        return Call(request, route, message, route.keeps_body and _has_records(key, version))

    def decode_steps(self, call: Call) -> Steps[None]:
        """Decode the message of a large request; `call` may follow.

        Raises:
            ProtocolFault: as `open`.
        """
        request = call.request
        steps = decode_steps(request_class(request.key), request.version, request.body)
        call.message, _ = yield from steps
        call.holds_frame = call.route.keeps_body and _has_records(request.key, request.version)
        call.is_large = False

    def encode_steps(self, call: Call, result: Result) -> Steps[Result]:
        """Encode a result that may be large; `settle` then has nothing left to encode.

        Raises:
            ValueError: the result cannot be encoded. ReplyTooLong.
        """
        body = result.body if isinstance(result, Answer) else result
        if not isinstance(body, Message):
            return result
        out = bytearray()
        for _ in encode_steps(out, body, call.request.version):
            if len(out) > BYTES_MAX:
                raise ReplyTooLong
            yield
        chunks: list[Chunk] = [out]
        return replace(result, body=chunks) if isinstance(result, Answer) else chunks

    def call(self, caller: Caller, call: Call, *, is_long: bool = False) -> Reply:
        """Call the handler. An exception becomes an error reply, of a long request in steps.

        Raises:
            ProtocolFault: of a raw handler: the body is no message.
        """
        request = call.request
        self.events.requested(self.listener, request.key)
        try:
            if call.message is None:
                return reply_of(call.route.handle(caller, request, request.body))
            return reply_of(call.route.handle(caller, call.message, request.version))
        except Exception as error:
            if call.message is None and isinstance(error, ProtocolFault):
                raise  # a raw handler decodes the body itself: it is not a message
            steps = self.failure_steps(caller, call, error)
            return Work(steps) if is_long else finish(steps)

    def failure(self, caller: Caller, call: Call, error: BaseException) -> Result:
        """Return the error reply, or close the connection where the version has no error field."""
        return finish(self.failure_steps(caller, call, error))

    def failure_steps(self, caller: Caller, call: Call, error: BaseException) -> Steps[Result]:
        """Return what `failure` does, in steps: the reply may repeat all names of the request."""
        from ottla.api.surface.error_reply import error_reply_steps  # few requests fail

        request, code = call.request, to_error_code(error)
        self.events.request_failed(self.listener, request.key, code)
        call.is_denied = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        log.log(
            _level_of(error, code),
            "request failed peer=%s client_id=%s api=%s version=%d error=%s reason=%s",
            *(caller.peer, printable(caller.client_id), request.key.title, request.version),
            *(code.name, printable(f"{type(error).__name__}: {error}")),
            exc_info=None if is_planned(error) else error,
        )
        message = call.message
        if message is None:
            message = yield from self._decoded_steps(request)
        steps = error_reply_steps(request.key, request.version, message, code)
        body = yield from steps
        return Answer(NoReply.NO_REPLY, close=True) if body is None else body

    def settle(self, caller: Caller, call: Call, result: Result) -> Outgoing:
        """Encode a result; one that cannot be encoded becomes an error reply.

        An error that cannot be encoded either closes the connection.
        """
        try:
            return self._outgoing(call.request, result)
        except ValueError as error:
            failure = self.failure(caller, call, error)
        try:
            return self._outgoing(call.request, failure)
        except ValueError:
            return Outgoing((), close=True)

    def _outgoing(self, request: Request, result: Result) -> Outgoing:
        if isinstance(result, Answer):
            chunks = self._chunks(request, result.body)
            return Outgoing(chunks, result.throttle_ms, result.close)
        return Outgoing(self._chunks(request, result))

    def caller_of(self, call: Call, caller: Caller) -> Caller:
        """Return ``caller`` with the client id and, from ApiVersions, the software of a request."""
        message, client_id = call.message, call.request.client_id
        if isinstance(message, ApiVersionsRequest) and is_software(message):
            caller = replace(
                caller,
                software_name=message.client_software_name,
                software_version=message.client_software_version,
            )
        return caller if caller.client_id == client_id else replace(caller, client_id=client_id)

    def _route(self, request: Request, authenticator: Authenticator | None) -> Route:
        key, version = request.key, request.version
        if key is ApiKey.API_VERSIONS:
            if authenticator is not None and not authenticator.admits_all:
                return Route(key, _noted(self.api_versions.handle, authenticator))
            return Route(key, self.api_versions.handle)
        if authenticator is not None and key in SASL_KEYS:
            return Route(key, authenticator.handle)
        found = self.routes.find(key)
        if found is None:
            raise ProtocolFault(f"{key.title} is not served on this listener")
        route, versions = found
        if not covers(versions, version):
            raise UnsupportedVersion(f"{key.title} v{version} is not served")
        return route

    def _disabled(self, request: Request) -> Outgoing:
        """Return the error reply of an API whose feature is off."""
        from ottla.api.surface.error_reply import error_reply

        message, _ = decode_prefix(request_class(request.key), request.version, request.body)
        code = ErrorCode.UNSUPPORTED_VERSION
        body = error_reply(request.key, request.version, message, code)
        if body is None:
            raise UnsupportedVersion(f"{request.key.title}: its feature is off")
        return self._outgoing(request, body)

    def _decoded_steps(self, request: Request) -> Steps[Message | None]:
        """Decode a raw request, for the names that an error reply repeats."""
        try:
            steps = decode_steps(request_class(request.key), request.version, request.body)
            message, _ = yield from steps
        except ProtocolFault:
            return None
        return message

    def _chunks(self, request: Request, body: Body | NoReply) -> tuple[Chunk, ...]:
        if isinstance(body, NoReply):
            return ()
        key, version, correlation_id = request.key, request.version, request.correlation_id
        if isinstance(body, Message):
            return (response_frame(key, version, correlation_id, body),)
        first = body[0] if len(body) == 1 else None
        if isinstance(first, (bytes, bytearray)) and len(first) <= JOINED_BYTES_MAX:
            out = bytearray(_head(key, version, correlation_id, len(first)))
            out += first
            return (out,)
        return (_head(key, version, correlation_id, sum(map(length_of, body))), *body)


def _refusal_of(key: ApiKey, authenticator: Authenticator) -> Callable[..., Handled]:
    """Return a handler that refuses a request in the middle of a login."""
    return lambda caller, message, version: authenticator.refuse(caller, key, message, version)


def _noted(
    handle: Callable[..., ApiVersionsResponse], authenticator: Authenticator
) -> Callable[..., Handled]:
    """Return a handler of ApiVersions that tells the authenticator of a reply without error."""

    def handle_and_note(caller: Caller, message: Message, version: int) -> Handled:
        reply = handle(caller, message, version)
        if reply.error_code == ErrorCode.NONE:
            authenticator.note_api_versions()
        return reply

    return handle_and_note


def _head(key: ApiKey, version: int, correlation_id: int, size: int) -> bytes:
    """Return the length and header of a response with a body of ``size`` bytes."""
    if _header_version(key, version):
        return _TAGGED_HEAD.pack(size + _TAGGED_HEAD.size - LENGTH_SIZE, correlation_id, 0)
    return _PLAIN_HEAD.pack(size + _PLAIN_HEAD.size - LENGTH_SIZE, correlation_id)


_header_version: Final = cache(response_header_version)


@cache
def _has_records(key: ApiKey, version: int) -> bool:
    return has_records(request_class(key), version)


def printable(text: str | None) -> str:
    """Return a client's text for a log line: one line, no control characters, bounded."""
    return "null" if text is None else repr(text[:_TEXT_MAX])


def token_frame(result: Result) -> Outgoing:
    """Return the reply to an authentication token that was sent without a request header."""
    answer = result if isinstance(result, Answer) else Answer(result)
    assert not isinstance(answer.body, Message), "a bare token has no message"
    chunks = () if isinstance(answer.body, NoReply) else tuple(answer.body)
    length = sum(map(length_of, chunks)).to_bytes(4, "big")
    return Outgoing((length, *chunks) if chunks else (), answer.throttle_ms, answer.close)


def _level_of(error: BaseException, code: ErrorCode) -> int:
    """Return the level of a failure. Brokers look for the controller again after NOT_CONTROLLER."""
    if code is ErrorCode.NOT_CONTROLLER:
        return logging.DEBUG
    return logging.INFO if is_planned(error) else logging.ERROR
