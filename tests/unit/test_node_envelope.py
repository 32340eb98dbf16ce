"""Forwarding: what a client sends reaches the controller and its answer the client, unchanged."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.api.cluster.envelope import EnvelopeHandler, Forwarder
from ottla.api.surface.routes import Caller, Route, Routes
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotController, RequestTimedOut, UnknownTopicOrPartition
from ottla.protocol.frames import LENGTH_SIZE, Request, parse_request_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.internal.principal import DefaultPrincipalData, encode_principal
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.describe_quorum import DescribeQuorumResponse
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.schema import Message
from ottla.runtime.ports import Address
from simulation.random import SimRandom

CLIENT = Caller("User:alice", "my-app", Address("192.0.2.7", 55), "PLAINTEXT")
BROKER = Caller("User:broker", "ottla-node-1", Address("192.0.2.1", 77), "CONTROLLER")
ASKED = CreateTopicsRequest([CreatableTopic("t", 3, 1)], 5000)


@dataclass
class Answering:
    """The controller's handler of CreateTopics."""

    error: Exception | None = None
    reply: Message = field(
        default_factory=lambda: CreateTopicsResponse(topics=[CreatableTopicResult("t")])
    )
    seen: list[tuple[Caller, Message, int]] = field(default_factory=list)

    async def handle(self, caller: Caller, request: Message, version: int) -> Message:
        self.seen.append((caller, request, version))
        if self.error is not None:
            raise self.error
        return self.reply

    def envelopes(self) -> EnvelopeHandler:
        routes = Routes(
            Listener.CONTROLLER,
            (
                Route(ApiKey.CREATE_TOPICS, self.handle),
                Route(ApiKey.DESCRIBE_QUORUM, self.handle),
                Route(ApiKey.FETCH, self.handle),
            ),
        )
        return EnvelopeHandler(routes)


@dataclass
class Direct:
    """The way to the controller, without a network."""

    handler: EnvelopeHandler
    error: Exception | None = None
    timeouts: list[int] = field(default_factory=list)

    async def ask(
        self, request: Message, timeout_ms: int, resend: Message | None = None
    ) -> Message:
        self.timeouts.append(timeout_ms)
        if self.error is not None:
            raise self.error
        assert isinstance(request, EnvelopeRequest)
        wire = decode(EnvelopeRequest, 0, encode(request, 0))
        return await self.handler.handle(BROKER, wire, 0)


def request_of(message: Message, key: ApiKey, version: int, correlation_id: int = 99) -> Request:
    header = RequestHeader(key, version, correlation_id, "my-app")
    frame = memoryview(request_frame(header, message))[LENGTH_SIZE:]
    parsed = parse_request_header(frame)
    assert isinstance(parsed, Request)
    return parsed


def forward(
    direct: Direct, message: Message = ASKED, version: int = 7, caller: Caller = CLIENT
) -> Any:
    request = request_of(message, ApiKey.CREATE_TOPICS, version)
    result = asyncio.run(
        Forwarder(direct, 30_000, SimRandom(1)).forward(caller, request, request.body)
    )
    if isinstance(result, list):
        return decode(CreateTopicsResponse, version, result[0])
    return result


def test_envelope_says_whether_a_delegation_token_authenticated_the_client() -> None:
    for is_token in (False, True):
        answering = Answering()
        forwarder = Forwarder(Direct(answering.envelopes()), 30_000, SimRandom(1))
        client = replace(CLIENT, is_token_authenticated=is_token)
        asyncio.run(forwarder.forward_message(client, ASKED, 5000))
        assert answering.seen[0][0].is_token_authenticated is is_token


def test_request_of_the_broker_itself_is_sent_without_an_envelope() -> None:
    sent: list[Message] = []

    class Controller:
        async def ask(
            self, request: Message, timeout_ms: int, resend: Message | None = None
        ) -> Message:
            sent.append(request)
            return CreateTopicsResponse()

    forwarder = Forwarder(Controller(), 30_000, SimRandom(1))
    asyncio.run(forwarder.forward_message(replace(CLIENT, is_own=True), ASKED, 5000))
    assert sent == [ASKED]


@pytest.mark.parametrize("version", [2, 5, 7])
def test_forwarded_request_and_response_are_unchanged_in_every_version(version: int) -> None:
    answering = Answering()
    answer = forward(Direct(answering.envelopes()), version=version)
    assert answer.topics[0].name == "t"
    caller, request, seen = answering.seen[0]
    assert request == ASKED and seen == version
    assert (caller.principal, caller.client_id) == ("User:alice", "my-app")
    assert caller.peer.host == "192.0.2.7"


def test_forwarding_uses_the_timeout_of_the_request() -> None:
    direct = Direct(Answering().envelopes())
    forward(direct)
    assert direct.timeouts == [5000]


def test_error_of_the_request_is_in_the_response_inside() -> None:
    answer = forward(Direct(Answering(UnknownTopicOrPartition("t")).envelopes()))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_lost_leadership_is_an_error_of_the_envelope() -> None:
    answering = Answering(NotController("gone"))
    response = asyncio.run(answering.envelopes().handle(BROKER, envelope(), 0))
    assert response == EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)


def test_response_of_an_inactive_controller_is_an_error_of_the_envelope() -> None:
    answering = Answering(reply=DescribeQuorumResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    data = request_frame(
        RequestHeader(ApiKey.DESCRIBE_QUORUM, 2, 1, None), decode_empty(ApiKey.DESCRIBE_QUORUM)
    )
    asked = envelope(request_data=bytes(data[LENGTH_SIZE:]))
    response = asyncio.run(answering.envelopes().handle(BROKER, asked, 0))
    assert response.error_code == ErrorCode.NOT_CONTROLLER


def decode_empty(key: ApiKey) -> Message:
    from ottla.protocol.messages import request_class

    return request_class(key)()


def test_forwarding_without_a_controller_times_out() -> None:
    direct = Direct(Answering().envelopes(), RequestTimedOut("nobody"))
    assert forward(direct).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def envelope(**changes: Any) -> EnvelopeRequest:
    data = request_frame(RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "x"), ASKED)
    fields = {
        "request_data": bytes(data[LENGTH_SIZE:]),
        "request_principal": encode_principal(DefaultPrincipalData("User", "alice")),
        "client_host_address": bytes([192, 0, 2, 7]),
    }
    return EnvelopeRequest(**{**fields, **changes})


@pytest.mark.parametrize(
    ("packed", "host"),
    [
        (bytes([127, 0, 0, 1]), "127.0.0.1"),
        (bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1]), "127.0.0.1"),
        (bytes(15) + b"\x01", "0:0:0:0:0:0:0:1"),
    ],
)
def test_client_address_inside_an_envelope_is_canonical(packed: bytes, host: str) -> None:
    answering = Answering()
    request = envelope(client_host_address=packed)
    asyncio.run(answering.envelopes().handle(BROKER, request, 0))
    assert answering.seen[0][0].peer.host == host


@pytest.mark.parametrize(
    ("host", "seen"),
    [
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("fe80:0:0:0:0:0:0:1%2", "fe80:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_client_address_is_forwarded_without_its_scope(host: str, seen: str) -> None:
    answering = Answering()
    forward(Direct(answering.envelopes()), caller=replace(CLIENT, peer=Address(host, 9)))
    assert answering.seen[0][0].peer.host == seen


def fetch_data() -> bytes:
    frame = request_frame(RequestHeader(ApiKey.FETCH, 12, 1, "x"), FetchRequest())
    return bytes(frame[LENGTH_SIZE:])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (lambda: {"request_data": b"\x00"}, ErrorCode.INVALID_REQUEST),
        (lambda: {"request_data": fetch_data()}, ErrorCode.INVALID_REQUEST),
        (lambda: {"request_data": b"\x00\x13\x00\x63" + bytes(6)}, ErrorCode.UNSUPPORTED_VERSION),
        (lambda: {"request_data": envelope().request_data[:-3]}, ErrorCode.INVALID_REQUEST),
        (lambda: {"request_principal": b"\x00"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (lambda: {"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (
            lambda: {"request_data": b"\x00", "request_principal": None},
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (lambda: {"client_host_address": b"\x01\x02\x03"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_envelope_has_an_error_and_calls_no_handler(
    changes: Callable[[], dict[str, Any]], code: ErrorCode
) -> None:
    answering = Answering()
    response = asyncio.run(answering.envelopes().handle(BROKER, envelope(**changes()), 0))
    assert response == EnvelopeResponse(None, code)
    assert answering.seen == []


def test_envelope_with_bytes_after_the_inner_request_is_served() -> None:
    answering = Answering()
    asked = envelope(request_data=envelope().request_data + b"\x01")
    response = asyncio.run(answering.envelopes().handle(BROKER, asked, 0))
    assert response.error_code == ErrorCode.NONE
    assert answering.seen[0][1] == ASKED


def test_forwarder_drops_bytes_after_the_last_field() -> None:
    class Recording(Direct):
        async def ask(
            self, request: Message, timeout_ms: int, resend: Message | None = None
        ) -> Message:
            assert isinstance(request, EnvelopeRequest)
            self.data = request.request_data
            return await super().ask(request, timeout_ms, resend)

    request = request_of(ASKED, ApiKey.CREATE_TOPICS, 7)
    direct = Recording(Answering().envelopes())
    body = memoryview(bytes(request.body) + b"\x01\x02")
    asyncio.run(Forwarder(direct, 30_000, SimRandom(1)).forward(CLIENT, request, body))  # type: ignore[arg-type]
    assert direct.data.endswith(bytes(request.body))
