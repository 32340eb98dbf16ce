"""The ASGI application: authenticates a request, finds its handler, and answers every failure.

Replies are JSON in the content type that the client prefers. Errors have the body
``{"error_code": ..., "message": ...}``.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from ottla.registry.client_hosts import named_host
from ottla.registry.http_call import (
    HOST_HEADER,
    PRINCIPAL_HEADER,
    Call,
    Identity,
    RawRequest,
    Reply,
    error_reply,
    is_json,
    pick_content_type,
)
from ottla.registry.http_handlers import ROUTES, Handler
from ottla.registry.rules.errors import Rejection
from ottla.registry.rules.paths import PATH_LENGTH_MAX, Target, parse_target
from ottla.registry.rules.subjects import BadContext
from ottla.registry.service import SchemaRegistry
from ottla.runtime.asgi_service import CERTIFICATE

log = logging.getLogger(__name__)

FORWARD_HEADER: Final = "x-forward"
LOADING_S: Final = 5.0
"""How long a request waits for the registry to read its topic after a start."""
BODY_S: Final = 30.0
BODIES_BYTES_MAX: Final = 256 << 20
"""Bytes of all bodies that are being received."""
_OWN_HEADERS: Final = (PRINCIPAL_HEADER, HOST_HEADER)
_BODY_METHODS: Final = ("POST", "PUT")
_FAILED: Final = Rejection(500, "Internal Server Error; see the log of the node")


class Unauthenticated(Exception):
    """Credentials are missing or wrong; ``challenge`` is the WWW-Authenticate header."""

    def __init__(self, challenge: str) -> None:
        super().__init__(challenge)
        self.challenge = challenge


class Authentication(Protocol):
    """Finds out who sent a request."""

    async def identify(
        self, headers: Mapping[str, str], certificate: bytes | None, host: str
    ) -> Identity:
        """Return the sender. Raises Unauthenticated."""
        ...


class Nodes(Protocol):
    """The nodes of the cluster, which may forward requests."""

    async def has(self, host: str) -> bool:
        """Say whether a connection from an address may be one of a node."""
        ...


class Counts(msgspec.Struct):
    """Replies by class of status, 1 to 5."""

    requests: int = 0
    by_class: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, status: int) -> None:
        """Count a reply."""
        self.requests += 1
        self.by_class[status // 100] = self.by_class.get(status // 100, 0) + 1


class RegistryApp:
    """The application."""

    def __init__(
        self, registry: SchemaRegistry, authentication: Authentication, nodes: Nodes
    ) -> None:
        self._registry = registry
        self._authentication = authentication
        self._nodes = nodes
        self.counts = Counts()
        self._body_bytes = 0  # of bodies that are being received

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        headers = _headers(scope)
        try:
            reply = await self._answer(request, headers)
        except ClientDisconnect:
            return
        self.counts.add(reply.status)
        content_type = pick_content_type(headers.get("accept", "")) or "application/json"
        raw = [
            (b"content-length", str(len(reply.body)).encode()),
            (b"content-type", content_type.encode()),
            *((name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": raw})
        body = b"" if scope["method"] == "HEAD" else reply.body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, request: Request, headers: Mapping[str, str]) -> Reply:
        try:
            return await self._handle(request, headers)
        except Rejection as rejection:
            return error_reply(rejection)
        except BadContext as error:
            return error_reply(Rejection(400, str(error)))
        except Unauthenticated as error:
            reply = error_reply(Rejection(40101, "Unauthorized"))
            challenge = ("www-authenticate", error.challenge)
            return msgspec.structs.replace(reply, headers=(challenge,))
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("request failed method=%s path=%.200s", request.method, request.url.path)
            return error_reply(_FAILED)

    async def _handle(self, request: Request, headers: Mapping[str, str]) -> Reply:
        path, query = _raw_target(request.scope)
        if len(path) + len(query) > PATH_LENGTH_MAX:
            raise Rejection(414, "HTTP 414 URI Too Long")
        try:
            target = parse_target(path, query)
        except BadContext:
            raise
        except ValueError:  # more parameters than anybody needs
            raise Rejection(400, "HTTP 400 Bad Request") from None
        identity = await self._identify(request.scope, headers)
        handler, names = _route(request.method, target)
        if target.segments and not await self._registry.store.wait_loaded(LOADING_S):
            raise Rejection(50301, "The registry is loading its schemas")
        if pick_content_type(headers.get("accept", "")) is None:
            raise Rejection(406, "HTTP 406 Not Acceptable")
        body = b""
        if request.method in _BODY_METHODS:
            if not is_json(headers.get("content-type", "")):
                raise Rejection(415, "HTTP 415 Unsupported Media Type")
            try:
                async with asyncio.timeout(BODY_S):
                    body = await self._body(request)
            except TimeoutError:
                raise Rejection(408, "HTTP 408 Request Timeout") from None
        passed = [item for item in headers.items() if item[0] not in _OWN_HEADERS]
        raw = RawRequest(
            request.method,
            f"{path}?{query}" if query else path,
            (
                *passed,
                (PRINCIPAL_HEADER, quote(identity.principal)),
                (HOST_HEADER, identity.host),
            ),
            body,
            is_forwarded(headers),
        )
        return await handler(self._registry, Call(raw, target, names, identity))

    async def _identify(self, scope: Scope, headers: Mapping[str, str]) -> Identity:
        host = scope["client"][0] if scope["client"] else ""
        certificate: bytes | None = scope.get(CERTIFICATE)
        identity = await self._authentication.identify(headers, certificate, host)
        client = named_host(headers) if is_forwarded(headers) else None
        if client is not None and await self._nodes.has(host):
            return msgspec.structs.replace(identity, host=client)
        return identity

    async def _body(self, request: Request) -> bytes:
        bytes_max = self._registry.settings.body_bytes_max
        received = bytearray()
        try:
            async for piece in request.stream():
                received += piece
                self._body_bytes += len(piece)
                if len(received) > bytes_max:
                    raise Rejection(413, "HTTP 413 Request Entity Too Large")
                if self._body_bytes > BODIES_BYTES_MAX:
                    raise Rejection(503, "Too many requests are being received")
        finally:
            self._body_bytes -= len(received)
        return bytes(received)


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Say whether a node has forwarded a request, or a client pretends so."""
    return headers.get(FORWARD_HEADER, "").lower() == "true"


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name; of one that is repeated, the first."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return headers


def _raw_target(scope: Scope) -> tuple[str, str]:
    raw: Any = scope.get("raw_path")
    path = scope["path"].encode() if raw is None else raw
    return path.partition(b"?")[0].decode("latin-1"), scope["query_string"].decode("latin-1")


_Pattern: TypeAlias = tuple[tuple[tuple[int, str], ...], tuple[int, ...], dict[str, Handler]]
"""Literal segments with their places, places of variable segments, handlers by method."""


def _patterns() -> dict[int, list[_Pattern]]:
    """Return the patterns of `ROUTES` by their number of segments; those with literals first."""
    patterns: dict[int, list[_Pattern]] = {}
    for route, methods in sorted(ROUTES.items(), key=lambda item: item[0].count("*")):
        parts = route.split("/") if route else []
        literals = tuple((place, part) for place, part in enumerate(parts) if part != "*")
        places = tuple(place for place, part in enumerate(parts) if part == "*")
        patterns.setdefault(len(parts), []).append((literals, places, methods))
    return patterns


_PATTERNS: Final = _patterns()


def _route(method: str, target: Target) -> tuple[Handler, tuple[str, ...]]:
    """Return the handler of a path, and its variable segments. Raises a Rejection."""
    looked_up = "GET" if method == "HEAD" else method
    segments, is_known = target.segments, False
    for literals, places, methods in _PATTERNS.get(len(segments), ()):
        if any(segments[place] != literal for place, literal in literals):
            continue
        is_known = True
        handler = methods.get(looked_up)
        if handler is not None:
            return handler, tuple(segments[place] for place in places)
    if is_known:
        raise Rejection(405, "HTTP 405 Method Not Allowed")
    raise Rejection(404, "HTTP 404 Not Found")
