"""Charging requests to quotas, and the throttle time in replies of every form."""

import asyncio
from collections.abc import Generator

import pytest

from ottla.api.replies import NO_REPLY, Answer
from ottla.api.routes import Caller
from ottla.api.throttle_field import throttle_of, with_throttle
from ottla.controller.mutation_quotas import BUCKETS_MAX, MutationQuotas
from ottla.metadata.configs import ClientQuotas as ImageQuotas
from ottla.metadata.configs import quota_entity
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request
from ottla.protocol.messages.api_versions import ApiVersionsResponse
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
