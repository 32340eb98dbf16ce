"""The routes of a listener: which handler serves which API, in which versions.

`ottla.api.surface.binding` makes them from the rows of `ottla.api.surface.table`. An API without a
route is neither advertised nor served; an API with one is both, unless its row says otherwise.

A handler is called on the event loop, in the order in which requests arrive on a connection:

    handle(caller, request, version) -> Result | Pending[Result]      decoded
    handle(caller, request, body)    -> Result | Pending[Result]      raw; a frames.Request

What it does before it returns is therefore ordered; a `Pending` reply comes later, beside those of
later requests, and replies are still sent in order. It is not cancelled when the client
disconnects, unless its route has ``cancel_when_gone``, which fits handlers that only wait, as for a
long poll.

A handler that is an ``async def`` or a generator returns a `Work`: a pending reply that the
connection makes, by a task or by steps. Where the work grows with a list in the request, or with
the cluster, a generator yields every few rows (`ottla.api.surface.replies.Steps`): a small request
is answered at once, a large one in slices with other connections served in between. Neither may
rely on the order of requests: an ``async def`` has done nothing when it returns.

A raw handler gets the header and the undecoded body: a view into the receive buffer, writable,
valid until the handler has returned and, if it returned a pending reply, until that has ended. A
route with ``keeps_body=False`` does not read it after returning, so the connection can reuse its
buffer: Produce is one, except for work that ``holds_body``. The same holds for records inside a
decoded request; everything else in it is a copy.

A route may have a ``fast_path`` for small requests of one common form:

    fast_path(caller, client, buffer, start, end) -> bytearray | Pending[Result] | None

A connection offers it each frame ``buffer[start:end]`` of its API first. ``caller`` made the
request; ``client`` is the client id of the connection's previous request as encoded in its header.
The fast path returns the whole reply (empty for none), or a pending one whose result is the body.
It returns None for a request of any other form, having changed nothing; the frame is then served by
``handle``, which must give the same reply to every request that the fast path serves. An API with a
fast path is never ``disabled``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ottla.api.surface.replies import Handled, Result
from ottla.metadata.answered_requests import RequestIdentity
from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.schema import Versions, covers
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Address

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of clients on a listener without authentication, as in Kafka."""


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request. One object is shared by all requests with the same values."""

    principal: str
    client_id: str | None
    peer: Address
    listener: str
    software_name: str = ""
    software_version: str = ""
    is_token_authenticated: bool = False
    """Whether the principal logged in with a delegation token."""
    is_forwarded: bool = False
    """Whether a broker forwarded the request for its client."""
    is_own: bool = False
    """Whether this broker itself needs the request; it is sent as the broker's, unforwarded."""
    request: RequestIdentity | None = None
    """The identity of a forwarded request that a broker may send again."""


FastPath = Callable[[Caller, bytes, bytearray, int, int], bytearray | Pending[Result] | None]


class Route(msgspec.Struct, frozen=True):
    """One API and its handler. ``versions`` limits those served; None for all of the codec."""

    api_key: ApiKey
    # Each handler has its own request class, so the parameters cannot be annotated here.
    handle: Callable[..., Handled]
    versions: Versions | None = None
    unstable_from: int | None = None
    """The first version whose layout Kafka may still change."""
    raw: bool = False
    keeps_body: bool = True
    cancel_when_gone: bool = False
    fast_path: FastPath | None = None
    is_advertised: bool = True
    """Whether ApiVersions lists it; an API that it does not list is served all the same."""


def nothing_disabled(key: ApiKey) -> bool:
    """Hide no API: the default of `Routes`."""
    return False


def every_version(key: ApiKey) -> int | None:
    """Advertise every version that is served: the default of `Routes`."""
    return None


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of one kind of listener.

    ``disabled`` says which APIs a feature switches off at the moment: as in Kafka they are
    advertised all the same, and a request for one is answered with UNSUPPORTED_VERSION. ``newest``
    returns the last version that is advertised at the moment, None for the last that is served.
    ``unstable`` also serves versions whose layout Kafka may still change
    (``unstable.api.versions.enable``).
    """

    kind: Listener
    routes: tuple[Route, ...]
    disabled: Callable[[ApiKey], bool] = nothing_disabled
    unstable: bool = False
    newest: Callable[[ApiKey], int | None] = every_version
    _found: Mapping[int, tuple[Route, Versions]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found: dict[int, tuple[Route, Versions]] = {}
        for route in self.routes:
            if route.api_key in found:
                raise ValueError(f"{route.api_key.name} is routed twice")
            versions = _versions(route, self.unstable)
            if versions is not None and self.kind in APIS[route.api_key].listeners:
                found[route.api_key] = (route, versions)
        object.__setattr__(self, "_found", found)

    def find(self, key: int) -> tuple[Route, Versions] | None:
        """Return the route of an API and the versions served; None where this listener has none."""
        return self._found.get(key)

    @property
    def fast_paths(self) -> Mapping[int, tuple[ApiKey, FastPath]]:
        """The APIs of this listener that have a fast path, by API key."""
        return {
            key: (route.api_key, route.fast_path)
            for key, (route, _) in self._found.items()
            if route.fast_path is not None and route.versions is None
        }

    def __iter__(self) -> Iterator[tuple[ApiKey, Versions]]:
        """Yield the advertised APIs with their versions, by ascending key."""
        for key in sorted(self._found):
            route, versions = self._found[key]
            if route.is_advertised:
                newest = self.newest(route.api_key)
                if newest is None:
                    yield route.api_key, versions
                elif newest >= versions[0]:
                    yield route.api_key, (versions[0], newest)


def _versions(route: Route, unstable: bool) -> Versions | None:
    spoken = APIS[route.api_key].versions
    first, last = route.versions or spoken
    if not (covers(spoken, first) and covers(spoken, last) and first <= last):
        raise ValueError(f"{route.api_key.name}: {first}-{last} is not within {spoken}")
    if not unstable and route.unstable_from is not None:
        last = min(last, route.unstable_from - 1)
    return (first, last) if first <= last else None
