"""Routes whose handlers are made when one of them is first called.

A route has to be known from the start: it is advertised. Its handler, with the messages it speaks
of and the rules behind it, is most of the code of a node and is needed later, if ever. So the
table promises the routes, and the first request of any of them makes the handlers of all.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ottla.api.replies import Handled
from ottla.api.routes import Caller, FastPath, Route
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Versions
from ottla.runtime.lazy import Lazy


class Promise(msgspec.Struct, frozen=True):
    """What is said of a route before its handler is there; as in `Route`, and decoded."""

    api_key: ApiKey
    versions: Versions | None = None
    cancel_when_gone: bool = False
    has_fast_path: bool = False
    is_advertised: bool = True


def late_routes(
    make: Callable[[], Iterable[Route]], *promised: ApiKey | Promise
) -> tuple[Route, ...]:
    """Return the routes that are promised; ``make`` returns those that then answer.

    Raises:
        ValueError: on the first call, where ``make`` does not keep what was promised.
    """
    promises = tuple(p if isinstance(p, Promise) else Promise(p) for p in promised)
    handlers = Lazy(lambda: _kept(promises, tuple(make())))
    return tuple(
        Route(
            promise.api_key,
            _handler(handlers, promise.api_key),
            versions=promise.versions,
            cancel_when_gone=promise.cancel_when_gone,
            fast_path=_fast_path(handlers, promise.api_key) if promise.has_fast_path else None,
            is_advertised=promise.is_advertised,
        )
        for promise in promises
    )


Handlers = dict[ApiKey, Route]


def _handler(handlers: Lazy[Handlers], key: ApiKey) -> Callable[..., Handled]:
    # The request is of the class that its key has, which no annotation here can say.
    def handle(caller: Any, request: Any, version: Any) -> Handled:  # noqa: ANN401
        return handlers.get()[key].handle(caller, request, version)

    return handle


def _fast_path(handlers: Lazy[Handlers], key: ApiKey) -> FastPath:
    """Return a fast path that declines until the first request has made the handlers."""

    def fast_path(
        caller: Caller, client: bytes, data: bytearray, start: int, end: int
    ) -> bytearray | None:
        path = handlers.get()[key].fast_path if handlers.is_made else None
        return None if path is None else path(caller, client, data, start, end)

    return fast_path


def _kept(promises: tuple[Promise, ...], routes: tuple[Route, ...]) -> Handlers:
    made = {
        Promise(
            *(each.api_key, each.versions, each.cancel_when_gone, each.fast_path is not None),
            is_advertised=each.is_advertised,
        )
        for each in routes
    }
    if made != set(promises) or any(route.raw for route in routes):
        raise ValueError(f"late routes: {made} was made, {promises} was promised")
    return {route.api_key: route for route in routes}
