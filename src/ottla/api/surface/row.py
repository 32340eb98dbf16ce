"""The columns of the API surface: what one row of `ottla.api.surface.table` can say."""

import enum
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ottla.api.surface.constructors import Constructors
from ottla.api.surface.routes import FastPath
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.schema import Versions
from ottla.security.acl import AclOperation, ResourceType

ITEMS_MAX: Final = 10_000
"""Names or rows in one list of a request that is served in one turn."""
KAFKA_4_4: Final = MetadataVersion.IBP_4_4_IV0
"""The level from which on a client may see the versions of Kafka 4.4."""


class Lists(NamedTuple):
    """Names of fields: a list of the request, its result in the reply, and the lists within."""

    rows: str
    results: str
    items: str = ""
    item_results: str = ""
    is_one_by_one: bool = False
    """Whether each row is a piece: its result may be long, such as a group with its members."""


Owner = TypeVar("Owner")


class Method(msgspec.Struct, frozen=True):
    """A method of a class that is constructed with the first request; made by `method`."""

    construct: Callable[[Constructors], object]
    """The constructor of the class, which imports it."""
    # Each handler has its own class and request class, so neither can be annotated here.
    bind: Callable[[Any], Callable[..., Any]]
    """Returns the bound method of an object."""
    fast_path: Callable[[Any], FastPath | None] | None = None
    """Returns the fast path of an object, or None where it does not apply."""

    @property
    def owner(self) -> str:
        """The name of the constructor; methods with the same one share an object."""
        return self.construct.__name__


def method(
    construct: Callable[[Constructors], Owner],
    bind: Callable[[Owner], Callable[..., Any]],
    fast_path: Callable[[Owner], FastPath | None] | None = None,
) -> Method:
    """Return a method; a type checker knows its class by the constructor."""
    return Method(construct, bind, fast_path)


class Handler(msgspec.Struct, frozen=True):
    """How one kind of listener serves an API; `ottla.api.surface.routes` says what a handler is."""

    method: Method
    decision: Callable[..., object] | None = None
    """The function from a `DecisionCall` to a `Decision` that the method makes a handler of: the
    active controller makes it in its turn (`ottla.api.cluster.controller_handlers`)."""
    raw: bool = False
    """Whether the handler gets the undecoded body."""
    keeps_body: bool = True
    """Whether the handler may read the body after it has returned."""
    cancel_when_gone: bool = False
    """Whether its awaitable is cancelled when the client disconnects."""
    is_loaded_at_start: bool = False
    """Whether it is constructed at start rather than with its first request."""
    waits_until_unfenced: bool = False
    """Whether a broker holds the request until it has been unfenced once (`StartGate`)."""
    lists: tuple[Lists, ...] = ()
    """The lists by which a long request is served in pieces (`ottla.api.surface.pieces`); of a
    decision, those whose length is limited (`ottla.api.cluster.long_changes`)."""
    items_max: int | None = None
    """The longest list of a request that is served in one turn
    (`ottla.api.surface.item_limits`)."""


def one_turn(
    construct: Callable[[Constructors], Owner], bind: Callable[[Owner], Callable[..., Any]]
) -> Handler:
    """Return a handler that serves a whole request in one turn, so its lists are limited."""
    return Handler(method(construct, bind), items_max=ITEMS_MAX)


class Forwarding(msgspec.Struct, frozen=True):
    """How a broker forwards a request to the active controller, inside an Envelope."""

    is_change: bool = True
    """Whether it gets an id, so that it can be sent again and is decided once."""
    timeout_field: str | None = None
    """The field with the client's timeout; without one, the node's request timeout counts."""


class Refusal(enum.Enum):
    """How a reply reports that the client is not authorized."""

    WHOLE_REQUEST = "one error for the whole request"
    PER_RESOURCE = "an error on each refused resource"
    LEFT_OUT = "refused resources are left out of the reply"


class Permission(msgspec.Struct, frozen=True):
    """An operation on a resource of a type."""

    resource_type: ResourceType
    operation: AclOperation


class Check(msgspec.Struct, frozen=True):
    """Permissions of which one is needed, and how a refusal is reported."""

    permissions: tuple[Permission, ...]
    refusal: Refusal
    when: str = ""
    """Which requests, or parts of a request, are checked; empty for all."""

    @property
    def is_made_before_handler(self) -> bool:
        """Whether `ottla.api.surface.binding` makes the check: it needs nothing from the
        request."""
        return (
            self.refusal is Refusal.WHOLE_REQUEST
            and not self.when
            and all(each.resource_type is ResourceType.CLUSTER for each in self.permissions)
        )


class AuthorizationRule(msgspec.Struct, frozen=True):
    """The checks of an API, all of which must pass; none where no permission is needed."""

    checks: tuple[Check, ...]


class Throttle(enum.Enum):
    """Which quota an API counts against; see `ottla.server.throttling`."""

    EXEMPT = "exempt"
    """Requests between nodes, which Kafka does not throttle."""
    REQUEST = "request time"
    """The client's share of request handling time, and nothing else."""
    PRODUCE = "request time, bytes produced"
    FETCH = "request time, bytes fetched"
    CONTROLLER_MUTATION = "request time, partition changes"
    """Partitions created and deleted (KIP-599)."""


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API: a row of the table. None for a listener that does not serve it."""

    key: ApiKey
    broker: Handler | None = None
    controller: Handler | None = None
    versions: Versions | None = None
    """The versions served; None for all that the codec knows."""
    unstable_from: int | None = None
    """The first version whose layout Kafka may still change, served only on request."""
    newest_at: tuple[int, MetadataVersion] | None = None
    """The newest version, and the level below which ApiVersions does not list it: clients then find
    the versions of the Kafka release that has the cluster's level."""
    is_advertised: bool = True
    """Whether ApiVersions lists it; an API that it does not list is served all the same."""
    feature: str | None = None
    """The feature that hides the API while it is at level 0."""
    forwarding: Forwarding | None = None
    """How it is forwarded; None for an API that a controller refuses inside an Envelope."""
    authorization: AuthorizationRule | None = None
    """The permissions that a client needs; a node does not start with a row without a rule."""
    controller_authorization: AuthorizationRule | None = None
    """The rule on controller listeners, where it is another one."""
    throttle: Throttle = Throttle.REQUEST

    def on(self, kind: Listener) -> Handler | None:
        """Return how one kind of listener serves it, None where it does not."""
        return self.broker if kind is Listener.BROKER else self.controller

    def rule_on(self, kind: Listener) -> AuthorizationRule | None:
        """Return the permissions that a client of one kind of listener needs."""
        if kind is Listener.CONTROLLER and self.controller_authorization is not None:
            return self.controller_authorization
        return self.authorization

    @property
    def listeners(self) -> Listener:
        """The kinds of listener that serve it."""
        found = Listener(0)
        for kind in Listener:
            if self.on(kind) is not None:
                found |= kind
        return found
