"""Our client logs in to our server over simulated connections, by every mechanism."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import pytest
from serving import Scripted, running

from ottla.client.connection import Connection, NotSent, Options, send_over
from ottla.client.sasl_login import usable_ms
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.types import Millis
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.jwt_claims import BadToken, JwtClaims
from ottla.security.principal import Principal
from ottla.security.sasl.client import (
    BadCredentials,
    credentials_from,
    password_credentials,
    token_credentials,
)
from ottla.security.sasl.credentials import Credentials, LoginFailed
from ottla.security.sasl.exchange import Exchange
from ottla.security.sasl.oauthbearer import OAuthBearerExchange
from ottla.security.sasl.plain import PlainExchange
from ottla.security.sasl.scram import Decoys, ScramAccount, ScramExchange, ScramMechanism, keys_of
from ottla.security.sasl.session import SaslSession
from ottla.server.events import NoEvents
from ottla.server.sasl_authenticator import SaslAuthenticator
from simulation.clock import SimClock
from simulation.loop import run_simulated
from simulation.network import SimNetwork

RANDOM = SystemRandom()


def scram(mechanism: ScramMechanism) -> Exchange:
    keys = keys_of(mechanism, "secret", b"salt" * 4, 4096)

    def lookup(user: str, is_token: bool) -> ScramAccount | None:
        return ScramAccount(Principal("User", user), keys) if user == "alice" else None

    return ScramExchange(mechanism, lookup, "snonce", Decoys(b"secret of the server"))


def claims(token: str) -> JwtClaims:
    if token != "good":
        raise BadToken("not good")
    return JwtClaims("alice", Millis(10**15), frozenset())


MECHANISMS: Mapping[str, Callable[[], Exchange]] = {
    "PLAIN": lambda: PlainExchange({"alice": "secret"}.get),
    "SCRAM-SHA-256": lambda: scram(ScramMechanism.SCRAM_SHA_256),
    "SCRAM-SHA-512": lambda: scram(ScramMechanism.SCRAM_SHA_512),
    "OAUTHBEARER": lambda: OAuthBearerExchange(claims),
}


class Peer(msgspec.Struct):
    """A server of one simulated host, and the connections to it."""

    network: SimNetwork
    address: Address
    credentials: Credentials
    opened: list[Connection] = msgspec.field(default_factory=list)

    async def connect(self) -> Connection:
        """Return the last connection, or open another once it is closed."""
        if not self.opened or not self.opened[-1].is_open:
            connection = await Connection.open(
                self.network.port_of("client"),
                self.address,
                options=Options(login=self.credentials),
            )
            self.opened.append(connection)
        return self.opened[-1]


def play(
    credentials: Credentials,
    scenario: Callable[[Peer], Awaitable[None]],
    *,
    reauth_ms: int,
    mechanisms: Mapping[str, Callable[[], Exchange]] = MECHANISMS,
) -> list[str]:
    """Run a scenario against a strict server; return the principals that were served."""
    principals: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network, clock, scripted = SimNetwork(loop, seed=1), SimClock(loop), Scripted()

        def authenticator() -> SaslAuthenticator:
            session = SaslSession(mechanisms, clock, reauth_ms)
            return SaslAuthenticator(
                session, NoEvents(), frame_bytes_max=10_000, failure_delay_ms=10
            )

        async with running(
            network.port_of("server"), clock, scripted, authenticator=authenticator
        ) as server:
            peer = Peer(network, server.address, credentials)
            await scenario(peer)
            for connection in peer.opened:
                await connection.close()
        principals.extend(caller.principal for caller in scripted.callers)

    run_simulated(main())
    return principals


def talk(
    credentials: Credentials, *, pauses: tuple[float, ...] = (0,), reauth_ms: int = 0
) -> list[str]:
    """Log in and send one request after each pause; return the principals that were served."""

    async def scenario(peer: Peer) -> None:
        connection = await peer.connect()
        for pause in pauses:
            await asyncio.sleep(pause)
            await connection.send(FindCoordinatorRequest("k"), version=0)

    return play(credentials, scenario, reauth_ms=reauth_ms)


def alice() -> Credentials:
    return password_credentials("SCRAM-SHA-512", "alice", "secret", RANDOM)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_password_logs_in(mechanism: str) -> None:
    assert talk(password_credentials(mechanism, "alice", "secret", RANDOM)) == ["User:alice"]
    with pytest.raises(LoginFailed) as caught:
        talk(password_credentials(mechanism, "alice", "wrong", RANDOM))
    assert "secret" not in str(caught.value) and "wrong" not in str(caught.value)


def test_bearer_token_logs_in() -> None:
    assert talk(token_credentials(lambda: "good")) == ["User:alice"]
    with pytest.raises(LoginFailed, match="invalid_token"):
        talk(token_credentials(lambda: "bad"))


def test_mechanism_that_is_not_enabled_is_named_with_those_that_are() -> None:
    unknown = Credentials("GSSAPI", token_credentials(lambda: "x").start)
    with pytest.raises(LoginFailed, match="GSSAPI is not enabled there; offered: PLAIN"):
        talk(unknown)


def test_client_logs_in_again_before_its_session_ends() -> None:
    assert len(talk(alice(), pauses=(1, 8, 8, 8, 8), reauth_ms=10_000)) == 5


@pytest.mark.parametrize("idle_s", [1.3, 2.5, 60])
def test_concurrent_requests_wait_for_the_login_of_a_session_that_ends(idle_s: float) -> None:
    async def scenario(peer: Peer) -> None:
        connection = await peer.connect()

        async def send_at(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            await connection.send(FindCoordinatorRequest("k"), version=0)

        for _ in range(3):
            await asyncio.sleep(idle_s)
            async with asyncio.TaskGroup() as tasks:
                for number in range(150):  # more than may be in flight, before and during a login
                    tasks.create_task(send_at(0.0001 * (number // 2)))

    assert len(play(alice(), scenario, reauth_ms=2000)) == 3 * 150


@pytest.mark.parametrize("reauth_ms", [300, 1200, 2000, 10_000])
def test_steady_requests_over_many_sessions_lose_none(reauth_ms: int) -> None:
    async def scenario(peer: Peer) -> None:
        connection = await peer.connect()

        async def sender(pause: float) -> None:
            for _ in range(200):
                await connection.send(FindCoordinatorRequest("k"), version=0)
                await asyncio.sleep(pause)

        async with asyncio.TaskGroup() as tasks:
            for pause in (0.05, 0.07, 0.11, 0.13):
                tasks.create_task(sender(pause))

    assert len(play(alice(), scenario, reauth_ms=reauth_ms)) == 800


def test_request_without_a_reply_waits_for_the_login() -> None:
    async def scenario(peer: Peer) -> None:
        connection = await peer.connect()
        await asyncio.sleep(5)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(connection.send(FindCoordinatorRequest("k"), version=0))
            tasks.create_task(connection.post(FindCoordinatorRequest("k")))

    assert len(play(alice(), scenario, reauth_ms=2000)) == 2


def test_login_goes_on_when_the_request_that_began_it_is_cancelled() -> None:
    async def scenario(peer: Peer) -> None:
        for steps in range(1, 30):  # each point at which the first request can be cancelled
            connection = await peer.connect()
            await asyncio.sleep(5)
            async with asyncio.TaskGroup() as tasks:
                ask = connection.send(FindCoordinatorRequest("k"), version=0)
                cancelled = tasks.create_task(ask)
                for _ in range(steps):
                    await asyncio.sleep(0.0005)
                cancelled.cancel()
            await connection.send(FindCoordinatorRequest("k"), version=0)
        assert len(peer.opened) == 1

    assert len(play(alice(), scenario, reauth_ms=2000)) >= 29


def test_request_that_waited_for_a_failed_login_is_sent_over_the_next_connection() -> None:
    logins: list[str] = []

    def fails_second() -> Exchange:
        logins.append("login")
        return PlainExchange({}.get if len(logins) == 2 else {"alice": "secret"}.get)

    async def scenario(peer: Peer) -> None:
        connection = await peer.connect()
        await asyncio.sleep(5)
        request = FindCoordinatorRequest("k")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(send_over(peer.connect, request, 5000))
        assert not connection.is_open
        with pytest.raises(NotSent):
            await connection.send(request)

    credentials = password_credentials("PLAIN", "alice", "secret", RANDOM)
    served = play(credentials, scenario, reauth_ms=2000, mechanisms={"PLAIN": fails_second})
    assert len(served) == 5


def test_session_is_renewed_early_enough_for_a_busy_peer() -> None:
    for lifetime_ms, expected_ms in ((500, 300), (2000, 1200), (10_000, 8500), (100_000, 85_000)):
        assert usable_ms(lifetime_ms) == expected_ms


def test_jaas_configuration_names_the_credentials() -> None:
    jaas = 'x.PlainLoginModule required username="alice" password="secret";'
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        assert talk(credentials_from(mechanism, jaas, RANDOM)) == ["User:alice"]
    for bad in (None, "x required;"):
        with pytest.raises(BadCredentials):
            credentials_from("PLAIN", bad, RANDOM)
    with pytest.raises(BadCredentials, match="MD5"):
        credentials_from("DIGEST-MD5", jaas, RANDOM)
