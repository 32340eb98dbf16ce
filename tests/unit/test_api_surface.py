"""The API surface is one table: complete, resolvable, and bound as its rows say."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tools import api_docs

from ottla.api.security.authorization_rules import NOT_NEEDED, RULES
from ottla.api.surface.binding import (
    Handlers,
    MissingRule,
    bind_routes,
    handlers_of,
)
from ottla.api.surface.constructors import Constructors, NotServed, served_by
from ottla.api.surface.routes import Route
from ottla.api.surface.row import Api, Handler, Method, method
from ottla.api.surface.table import SURFACE, UNSUPPORTED
from ottla.metadata.features import supported_features
from ottla.node.broker.broker_handlers import BrokerConstructors
from ottla.node.controller.controller_handlers import ControllerConstructors
from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.messages import request_class
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.schema import covers

KINDS = list(Listener)
SERVED = [
    pytest.param(row, handler, id=f"{row.key.name}-{kind.name}")
    for row in SURFACE.values()
    for kind in KINDS
    if (handler := row.on(kind)) is not None
]


# -- the table ----------------------------------------------------------------------


def test_every_api_is_served_or_has_a_reason_why_not() -> None:
    assert set(SURFACE) | set(UNSUPPORTED) == set(ApiKey)
    assert not set(SURFACE) & set(UNSUPPORTED)
    assert all(UNSUPPORTED.values())


def test_every_row_serves_the_listeners_that_kafka_serves_it_on() -> None:
    assert {key: row.listeners for key, row in SURFACE.items()} == {
        key: api.listeners for key, api in APIS.items() if key in SURFACE
    }


@pytest.mark.parametrize("row", SURFACE.values(), ids=lambda row: row.key.name)
def test_versions_and_features_of_a_row_exist(row: Api) -> None:
    spoken = APIS[row.key].versions
    first, last = row.versions or spoken
    assert covers(spoken, first) and covers(spoken, last)
    assert row.unstable_from is None or first < row.unstable_from <= last
    assert row.feature is None or row.feature in supported_features()


def problem_with(key: ApiKey, handler: Handler) -> str | None:
    """Return what is wrong with a row's handler, None if nothing is."""
    try:
        function = api_docs.function_of(handler)
    except AttributeError as error:
        return str(error)
    names = list(inspect.signature(function).parameters)
    if handler.decision is not None:
        wanted = ["call"]
    else:
        wanted = ["self", "caller", "request", "body" if handler.raw else "version"]
    if names != wanted:
        return f"parameters {names}, not {wanted}"
    if handler.raw or handler.decision is not None:
        return None
    annotation, name = str(function.__annotations__["request"]), request_class(key).__name__
    return None if name in annotation else f"takes {annotation}, not {name}"


@pytest.mark.parametrize(("row", "handler"), SERVED)
def test_every_handler_resolves_and_has_the_right_signature(row: Api, handler: Handler) -> None:
    assert problem_with(row.key, handler) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"method": Method(Constructors.classic_groups, lambda groups: groups.on_nothing)},
        {"method": Method(Constructors.consumer_groups, lambda groups: groups.on_list)},
        {"method": method(Constructors.classic_groups, lambda groups: groups.on_join)},
        {"raw": True},
        {"decision": ListGroupsRequest},
    ],
    ids=["no_method", "other_class", "other_request", "raw", "decision"],
)
def test_wrong_handler_is_noticed(changed: dict[str, Any]) -> None:
    handler = SURFACE[ApiKey.LIST_GROUPS].broker
    assert handler is not None
    assert problem_with(ApiKey.LIST_GROUPS, handler) is None
    assert problem_with(ApiKey.LIST_GROUPS, replace(handler, **changed)) is not None


# -- constructors -------------------------------------------------------------------

# Constructed apart: by the dispatcher, and around the other routes of the listener.
APART = {"api_versions", "envelope"}


@pytest.mark.parametrize(
    ("kind", "constructors"),
    [(Listener.BROKER, BrokerConstructors), (Listener.CONTROLLER, ControllerConstructors)],
    ids=["broker", "controller"],
)
def test_every_handler_class_has_a_constructor(
    kind: Listener, constructors: Callable[[Any], Constructors]
) -> None:
    handlers = {row.on(kind) for row in SURFACE.values()} - {None}
    owners = {handler.method.owner for handler in handlers if handler is not None}
    assert set(served_by(constructors(None))) == owners - APART


def test_listener_serves_what_it_overrides() -> None:
    class OnlyProduce(Constructors):
        def produce(self) -> Any:
            return "produce"

    assert served_by(Constructors()) == {}
    served = served_by(OnlyProduce())
    assert {name: construct() for name, construct in served.items()} == {"produce": "produce"}
    with pytest.raises(NotServed):
        OnlyProduce().fetch()


# -- forwarding ---------------------------------------------------------------------


def test_forwarded_requests_are_served_by_controllers() -> None:
    forwarded = [row for row in SURFACE.values() if row.forwarding is not None]
    assert len(forwarded) == 21, "what Apache Kafka 4.4 forwards"
    for row in forwarded:
        assert row.listeners == Listener.BROKER | Listener.CONTROLLER
        field = row.forwarding.timeout_field  # type: ignore[union-attr]
        assert field is None or hasattr(request_class(row.key)(), field)


def test_requests_that_name_a_timeout_are_forwarded_with_it() -> None:
    timed = {key for key, row in SURFACE.items() if row.forwarding and row.forwarding.timeout_field}
    assert timed == {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
    }


# -- binding ------------------------------------------------------------------------


class ListGroups:
    """Answers with what it was given."""

    def on_list(self, *call: object) -> Any:
        return call

    def path(self) -> Any:
        return lambda *call: bytearray(call[1])

    def no_path(self) -> None:
        return None


OWNER = "classic_groups"


def row_of(fast_path: Any = None, **columns: Any) -> Api:
    served = Method(Constructors.classic_groups, lambda groups: groups.on_list, fast_path)
    handler = Handler(served, **columns)
    return Api(key=ApiKey.LIST_GROUPS, broker=handler, authorization=NOT_NEEDED)


def test_row_without_an_authorization_rule_cannot_be_bound() -> None:
    row = replace(row_of(), authorization=None)
    with pytest.raises(MissingRule, match="ListGroups"):
        bind_routes(Listener.BROKER, handlers_of(classic_groups=ListGroups()), rows=[row])


def test_every_row_has_an_authorization_rule_on_every_listener() -> None:
    missing = [
        row.key
        for row in SURFACE.values()
        for kind in Listener
        if row.on(kind) is not None and row.rule_on(kind) is None
    ]
    assert missing == []
    assert set(RULES) == set(SURFACE)


class Constructed:
    """Binds one row to `ListGroups` and counts how often that is constructed."""

    def __init__(self, row: Api) -> None:
        self.count = 0
        handlers = Handlers({OWNER: self._construct})
        self.route: Route
        (self.route,) = bind_routes(Listener.BROKER, handlers, rows=[row])

    def _construct(self) -> ListGroups:
        self.count += 1
        return ListGroups()


def test_lazy_handler_is_constructed_once_by_its_first_request() -> None:
    bound = Constructed(row_of())
    assert bound.count == 0
    assert bound.route.handle("caller", "request", 3) == ("caller", "request", 3)
    assert bound.route.handle("caller", "request", 4) == ("caller", "request", 4)
    assert bound.count == 1


def test_handler_loaded_at_start_is_constructed_by_binding() -> None:
    assert Constructed(row_of(is_loaded_at_start=True)).count == 1


def test_fast_path_of_a_lazy_handler_declines_until_it_is_constructed() -> None:
    bound = Constructed(row_of(fast_path=lambda groups: groups.path()))
    fast_path: Any = bound.route.fast_path
    assert fast_path("caller", b"c", bytearray(), 0, 0) is None
    assert bound.count == 0, "a fast path constructs nothing"
    bound.route.handle("caller", "request", 3)
    assert fast_path("caller", b"c", bytearray(), 0, 0) == b"c"


def test_fast_path_that_does_not_apply_declines_every_request() -> None:
    bound = Constructed(row_of(fast_path=lambda groups: groups.no_path()))
    bound.route.handle("caller", "request", 3)
    fast_path: Any = bound.route.fast_path
    assert fast_path("caller", b"c", bytearray(), 0, 0) is None
    assert (
        Constructed(
            row_of(fast_path=lambda groups: groups.no_path(), is_loaded_at_start=True)
        ).route.fast_path
        is None
    )
    assert Constructed(row_of()).route.fast_path is None


def test_binding_keeps_every_column() -> None:
    row = replace(
        row_of(raw=True, keeps_body=False, cancel_when_gone=True),
        versions=(1, 2),
        is_advertised=False,
    )
    (route,) = bind_routes(Listener.BROKER, handlers_of(classic_groups=ListGroups()), rows=[row])
    assert (route.api_key, route.versions, route.is_advertised) == (
        ApiKey.LIST_GROUPS,
        (1, 2),
        False,
    )
    assert (route.raw, route.keeps_body, route.cancel_when_gone) == (True, False, True)


def test_rows_of_other_listeners_and_classes_are_not_bound() -> None:
    handlers = handlers_of(classic_groups=ListGroups())
    assert bind_routes(Listener.CONTROLLER, handlers, rows=[row_of()]) == ()
    assert bind_routes(Listener.BROKER, handlers_of(nothing=ListGroups())) == ()


def test_only_requests_about_the_cluster_wait_until_the_broker_is_unfenced() -> None:
    waiting = {
        key for key, row in SURFACE.items() if row.broker and row.broker.waits_until_unfenced
    }
    assert waiting == {
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.FIND_COORDINATOR,
    }


def test_gate_holds_the_rows_that_wait() -> None:
    class Gate:
        def hold(self, handle: Any) -> Any:
            return lambda *call: ("held", handle(*call))

    gate: Any = Gate()
    handlers = handlers_of(classic_groups=ListGroups())
    for waits, expected in ((True, ("held", (1, 2, 3))), (False, (1, 2, 3))):
        rows = [row_of(waits_until_unfenced=waits)]
        (route,) = bind_routes(Listener.BROKER, handlers, gate, rows)
        assert route.handle(1, 2, 3) == expected


# -- documentation ------------------------------------------------------------------


def test_page_about_apis_is_current() -> None:
    assert api_docs.PAGE.read_text() == api_docs.page(), "run make docs"


def test_page_about_apis_lists_every_api() -> None:
    lines = api_docs.page().splitlines()
    for key in SURFACE:
        assert sum(f"| {key:d} | {key.title} |" in line for line in lines) == 1
