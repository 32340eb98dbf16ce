"""Routes, ApiVersions and dispatch, without a connection."""

import struct

import pytest

from ottla.api.surface.replies import NO_REPLY, Answer, length_of
from ottla.api.surface.routes import Caller, Route, Routes
from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotController, ProtocolFault, RequestTimedOut
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.schema import Message
from ottla.runtime.ports import Address
from ottla.server.api_versions import ApiVersions, Features
from ottla.server.dispatch import Call, Dispatcher, Outgoing, printable
from ottla.server.error_mapping import to_error_code
from ottla.server.events import NoEvents
from record_tools import FileRange

CALLER = Caller("User:ANONYMOUS", None, Address("10.0.0.1", 4), "CLIENT")


def nothing(*_: object) -> object:
    return NO_REPLY


def table(*routes: Route, kind: Listener = Listener.BROKER, **options: object) -> Routes:
    return Routes(kind, routes, **options)  # type: ignore[arg-type]


def dispatcher(routes: Routes, features: Features | None = None) -> Dispatcher:
    answers = ApiVersions(routes, lambda: features or Features())
    return Dispatcher("CLIENT", routes, answers, NoEvents())


def frame(key: ApiKey, version: int, body: Message) -> memoryview:
    return memoryview(request_frame(RequestHeader(key, version, 77, "me"), body))[4:]


def served(routes: Routes, key: ApiKey, version: int, body: Message) -> bytes:
    """Serve a request; return the response frame without its length."""
    server = dispatcher(routes)
    call = server.open(frame(key, version, body), None)
    if isinstance(call, Call):
        result = server.call(CALLER, call)
        call = server.settle(CALLER, call, result)  # type: ignore[arg-type]
    data = b"".join(bytes(chunk) for chunk in call.chunks)  # type: ignore[arg-type]
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    return data[4:]


def advertised(routes: Routes, version: int = 4) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest("me", "1")
    body = served(routes, ApiKey.API_VERSIONS, version, request)
    response = decode(ApiVersionsResponse, version, body[4:])
    assert response.error_code == 0
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def every_route() -> tuple[Route, ...]:
    return tuple(Route(key, nothing) for key in APIS if key is not ApiKey.API_VERSIONS)


# -- routes ------------------------------------------------------------------------


def test_listener_has_the_routes_of_its_kind() -> None:
    broker = table(*every_route())
    controller = table(*every_route(), kind=Listener.CONTROLLER)
    assert broker.find(ApiKey.VOTE) is None and controller.find(ApiKey.VOTE) is not None
    assert controller.find(ApiKey.PRODUCE) is None and broker.find(ApiKey.PRODUCE) is not None
    assert len(dict(broker)) + 1 == 79 and len(dict(controller)) + 1 == 42


def test_duplicate_route_and_unknown_version_are_rejected() -> None:
    with pytest.raises(ValueError, match="METADATA is routed twice"):
        table(Route(ApiKey.METADATA, nothing), Route(ApiKey.METADATA, nothing))
    with pytest.raises(ValueError, match="not within"):
        table(Route(ApiKey.METADATA, nothing, versions=(0, 14)))


# -- ApiVersions -------------------------------------------------------------------


def test_advertised_versions_are_the_routed_ones() -> None:
    routes = table(Route(ApiKey.METADATA, nothing, versions=(4, 9)))
    assert advertised(routes) == {ApiKey.METADATA: (4, 9), ApiKey.API_VERSIONS: (0, 5)}


@pytest.mark.parametrize("version", range(6))
def test_api_versions_response_header_is_version_0_in_every_version(version: int) -> None:
    body = served(table(), ApiKey.API_VERSIONS, version, ApiVersionsRequest("me", "1"))
    # Header v0: the correlation id alone. Were it v1, the body would not decode.
    assert struct.unpack_from(">i", body) == (77,)
    assert decode(ApiVersionsResponse, version, body[4:]).error_code == 0


@pytest.mark.parametrize("version", [6, 100, -1, 32767])
def test_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    request = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"what may come"
    answer = dispatcher(table()).open(memoryview(request), None)
    assert isinstance(answer, Outgoing) and not answer.close
    expected = struct.pack(">iihihhh", 18 - 2, 77, 35, 1, 18, 0, 5)
    assert b"".join(answer.chunks) == expected  # type: ignore[arg-type]


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    routes = table(Route(ApiKey.PRODUCE, nothing, raw=True))
    assert advertised(routes)[ApiKey.PRODUCE] == (0, 13)
    for version in range(3):
        request = struct.pack(">hhih", ApiKey.PRODUCE, version, 1, -1)
        with pytest.raises(ProtocolFault, match="not supported"):
            dispatcher(routes).open(memoryview(request), None)


def test_unstable_version_is_served_only_on_request() -> None:
    route = Route(ApiKey.INIT_PRODUCER_ID, nothing, unstable_from=6)
    assert advertised(table(route))[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert advertised(table(route, unstable=True))[ApiKey.INIT_PRODUCER_ID] == (0, 6)


def test_api_whose_feature_is_off_is_advertised_and_rejected() -> None:
    off = {ApiKey.SHARE_GROUP_HEARTBEAT}
    routes = table(Route(ApiKey.SHARE_GROUP_HEARTBEAT, nothing), disabled=lambda key: key in off)
    assert ApiKey.SHARE_GROUP_HEARTBEAT in advertised(routes)
    request = ShareGroupHeartbeatRequest()
    body = served(routes, ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)
    assert struct.unpack_from(">h", body, 4 + 1 + 4) == (ErrorCode.UNSUPPORTED_VERSION,)


def test_invalid_software_name_is_rejected() -> None:
    for name, release in (("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a\n", "1")):
        request = ApiVersionsRequest(name, release)
        body = served(table(), ApiKey.API_VERSIONS, 3, request)
        assert decode(ApiVersionsResponse, 3, body[4:]).error_code == ErrorCode.INVALID_REQUEST


def test_feature_from_level_0_is_left_out_below_version_4() -> None:
    features = Features((("group.version", 0, 1), ("metadata.version", 7, 25)), (("x", 3),), 9)
    answers = ApiVersions(table(), lambda: features)
    replies = {v: answers.handle(CALLER, ApiVersionsRequest("a", "1"), v) for v in (3, 4)}
    assert [f.name for f in replies[3].supported_features] == ["metadata.version"]
    assert len(replies[4].supported_features) == 2
    assert replies[3].finalized_features_epoch == 9
    assert replies[3].finalized_features[0].max_version_level == 3


# -- dispatch ----------------------------------------------------------------------


def test_api_without_a_route_is_rejected() -> None:
    routes = table(Route(ApiKey.METADATA, nothing, versions=(4, 9)))
    server = dispatcher(routes)
    vote = struct.pack(">hhihB", ApiKey.VOTE, 0, 1, -1, 0)
    with pytest.raises(ProtocolFault, match="Vote is not served"):
        server.open(memoryview(vote), None)
    for version in (3, 10):
        with pytest.raises(ProtocolFault, match="not served"):
            server.open(frame(ApiKey.METADATA, version, MetadataRequest()), None)


def test_bytes_after_the_last_field_are_ignored() -> None:
    """librdkafka asks for all topics by a compact null and three bytes more; Kafka answers."""
    routes = table(Route(ApiKey.METADATA, nothing))
    longer = memoryview(bytes(frame(ApiKey.METADATA, 9, MetadataRequest(None))) + b"\0\0\0")
    call = dispatcher(routes).open(longer, None)
    assert isinstance(call, Call) and call.message == MetadataRequest(None)


def test_old_header_in_a_flexible_version_is_rejected() -> None:
    body = b"\0\0\0\1\0\6orders"  # an old body: one topic, by a length of two bytes
    old = struct.pack(">hhih", ApiKey.METADATA, 9, 1, 2) + b"me" + body
    with pytest.raises(ProtocolFault):
        dispatcher(table(Route(ApiKey.METADATA, nothing))).open(memoryview(old), None)


@pytest.mark.parametrize(
    ("fault", "level"), [(NotController("7"), "DEBUG"), (RequestTimedOut("slow"), "INFO")]
)
def test_exception_of_a_handler_becomes_an_error_reply(
    fault: Fault, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every restart finds the controller by NOT_CONTROLLER: it is no news for an operator."""

    def fails(*_: object) -> object:
        raise fault

    caplog.set_level("DEBUG", "ottla.server.dispatch")
    routes = table(Route(ApiKey.FIND_COORDINATOR, fails))
    body = served(routes, ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest())
    answer = decode(FindCoordinatorResponse, 0, body[4:])
    assert answer.error_code == to_error_code(fault)
    assert [each.levelname for each in caplog.records] == [level]


def test_reply_that_cannot_be_encoded_becomes_an_error_reply(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> object:
        return FindCoordinatorResponse(port=2**40)

    routes = table(Route(ApiKey.FIND_COORDINATOR, broken))
    body = served(routes, ApiKey.FIND_COORDINATOR, 0, FindCoordinatorRequest())
    answer = decode(FindCoordinatorResponse, 0, body[4:])
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "peer=10.0.0.1:4" in caplog.text and "api=FindCoordinator version=0" in caplog.text


def test_error_reply_that_cannot_be_encoded_closes_the_connection() -> None:
    server = dispatcher(table(Route(ApiKey.METADATA, lambda *_: None)))
    call = server.open(frame(ApiKey.METADATA, 1, MetadataRequest([])), None)
    assert isinstance(call, Call)
    assert isinstance(call.message, MetadataRequest)
    call.message.topics = [MetadataRequestTopic(name="x" * 40_000)]
    broken = MetadataResponse(controller_id=2**40)
    assert server.settle(CALLER, call, broken) == Outgoing((), close=True)


def test_error_without_a_field_closes_the_connection() -> None:
    def fails(*_: object) -> object:
        raise NotController("7")

    server = dispatcher(table(Route(ApiKey.METADATA, fails)))
    call = server.open(frame(ApiKey.METADATA, 0, MetadataRequest()), None)
    assert isinstance(call, Call)
    assert server.call(CALLER, call) == Answer(NO_REPLY, close=True)


def test_raw_handler_can_reject_a_malformed_body() -> None:
    def reads(*_: object) -> object:
        raise ProtocolFault("no batch")

    server = dispatcher(table(Route(ApiKey.PRODUCE, reads, raw=True)))
    request = memoryview(struct.pack(">hhih", ApiKey.PRODUCE, 3, 1, -1))
    call = server.open(request, None)
    assert isinstance(call, Call)
    with pytest.raises(ProtocolFault):
        server.call(CALLER, call)


@pytest.mark.parametrize(("version", "head"), [(3, 8), (9, 9)])
def test_raw_reply_is_framed_around_its_chunks(version: int, head: int) -> None:
    chunks = [b"ab", memoryview(b"cde"), FileRange(None, 5, 1000)]  # type: ignore[arg-type]
    server = dispatcher(table(Route(ApiKey.PRODUCE, lambda *_: list(chunks), raw=True)))
    request = struct.pack(">hhih", ApiKey.PRODUCE, version, -1, -1) + b"\0" * (version >= 9)
    call = server.open(memoryview(request), None)
    assert isinstance(call, Call)
    result = server.call(CALLER, call)
    out = server.settle(CALLER, call, result)  # type: ignore[arg-type]
    first, *rest = out.chunks
    assert rest == chunks
    assert first == struct.pack(">ii", head - 4 + 1005, -1) + b"\0" * (version >= 9)
    assert sum(map(length_of, out.chunks)) == head + 1005


def test_caller_has_client_id_and_software() -> None:
    server = dispatcher(table())
    call = server.open(frame(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("librdkafka", "2.0")), None)
    assert isinstance(call, Call)
    caller = server.caller_of(call, CALLER)
    assert (caller.client_id, caller.software_name) == ("me", "librdkafka")
    assert server.caller_of(call, caller) == caller


def test_client_text_in_a_log_line_stays_on_one_line() -> None:
    assert printable("a\r\n\x1b[2Jb") == r"'a\r\n\x1b[2Jb'"
    assert len(printable("x" * 10_000)) < 300
    assert printable(None) == "null"
