"""Charging requests to quotas, and the throttle time in replies of every form."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from ottla.api.cluster.envelope import EnvelopeHandler
from ottla.api.surface.replies import NO_REPLY, Answer
from ottla.api.surface.routes import Caller, Routes
from ottla.api.surface.routes import Route as ServedRoute
from ottla.api.surface.throttle_field import throttle_of, with_throttle
from ottla.controller.mutation_quotas import BUCKETS_MAX, MutationQuotas
from ottla.metadata.configs import ClientQuotas as ImageQuotas
from ottla.metadata.configs import quota_entity
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request, parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.internal.principal import DefaultPrincipalData, encode_principal
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from ottla.protocol.types import Millis
from ottla.quotas.client_quotas import ClientQuotas
from ottla.runtime.ports import Address
from ottla.server.throttling import Throttling, metered, metered_await

ALICE = Caller("User:alice", "app", Address("127.0.0.1", 1), "PLAINTEXT")
BOB = Caller("User:bob", "app", Address("127.0.0.1", 2), "PLAINTEXT")


def throttling(**limits: float) -> Throttling:
    quotas = ClientQuotas()
    quotas.update({(("user", "alice"),): limits})
    return Throttling(quotas, lambda: Millis(0))


def request(key: ApiKey, version: int) -> Request:
    return Request(key, version, 1, "app", memoryview(b""))


def test_produce_is_charged_by_its_size_even_without_a_reply() -> None:
    quotas = throttling(producer_byte_rate=100.0)
    produce = request(ApiKey.PRODUCE, 9)
    body = [encode(ProduceResponse(), 9)]
    assert quotas.charge(ALICE, produce, 100, 0.0, body) is body
    found = quotas.charge(ALICE, produce, 100, 0.0, body)
    assert isinstance(found, Answer) and found.throttle_ms == 1001
    assert isinstance(found.body, ProduceResponse) and found.body.throttle_time_ms == 1001
    without = quotas.charge(ALICE, produce, 100, 0.0, NO_REPLY)
    assert without == Answer(NO_REPLY, 2001)
    assert quotas.charge(BOB, produce, 10**9, 0.0, body) is body


def test_fetch_is_charged_by_the_size_of_its_reply_and_followers_are_exempt() -> None:
    quotas = throttling(consumer_byte_rate=100.0)
    fetch = request(ApiKey.FETCH, 12)
    chunks = [bytes(100), bytes(100)]
    follower = Answer(chunks, is_exempt=True)
    assert quotas.charge(ALICE, fetch, 10, 0.0, follower) is follower
    found = quotas.charge(ALICE, fetch, 10, 0.0, chunks)
    assert isinstance(found, Answer) and found.throttle_ms == 1001
    assert not isinstance(found.body, ApiVersionsResponse)
    assert bytes(found.body[0])[:4] == (1001).to_bytes(4, "big")  # type: ignore[index]


@pytest.mark.parametrize(
    ("key", "is_charged"),
    [
        (ApiKey.HEARTBEAT, True),
        (ApiKey.SASL_AUTHENTICATE, False),
        (ApiKey.VOTE, False),
        (ApiKey.BROKER_HEARTBEAT, False),
    ],
)
def test_request_time_is_charged_except_between_nodes(key: ApiKey, is_charged: bool) -> None:
    quotas = throttling(request_percentage=1.0)
    found = quotas.charge(ALICE, request(key, 1), 10, 0.015, HeartbeatResponse())
    assert isinstance(found, Answer) is is_charged
    if isinstance(found, Answer):
        assert found.throttle_ms == 501
        assert isinstance(found.body, HeartbeatResponse) and found.body.throttle_time_ms == 501


def test_produce_without_acks_is_exempt_from_request_time_but_not_from_bytes() -> None:
    """As in Kafka."""
    quotas = throttling(request_percentage=1.0, producer_byte_rate=1000.0)
    produce = request(ApiKey.PRODUCE, 9)
    assert quotas.charge(ALICE, produce, 10, 5.0, NO_REPLY) is NO_REPLY
    closing = Answer(NO_REPLY, close=True)
    assert quotas.charge(ALICE, produce, 10, 5.0, closing) is closing
    body = [encode(ProduceResponse(), 9)]
    charged = quotas.charge(ALICE, produce, 10, 0.015, body)
    assert isinstance(charged, Answer) and charged.throttle_ms == 501
    over = quotas.charge(ALICE, produce, 2000, 0.0, NO_REPLY)
    assert isinstance(over, Answer) and over.throttle_ms > 1000


@pytest.mark.parametrize("key", [ApiKey.WRITE_TXN_MARKERS, ApiKey.ENVELOPE, ApiKey.VOTE])
def test_request_between_nodes_of_a_client_that_may_not_send_it_is_charged(key: ApiKey) -> None:
    """As in Kafka: otherwise a client without rights would escape its quota."""
    quotas = throttling(request_percentage=1.0)
    reply = HeartbeatResponse()
    assert quotas.charge(ALICE, request(key, 0), 10, 0.015, reply) is reply
    denied = quotas.charge(ALICE, request(key, 0), 10, 0.015, reply, is_denied=True)
    assert isinstance(denied, Answer) and denied.throttle_ms == 501


def test_longest_throttle_time_of_bytes_and_request_time_counts() -> None:
    produce, body = request(ApiKey.PRODUCE, 9), [encode(ProduceResponse(), 9)]
    quotas = throttling(request_percentage=1.0, producer_byte_rate=1000.0)
    by_time = quotas.charge(ALICE, produce, 1100, 0.015, body)
    assert isinstance(by_time, Answer) and by_time.throttle_ms == 501
    quotas = throttling(request_percentage=1.0, producer_byte_rate=1000.0)
    by_bytes = quotas.charge(ALICE, produce, 3000, 0.015, body)
    assert isinstance(by_bytes, Answer) and by_bytes.throttle_ms == 2001


def test_time_to_send_a_reply_is_charged_to_the_next_request() -> None:
    quotas = throttling(request_percentage=1.0)
    heartbeat, reply = request(ApiKey.HEARTBEAT, 1), HeartbeatResponse()
    assert quotas.charge(ALICE, heartbeat, 10, 0.005, reply) is reply
    quotas.charge_sending(ALICE, heartbeat, 0.010, reply, is_denied=False)
    throttled = quotas.charge(ALICE, heartbeat, 10, 0.0, reply)
    assert isinstance(throttled, Answer) and throttled.throttle_ms == 501


@pytest.mark.parametrize(
    ("key", "result"),
    [
        (ApiKey.PRODUCE, NO_REPLY),
        (ApiKey.VOTE, HeartbeatResponse()),
        (ApiKey.FETCH, Answer(HeartbeatResponse(), is_exempt=True)),
    ],
    ids=["acks=0", "node", "follower"],
)
def test_time_to_send_an_exempt_reply_is_not_charged(key: ApiKey, result: Any) -> None:
    quotas = throttling(request_percentage=1.0)
    quotas.charge_sending(ALICE, request(key, 1), 5.0, result, is_denied=False)
    reply = HeartbeatResponse()
    assert quotas.charge(ALICE, request(ApiKey.HEARTBEAT, 1), 10, 0.005, reply) is reply


class Route:
    """A handler of the controller listener that takes ``spent_s`` of the event loop's time."""

    def __init__(self, spent_s: float, reply: Any) -> None:
        self.now = 0.0
        self._spent_s = spent_s
        self._reply = reply

    def handle(self, caller: Caller, message: Any, version: int) -> Any:
        self.now += self._spent_s
        return self._reply


def forwarded(route: Route, quotas: Throttling, principal: str = "alice") -> Any:
    """Serve a CreateTopics of a client inside an Envelope; return the response inside."""
    quotas.stopwatch = lambda: route.now
    key, version = ApiKey.CREATE_TOPICS, 7
    routes = Routes(Listener.CONTROLLER, (ServedRoute(key, route.handle),))
    data = bytes(request_frame(RequestHeader(key, version, 1, "app"), CreateTopicsRequest()))[4:]
    envelope = EnvelopeRequest(
        data, encode_principal(DefaultPrincipalData("User", principal)), bytes([127, 0, 0, 1])
    )
    reply = asyncio.run(EnvelopeHandler(routes, quotas).handle(BOB, envelope, 0))
    assert reply.error_code == 0 and reply.response_data is not None
    _, body = parse_response_header(key, version, reply.response_data)
    return decode(CreateTopicsResponse, version, bytes(body))


def test_controller_charges_the_client_of_a_forwarded_request_for_its_own_time() -> None:
    quotas = throttling(request_percentage=1.0)
    assert forwarded(Route(0.005, CreateTopicsResponse()), quotas).throttle_time_ms == 0
    assert forwarded(Route(0.010, CreateTopicsResponse()), quotas).throttle_time_ms == 501
    assert forwarded(Route(9.0, CreateTopicsResponse()), quotas, "bob").throttle_time_ms == 0


def test_throttle_time_of_a_decision_is_kept_if_it_is_longer() -> None:
    quotas = throttling(request_percentage=1.0)
    reply = CreateTopicsResponse(throttle_time_ms=800)
    assert forwarded(Route(0.015, reply), quotas).throttle_time_ms == 800


def test_throttle_time_of_the_handler_is_kept_if_it_is_longer() -> None:
    quotas = throttling(request_percentage=1.0)
    slow = Answer(HeartbeatResponse(), throttle_ms=5000)
    found = quotas.charge(ALICE, request(ApiKey.CREATE_TOPICS, 7), 10, 0.015, slow)
    assert isinstance(found, Answer) and found.throttle_ms == 5000


def test_throttle_time_is_set_wherever_a_version_has_it() -> None:
    assert with_throttle(ApiKey.HEARTBEAT, 0, HeartbeatResponse(), 7) == HeartbeatResponse()
    original = HeartbeatResponse()
    assert with_throttle(ApiKey.HEARTBEAT, 1, original, 7) == HeartbeatResponse(7)
    assert original.throttle_time_ms == 0
    encoded = encode(HeartbeatResponse(error_code=3), 4)
    (patched,) = with_throttle(ApiKey.HEARTBEAT, 4, [encoded], 7)  # type: ignore[misc]
    assert decode(HeartbeatResponse, 4, bytes(patched)) == HeartbeatResponse(7, 3)
    assert throttle_of(ApiKey.HEARTBEAT, 4, bytes(patched)) == 7
    # A field behind others: the body is decoded and encoded again.
    last = RenewDelegationTokenResponse(expiry_timestamp_ms=9)
    body = with_throttle(ApiKey.RENEW_DELEGATION_TOKEN, 2, [encode(last, 2)], 7)
    assert body == RenewDelegationTokenResponse(expiry_timestamp_ms=9, throttle_time_ms=7)
    assert throttle_of(ApiKey.RENEW_DELEGATION_TOKEN, 2, encode(last, 2)) == 0


def test_metered_work_counts_its_steps_and_passes_errors_on() -> None:
    ticks = iter(range(100))
    spent: list[float] = []

    def steps() -> Generator[None, None, str]:
        yield
        yield
        return "done"

    work = metered(steps(), lambda: float(next(ticks)), spent.append)
    assert list(iter(work)) == [None, None] and spent == [1.0] * 3

    async def waits() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "cancelled"
        return "late"

    async def scenario() -> str:
        async def run() -> str:
            return await metered_await(waits(), lambda: 0.0, spent.append)

        task = asyncio.create_task(run())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(scenario()) == "cancelled"


def image_with(rate: float | None) -> Image:
    entity = quota_entity([("user", "alice")])
    quotas = ImageQuotas().with_limit(entity, "controller_mutation_rate", rate)
    return EMPTY if rate is None else _with(quotas)


def _with(quotas: ImageQuotas) -> Image:
    from msgspec.structs import replace

    return replace(EMPTY, client_quotas=quotas)


def test_mutation_quota_follows_the_image_and_rejects_only_new_clients() -> None:
    quotas, image = MutationQuotas(burst_seconds=2.0), image_with(5.0)
    create, now = int(ApiKey.CREATE_TOPICS), Millis(0)
    assert quotas.of(EMPTY, ("alice", ""), create, 7, now) is None
    assert quotas.of(image, ("bob", ""), create, 7, now) is None
    first = quotas.of(image, ("alice", ""), create, 7, now)
    assert first is not None and first(20) is None and first.throttle_ms == 0
    refused = first(1)
    assert refused is not None and refused.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert first.throttle_ms == 2000
    old = quotas.of(image, ("alice", "x"), create, 5, now)
    assert old is not None and old(5) is None and old.throttle_ms == 3000
    later = quotas.of(image, ("alice", ""), create, 7, Millis(3000))
    assert later is not None and later(1) is None
    assert quotas.of(image_with(None), ("alice", ""), create, 7, now) is None


def test_mutation_buckets_are_bounded() -> None:
    entity = quota_entity([("user", None)])
    image = _with(ImageQuotas().with_limit(entity, "controller_mutation_rate", 1.0))
    quotas = MutationQuotas()
    for n in range(BUCKETS_MAX + 10):
        quota = quotas.of(image, (f"u{n}", ""), int(ApiKey.CREATE_TOPICS), 7, Millis(0))
        assert quota is not None and quota(1) is None
    assert len(quotas._buckets) <= BUCKETS_MAX
