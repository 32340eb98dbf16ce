"""Our client logs in to our server over simulated connections, by every mechanism."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from serving import Scripted, running

from ottla.client.connection import Connection, Options
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.types import Millis
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


def talk(
    credentials: Credentials, *, pauses: tuple[float, ...] = (0,), reauth_ms: int = 0
) -> list[str]:
    """Log in and send one request after each pause; return the principals that were served."""

    principals: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        network, clock, scripted = SimNetwork(loop, seed=1), SimClock(loop), Scripted()

        def authenticator() -> SaslAuthenticator:
            session = SaslSession(MECHANISMS, clock, reauth_ms)
            return SaslAuthenticator(
                session, NoEvents(), frame_bytes_max=10_000, failure_delay_ms=10
            )

        async with running(
            network.port_of("server"), clock, scripted, authenticator=authenticator
        ) as server:
            connection = await Connection.open(
                network.port_of("client"), server.address, options=Options(login=credentials)
            )
            for pause in pauses:
                await asyncio.sleep(pause)
                await connection.send(FindCoordinatorRequest("k"), version=0)
            await connection.close()
        principals.extend(caller.principal for caller in scripted.callers)

    run_simulated(main())
    return principals


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
    credentials = password_credentials("SCRAM-SHA-512", "alice", "secret", RANDOM)
    assert len(talk(credentials, pauses=(1, 8, 8, 8, 8), reauth_ms=10_000)) == 5


def test_jaas_configuration_names_the_credentials() -> None:
    jaas = 'x.PlainLoginModule required username="alice" password="secret";'
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        assert talk(credentials_from(mechanism, jaas, RANDOM)) == ["User:alice"]
    for bad in (None, "x required;"):
        with pytest.raises(BadCredentials):
            credentials_from("PLAIN", bad, RANDOM)
    with pytest.raises(BadCredentials, match="MD5"):
        credentials_from("DIGEST-MD5", jaas, RANDOM)
