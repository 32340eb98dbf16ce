"""From the rows of the API surface to the routes of a listener.

A handler that is loaded at start becomes its bound method. Any other becomes a `LazyHandler`,
which has its class imported and constructed by the first request; until then its fast path
declines every request. All rows of one class share one object per listener kind.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from ottla.api.security.access import OPEN, Access
from ottla.api.surface.item_limits import limited
from ottla.api.surface.pieces import in_pieces
from ottla.api.surface.replies import Handled, Result
from ottla.api.surface.routes import Caller, FastPath, Route
from ottla.api.surface.row import Api, Handler
from ottla.api.surface.start_gate import StartGate
from ottla.api.surface.table import SURFACE
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.faults import ClusterNotAuthorized
from ottla.runtime.lazy import Lazy
from ottla.runtime.pending import Pending

Handle = Callable[..., Handled]


class MissingRule(Exception):
    """An API without an authorization rule: its row does not say who may use it."""


class Handlers:
    """The handler objects of one kind of listener, each constructed on first use.

    ``constructors`` are those that the kind of listener has, by their names in
    `ottla.api.surface.constructors`.
    """

    def __init__(self, constructors: Mapping[str, Callable[[], object]]) -> None:
        self._objects = {name: Lazy(construct) for name, construct in constructors.items()}

    def get(self, owner: str) -> Any:  # noqa: ANN401 - what the constructor makes
        """Return the handler object of a constructor.

        Raises:
            KeyError: this kind of listener has no constructor for it.
        """
        return self._objects[owner].get()

    def is_constructed(self, owner: str) -> bool:
        """Say whether the object exists already."""
        return self._objects[owner].is_made

    def __contains__(self, owner: str) -> bool:
        return owner in self._objects

    def resolve(self, key: ApiKey, handler: Handler) -> Handle:
        """Return the handler of a row: a bound method, or the handler of a decision."""
        handle = handler.method.bind(self.get(handler.method.owner))
        if handler.decision is None:
            return handle
        decided: Handle = handle(key, handler.decision)
        return decided

    def fast_path(self, handler: Handler) -> FastPath | None:
        """Return the fast path of a row, None where it has none or it does not apply."""
        if handler.method.fast_path is None:
            return None
        return handler.method.fast_path(self.get(handler.method.owner))


def handlers_of(**objects: object) -> Handlers:
    """Return `Handlers` of objects that exist already, by the names of their constructors."""
    handlers = Handlers({name: partial(objects.__getitem__, name) for name in objects})
    for name in objects:
        handlers.get(name)
    return handlers


def bind_routes(
    kind: Listener,
    handlers: Handlers,
    gate: StartGate | None = None,
    rows: Iterable[Api] = tuple(SURFACE.values()),
    access: Access = OPEN,
    also_advertised: Container[ApiKey] = frozenset(),
) -> tuple[Route, ...]:
    """Return the routes of one kind of listener for every row that its handlers can serve.

    ``gate`` holds the requests of the rows that wait until this broker is unfenced. ``access``
    authorizes the requests whose rule is about the cluster alone. ``also_advertised`` has the APIs
    that ApiVersions lists although their rows say otherwise.

    Raises:
        MissingRule: a row has no authorization rule.
    """
    routes = tuple(
        _bind(row, handler, handlers, gate, _guard(kind, row, handler, access))
        for row in rows
        if (handler := row.on(kind)) is not None and handler.method.owner in handlers
    )
    return tuple(
        replace(route, is_advertised=True) if route.api_key in also_advertised else route
        for route in routes
    )


Guard = Callable[[Handle], Handle]


def _guard(kind: Listener, row: Api, handler: Handler, access: Access) -> Guard:
    """Return a wrapper that makes the checks on the cluster before it calls the handler of a row.

    A broker does not check what it forwards: the controller does, for the client.
    """
    rule = row.rule_on(kind)
    if rule is None:
        raise MissingRule(f"{row.key.title} has no authorization rule")
    checks = tuple(each for each in rule.checks if each.is_made_before_handler)
    is_forwarded = kind is Listener.BROKER and row.forwarding is not None
    if not access.is_enabled or not checks or is_forwarded:
        return lambda handle: handle

    def guarded(handle: Handle) -> Handle:
        # The class of the request depends on the key, so it cannot be annotated here.
        def check(caller: Caller, request: Any, argument: Any) -> Handled:  # noqa: ANN401
            if not access.passes(caller, checks):
                raise ClusterNotAuthorized(f"{caller.principal} may not send {row.key.title}")
            return handle(caller, request, argument)

        return check

    return guarded


def _bind(
    row: Api, handler: Handler, handlers: Handlers, gate: StartGate | None, guard: Guard
) -> Route:
    handle: Handle
    if handler.is_loaded_at_start:
        handle, fast_path = handlers.resolve(row.key, handler), handlers.fast_path(handler)
    else:
        lazy = LazyHandler(row.key, handler, handlers)
        handle, fast_path = (
            lazy.handle,
            None if handler.method.fast_path is None else lazy.fast_path,
        )
    if handler.items_max is not None:
        handle = limited(handle, handler.items_max)
    if handler.lists and handler.decision is None:
        handle = in_pieces(handle, handler.lists)
    if gate is not None and handler.waits_until_unfenced:
        handle = gate.hold(handle)
    return Route(
        row.key,
        guard(handle),
        versions=row.versions,
        unstable_from=row.unstable_from,
        raw=handler.raw,
        keeps_body=handler.keeps_body,
        cancel_when_gone=handler.cancel_when_gone,
        fast_path=fast_path,
        is_advertised=row.is_advertised,
    )


class LazyHandler:
    """The handler of one row, resolved by its first request."""

    __slots__ = ("_fast_path", "_handle", "_handler", "_handlers", "_key")

    def __init__(self, key: ApiKey, handler: Handler, handlers: Handlers) -> None:
        self._key = key
        self._handler = handler
        self._handlers = handlers
        self._handle = Lazy(self._resolve)
        self._fast_path = Lazy(self._resolve_fast_path)

    def _resolve(self) -> Handle:
        return self._handlers.resolve(self._key, self._handler)

    def _resolve_fast_path(self) -> FastPath | None:
        return self._handlers.fast_path(self._handler)

    # The class of the request depends on the key, so it cannot be annotated here.
    def handle(self, caller: Caller, request: Any, argument: Any) -> Handled:  # noqa: ANN401
        """Serve one request; ``argument`` is the version, or the body of a raw request."""
        return self._handle.get()(caller, request, argument)

    def fast_path(
        self, caller: Caller, client: bytes, data: bytearray, start: int, end: int
    ) -> bytearray | Pending[Result] | None:
        """Serve one frame, or decline it: always while the handler is not constructed."""
        if not self._handlers.is_constructed(self._handler.method.owner):
            return None
        path = self._fast_path.get()
        return None if path is None else path(caller, client, data, start, end)
