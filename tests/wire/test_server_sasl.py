"""SASL over a connection with simulated time: logins, delays, sessions and what may come before."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from serving import Running, Scripted, Wire, ask, find, framed, running

from ottla.api.surface.routes import FastPath
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.security.sasl.plain import PlainExchange
from ottla.security.sasl.session import SaslSession
from ottla.server.events import NoEvents
from ottla.server.sasl_authenticator import API_VERSIONS_MAX, SaslAuthenticator
from simulation.clock import SimClock
from simulation.loop import run_simulated
from simulation.network import SimNetwork

USERS = {"alice": "secret", "bob": "other"}
DELAY_MS = 500
FRAME_BYTES_MAX = 1000
GOOD = b"\0alice\0secret"
Scenario = Callable[[Scripted, Running, Callable[[], Awaitable[Wire]]], Awaitable[None]]


def play(scenario: Scenario, *, max_reauth_ms: int = 0, fast_path: FastPath | None = None) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network, clock, scripted = (
            SimNetwork(loop, seed=1),
            SimClock(loop),
            Scripted(fast_path=fast_path),
        )
        numbers: list[int] = []

        def authenticator() -> SaslAuthenticator:
            mechanisms = dict.fromkeys(("PLAIN", "OTHER"), lambda: PlainExchange(USERS.get))
            session = SaslSession(mechanisms, clock, max_reauth_ms)
            return SaslAuthenticator(
                session, NoEvents(), frame_bytes_max=FRAME_BYTES_MAX, failure_delay_ms=DELAY_MS
            )

        async with running(
            network.port_of("server"), clock, scripted, authenticator=authenticator
        ) as server:

            async def connect() -> Wire:
                numbers.append(0)
                return await Wire.to(network.port_of(f"client-{len(numbers)}"), server.address)

            await scenario(scripted, server, connect)

    run_simulated(main())


def handshake(correlation_id: int, mechanism: str = "PLAIN", version: int = 1) -> bytes:
    request = SaslHandshakeRequest(mechanism)
    return ask(ApiKey.SASL_HANDSHAKE, version, correlation_id, request)


def prove(correlation_id: int, token: bytes = GOOD) -> bytes:
    return ask(ApiKey.SASL_AUTHENTICATE, 2, correlation_id, SaslAuthenticateRequest(token))


HELLO = ask(ApiKey.API_VERSIONS, 3, 0, ApiVersionsRequest("a", "1"))


def error_of(frame: bytes) -> int:
    """Return the error code of a SaslAuthenticate v2 reply: behind a header with tagged fields."""
    return int(struct.unpack_from(">h", frame, 5)[0])


def test_login_names_the_principal_of_later_requests() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(HELLO + handshake(1) + prove(2) + find(3))
        assert await wire.correlation_ids(4) == [0, 1, 2, 3]
        assert scripted.callers[0].principal == "User:alice"

    play(scenario)


@pytest.mark.parametrize(
    "early",
    [
        find(9),
        prove(9),
        find(9) + handshake(1) + prove(2),
        prove(9) + handshake(1) + prove(2),
    ],
)
def test_other_requests_before_the_handshake_close_without_a_reply(early: bytes) -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        for before in (b"", HELLO):
            wire = await connect()
            wire.send(before + early)
            if before:
                assert await wire.correlation_ids(1) == [0]
            assert await wire.is_closed()
            assert scripted.seen == []

    play(scenario)


OLD_HELLO = framed(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 9, -1) + b"\0\2a\2b\0")
BETWEEN = {  # each with its reply by Kafka, without length and correlation id
    "ApiVersions v3": (
        ask(ApiKey.API_VERSIONS, 3, 9, ApiVersionsRequest("a", "1")),
        b"\0\x22\1\0\0\0\0\0",
    ),
    "ApiVersions of the future": (OLD_HELLO, b"\0\x22\0\0\0\0"),
    "SaslHandshake": (handshake(9), b"\0\x22\0\0\0\0"),
    "Metadata v1": (
        ask(ApiKey.METADATA, 1, 9, MetadataRequest([MetadataRequestTopic(name="t")])),
        b"\0\0\0\0\xff\xff\xff\xff\0\0\0\1\0\x22\0\1t\0\0\0\0\0",
    ),
}


@pytest.mark.parametrize("label", BETWEEN)
@pytest.mark.parametrize("is_again", [False, True])
def test_other_requests_in_the_middle_of_a_login_are_answered_and_close(
    label: str, is_again: bool
) -> None:
    request, reply = BETWEEN[label]

    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        if is_again:
            wire.send(handshake(1) + prove(2))
            await wire.correlation_ids(2)
        wire.send(handshake(3))
        assert await wire.correlation_ids(1) == [3]
        wire.send(request)
        frame = await wire.frame()
        assert (frame[:4], frame[4:]) == (b"\0\0\0\x09", reply)
        assert await wire.is_closed()
        assert scripted.seen == []

    play(scenario, max_reauth_ms=60_000)


@pytest.mark.parametrize("mechanism", ["NONE", "OTHER"])
def test_login_again_by_another_mechanism_closes_without_a_reply(mechanism: str) -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(handshake(1) + prove(2))
        await wire.correlation_ids(2)
        wire.send(handshake(3, mechanism))
        if mechanism == "OTHER":  # enabled
            assert await wire.correlation_ids(1) == [3]
            wire.send(find(9))
        assert await wire.is_closed()
        assert scripted.seen == []

    play(scenario, max_reauth_ms=60_000)


def test_reply_to_a_login_has_an_empty_message_as_in_kafka() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(handshake(1) + prove(2))
        await wire.frame()
        # Correlation id and tags, error 0, message "", no bytes, no end of the session, tags.
        assert await wire.frame() == b"\0\0\0\2\0" + b"\0\0\1\1" + bytes(8) + b"\0"

    play(scenario)


def test_api_versions_is_answered_once_before_the_login() -> None:
    bad = ask(ApiKey.API_VERSIONS, 3, 9, ApiVersionsRequest("-", "1"))

    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(OLD_HELLO + bad + HELLO)
        assert await wire.correlation_ids(3) == [9, 9, 0]
        wire.send(HELLO)
        assert await wire.is_closed()

    play(scenario)


def test_ended_session_takes_no_token_without_a_handshake() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(handshake(1) + prove(2))
        await wire.correlation_ids(2)
        wire.send(prove(3))
        assert error_of(await wire.frame()) == ErrorCode.ILLEGAL_SASL_STATE
        await asyncio.sleep(10.1)
        wire.send(prove(4))
        assert await wire.is_closed()

    play(scenario, max_reauth_ms=10_000)


def test_failed_login_is_answered_after_the_delay_and_closes() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        for version, fail in ((1, prove(2, b"\0alice\0wrong")), (0, framed(b"\0alice\0wrong"))):
            wire = await connect()
            began = asyncio.get_running_loop().time()
            wire.send(handshake(1, version=version) + fail + find(3))
            await wire.frame()
            if version == 1:
                assert error_of(await wire.frame()) == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await wire.is_closed()
            assert asyncio.get_running_loop().time() - began >= DELAY_MS / 1000
        assert scripted.seen == []

    play(scenario)


def test_bare_tokens_log_in_too() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(handshake(1, version=0) + framed(GOOD) + find(3))
        await wire.correlation_ids(1)
        assert await wire.frame() == b""
        assert await wire.correlation_ids(1) == [3]
        assert scripted.callers[0].principal == "User:alice"

    play(scenario)


def test_frame_above_the_limit_before_the_login_closes_at_once() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        began = asyncio.get_running_loop().time()
        wire.send(struct.pack(">i", FRAME_BYTES_MAX + 1))
        assert await wire.is_closed()
        assert asyncio.get_running_loop().time() - began < 1

    play(scenario)


def test_session_that_has_ended_serves_nothing_but_a_new_login() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire, lazy = await connect(), await connect()
        for each in (wire, lazy):
            each.send(handshake(1) + prove(2) + find(3))
            assert await each.correlation_ids(3) == [1, 2, 3]
        await asyncio.sleep(10.1)
        wire.send(handshake(4) + prove(5) + find(6))
        assert await wire.correlation_ids(3) == [4, 5, 6]
        lazy.send(find(7))
        assert await lazy.is_closed()
        assert len(scripted.seen) == 3

    play(scenario, max_reauth_ms=10_000)


def test_fast_path_is_closed_after_the_session_has_ended() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(handshake(1) + prove(2))
        await wire.correlation_ids(2)
        produce_frame = framed(struct.pack(">hhi", ApiKey.PRODUCE, 9, 3) + b"\xff\xff\x00")
        wire.send(produce_frame)
        assert await wire.correlation_ids(1) == [3]
        await asyncio.sleep(10.1)
        wire.send(produce_frame)
        assert await wire.is_closed()
        assert len(served) == 1

    served: list[bytes] = []

    def fast_path(caller, client: bytes, data: bytearray, start: int, end: int) -> bytearray:
        served.append(bytes(data[start:end]))
        return bytearray(framed(struct.pack(">i", 3)))

    play(scenario, max_reauth_ms=10_000, fast_path=fast_path)


@pytest.mark.parametrize(("version", "name"), [(3, b"-"), (99, b"a")])
def test_flood_of_failing_api_versions_before_the_login_closes_the_connection(
    version: int, name: bytes
) -> None:
    text = b"\0\2" + name + b"\2b\0"
    hello = framed(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 0, -1) + text)

    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        wire = await connect()
        wire.send(hello * (API_VERSIONS_MAX + 1))
        for _ in range(API_VERSIONS_MAX):
            await wire.frame()
        assert await wire.is_closed()
        other = await connect()
        other.send(HELLO + handshake(1) + prove(2))
        assert await other.correlation_ids(3) == [0, 1, 2]
        other.send(hello * (API_VERSIONS_MAX + 1) + find(3))
        for _ in range(API_VERSIONS_MAX + 1):
            await other.frame()
        assert await other.correlation_ids(1) == [3]

    play(scenario)


def test_connection_without_a_login_is_closed_after_the_login_timeout() -> None:
    async def scenario(scripted: Scripted, server: Running, connect) -> None:
        silent, polite, late = await connect(), await connect(), await connect()
        polite.send(handshake(1) + prove(2))
        assert await polite.correlation_ids(2) == [1, 2]
        began = asyncio.get_running_loop().time()
        late.send(HELLO)
        await late.correlation_ids(1)
        await asyncio.sleep(20)
        late.send(handshake(1))  # one more request does not extend the time
        await late.correlation_ids(1)
        assert await silent.is_closed() and await late.is_closed()
        assert 29 <= asyncio.get_running_loop().time() - began <= 32
        polite.send(find(3))
        assert await polite.correlation_ids(1) == [3]

    play(scenario)
