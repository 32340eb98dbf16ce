"""SASL mechanisms and the conversation around them, without a connection."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as OtherClient

from ottla.metadata.access import ScramCredential, ScramUser
from ottla.node.security.scram_accounts import decoys_like
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.types import Millis
from ottla.security.principal import Principal
from ottla.security.sasl import plain
from ottla.security.sasl.exchange import Challenge, Exchange, Login, Rejection
from ottla.security.sasl.plain import PlainExchange
from ottla.security.sasl.scram import (
    DECOY_SALT_BYTES,
    ITERATIONS_MIN,
    Decoys,
    ScramAccount,
    ScramClient,
    ScramExchange,
    ScramFailed,
    ScramMechanism,
    keys_of,
)
from ottla.security.sasl.session import SaslReply, SaslSession

ALICE = Principal("User", "alice")
USERS = {"alice": "secret", "bob": "b" * 300}


class HandClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now(self) -> Millis:
        return Millis(self.ms + 1_700_000_000_000)

    def monotonic(self) -> Millis:
        return Millis(self.ms)


# -- PLAIN -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain_accepts_the_right_password(token: bytes) -> None:
    step = PlainExchange(USERS.get).step(token)
    assert isinstance(step, Login) and step.principal == ALICE


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0nobody\0secret",
        b"bob\0alice\0secret",  # somebody else's authorization id
        b"\0alice\0",
        b"\0\0secret",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"",
        b"\0alice\0\xff",
        b"\0nobody\0",
    ],
)
def test_plain_rejects(token: bytes) -> None:
    step = PlainExchange(USERS.get).step(token)
    assert isinstance(step, Rejection)
    assert "secret" not in step.reason and "secret" not in step.message


# -- SCRAM -----------------------------------------------------------------------------------------


def exchange(
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256, iterations: int = 4096
) -> ScramExchange:
    keys = {
        "alice": keys_of(mechanism, "secret", b"salt" * 4, iterations),
        "a,b=c": keys_of(mechanism, "secret", b"salt" * 4, iterations),
    }

    def lookup(user: str, is_token: bool) -> ScramAccount | None:
        if is_token:
            owner = ScramAccount(ALICE, keys["alice"], Millis(9), is_token=True)
            return owner if user == "token-id" else None
        return ScramAccount(Principal("User", user), keys[user]) if user in keys else None

    return ScramExchange(mechanism, lookup, "server-nonce", Decoys(b"server secret"))


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_scram_agrees_with_an_independent_client(mechanism: ScramMechanism) -> None:
    server = exchange(mechanism)
    client = OtherClient([str(mechanism)], "alice", "secret")
    challenge = server.step(client.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.token.decode())
    login = server.step(client.get_client_final().encode())
    assert isinstance(login, Login) and login.principal == ALICE
    client.set_server_final(login.token.decode())


@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scram_client_and_server_prove_themselves_to_each_other(user: str) -> None:
    server, mechanism = exchange(), ScramMechanism.SCRAM_SHA_256
    client = ScramClient(mechanism, user, "secret", "client-nonce")
    challenge = server.step(client.first())
    assert isinstance(challenge, Challenge)
    login = server.step(client.final(challenge.token))
    assert isinstance(login, Login) and login.principal.name == user
    client.verify(login.token)
    with pytest.raises(ScramFailed):
        client.verify(b"v=" + base64.b64encode(b"x" * 32))


def test_scram_with_a_delegation_token_logs_in_its_owner() -> None:
    server = exchange()
    client = ScramClient(
        ScramMechanism.SCRAM_SHA_256, "token-id", "secret", "cnonce", is_token=True
    )
    challenge = server.step(client.first())
    assert isinstance(challenge, Challenge)
    login = server.step(client.final(challenge.token))
    assert login == Login(ALICE, login.token, Millis(9), is_token_authenticated=True)


def test_user_name_is_no_token_id_and_the_reverse() -> None:
    for user, is_token in (("token-id", False), ("alice", True)):
        server = exchange()
        client = ScramClient(
            ScramMechanism.SCRAM_SHA_256, user, "secret", "cnonce", is_token=is_token
        )
        challenge = server.step(client.first())
        assert isinstance(challenge, Challenge)
        assert isinstance(server.step(client.final(challenge.token)), Rejection)


def final_of(password: str = "secret", **changes: str) -> tuple[ScramExchange, bytes]:
    """Return an exchange that waits for the final message, and that message, changed."""
    server = exchange()
    client = ScramClient(ScramMechanism.SCRAM_SHA_256, "alice", password, "client-nonce")
    challenge = server.step(client.first())
    assert isinstance(challenge, Challenge)
    final = client.final(challenge.token).decode()
    for old, new in changes.items():
        assert f"{old}=" in final
        final = ",".join(f"{old}={new}" if p.startswith(f"{old}=") else p for p in final.split(","))
    return server, final.encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"r": "client-nonce"},
        {"r": "client-nonceserver-noncf"},
        {"c": "eSws"},
        {"c": ""},
        {"p": ""},
        {"p": "AAAA"},
        {"p": base64.b64encode(bytes(32)).decode()},
        {"p": "not base64!"},
    ],
    ids=str,
)
def test_scram_rejects_a_changed_final_message(changes: dict[str, str]) -> None:
    server, final = final_of(**changes)
    assert isinstance(server.step(final), Rejection)


def test_scram_rejects_a_wrong_password() -> None:
    server, final = final_of("wrong")
    assert isinstance(server.step(final), Rejection)


def test_scram_final_message_of_another_login_is_rejected() -> None:
    _, final = final_of()
    server = exchange()
    server._nonce = "another-nonce"
    client = ScramClient(ScramMechanism.SCRAM_SHA_256, "alice", "secret", "client-nonce")
    server.step(client.first())
    assert isinstance(server.step(final), Rejection)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a b",
        b"n,,n=al=ice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"x,,n=alice,r=x",
        b"\xff\xfe",
    ],
)
def test_scram_rejects_a_malformed_first_message(first: bytes) -> None:
    assert isinstance(exchange().step(first), Rejection)


def test_scram_answers_unknown_users_like_known_ones() -> None:
    replies = []
    for _ in range(2):
        step = exchange().step(b"n,,n=nobody,r=client-nonce")
        assert isinstance(step, Challenge)
        replies.append(step.token)
    assert replies[0] == replies[1], "a salt that changes would tell that there is no such user"
    other = exchange().step(b"n,,n=nobody2,r=client-nonce")
    assert isinstance(other, Challenge) and other.token != replies[0]
    assert replies[0].endswith(b"i=4096")


def credentials(*rows: tuple[str, int, int]) -> dict[ScramUser, ScramCredential]:
    return {
        ScramUser(1, name): ScramCredential(
            bytes(salt_bytes), name.encode(), name.encode(), iterations
        )
        for name, iterations, salt_bytes in rows
    }


def test_decoys_look_like_most_credentials_of_the_mechanism() -> None:
    rows = [("a", 8192, 20), ("b", 8192, 20), ("c", 4096, 24)]
    found = decoys_like(credentials(*rows), ScramMechanism.SCRAM_SHA_256, b"of this node")
    assert (found.iterations, found.salt_bytes) == (8192, 20)
    mechanism = ScramMechanism.SCRAM_SHA_256
    exchanged = ScramExchange(mechanism, lambda name, is_token: None, "n", found)
    step = exchanged.step(b"n,,n=nobody,r=x")
    assert isinstance(step, Challenge)
    fields = dict(part.split("=", 1) for part in step.token.decode().split(","))
    assert (fields["i"], len(base64.b64decode(fields["s"]))) == ("8192", 20)
    found = decoys_like(credentials(*rows), ScramMechanism.SCRAM_SHA_512, b"of this node")
    assert (found.iterations, found.salt_bytes) == (ITERATIONS_MIN, DECOY_SALT_BYTES)


def test_decoys_are_the_same_on_every_node_once_there_are_users() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    users = credentials(*((f"user-{number:02}", 4096, 24) for number in range(20)))
    one, other = (decoys_like(users, mechanism, node) for node in (b"one", b"other"))
    assert one == other
    renewed = users | credentials(("user-15", 8192, 24))
    assert decoys_like(renewed, mechanism, b"one") == one, "nor do they change with every user"
    assert decoys_like({}, mechanism, b"one") != decoys_like({}, mechanism, b"other")


def test_scram_refuses_a_credential_with_few_iterations() -> None:
    step = exchange(iterations=1).step(b"n,,n=alice,r=x")
    assert isinstance(step, Rejection)


@pytest.mark.parametrize(
    "server_first",
    [
        b"r=other,s=c2FsdA==,i=4096",
        b"r=cnonce,s=c2FsdA==,i=4096",  # the server added nothing
        b"r=cnonceX,s=c2FsdA==,i=1",
        b"r=cnonceX,s=c2FsdA==,i=999999999",
        b"r=cnonceX,s=!!!,i=4096",
        b"e=other-error",
        b"\xff",
    ],
)
def test_scram_client_refuses_a_bad_server(server_first: bytes) -> None:
    client = ScramClient(ScramMechanism.SCRAM_SHA_512, "alice", "secret", "cnonce")
    with pytest.raises(ScramFailed):
        client.final(server_first)
    with pytest.raises(ScramFailed):
        client.verify(b"v=")


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_mechanisms_survive_any_tokens(first: bytes, second: bytes) -> None:
    for one in (exchange(), PlainExchange(USERS.get)):
        step = one.step(first)
        if isinstance(step, Challenge):
            step = one.step(second)
        assert not isinstance(step, Login)


# -- the conversation ------------------------------------------------------------------------------


class Expiring:
    """Authenticates the user named by its token, until a given time."""

    def __init__(self, expires_at: Millis | None = None) -> None:
        self.expires_at = expires_at

    def step(self, token: bytes) -> Login:
        return Login(Principal("User", token.decode()), b"", self.expires_at)


def session(clock: HandClock, max_reauth_ms: int = 0, **others: Exchange) -> SaslSession:
    made = {"PLAIN": lambda: PlainExchange(USERS.get)}
    return SaslSession(
        {**made, **{k: lambda v=v: v for k, v in others.items()}}, clock, max_reauth_ms
    )


def begin(one: SaslSession, mechanism: str = "PLAIN", version: int = 1) -> SaslReply:
    return one.handshake(SaslHandshakeRequest(mechanism), version)


def token(one: SaslSession, data: bytes) -> SaslReply:
    reply = one.authenticate(SaslAuthenticateRequest(data), 2)
    assert isinstance(reply, SaslReply)
    return reply


def test_handshake_then_token_logs_in() -> None:
    one = session(HandClock())
    assert begin(one).body.error_code == ErrorCode.NONE
    assert begin(session(HandClock())).body.mechanisms == ["PLAIN"]
    reply = token(one, plain.client_token("alice", "secret"))
    assert not reply.close and reply.body.session_lifetime_ms == 0
    assert one.login is not None and one.login.principal == ALICE
    assert one.mechanism == "PLAIN" and one.ends_at is None and not one.is_under_way


def test_unknown_mechanism_is_answered_and_closes() -> None:
    reply = begin(session(HandClock()), "GSSAPI")
    assert reply.close and reply.body.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert reply.body.mechanisms == ["PLAIN"]


def test_token_after_the_login_is_refused_without_closing() -> None:
    one = session(HandClock())
    begin(one)
    token(one, b"\0alice\0secret")
    reply = token(one, b"\0alice\0secret")
    assert reply.body.error_code == ErrorCode.ILLEGAL_SASL_STATE and not reply.close
    assert reply.body.error_message == (
        "SaslAuthenticate request received after successful authentication"
    )


def test_wrong_password_is_answered_and_closes() -> None:
    one = session(HandClock())
    begin(one)
    reply = token(one, b"\0alice\0wrong")
    assert reply.close and reply.body.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.body.error_message == plain.FAILED
    assert one.login is None


def test_bare_tokens_follow_the_first_handshake_version() -> None:
    one = session(HandClock())
    begin(one, version=0)
    assert one.expects_bare_token
    reply = one.bare_token(b"\0alice\0secret")
    assert isinstance(reply, SaslReply) and reply.body == b"" and not reply.close
    assert one.login is not None and not one.expects_bare_token


def test_session_ends_after_the_configured_time_and_a_new_login_extends_it() -> None:
    clock = HandClock()
    one = session(clock, max_reauth_ms=5000)
    begin(one)
    assert token(one, b"\0alice\0secret").body.session_lifetime_ms == 5000
    clock.ms += 4999
    assert not one.is_expired
    assert begin(one).body.error_code == ErrorCode.NONE
    token(one, b"\0alice\0secret")
    clock.ms += 4999
    assert not one.is_expired
    clock.ms += 1
    assert one.is_expired


@pytest.mark.parametrize(("max_reauth_ms", "lifetime"), [(0, 700), (500, 500), (900, 700)])
def test_session_ends_with_the_credential(max_reauth_ms: int, lifetime: int) -> None:
    clock = HandClock()
    one = session(clock, max_reauth_ms, TOKEN=Expiring(Millis(clock.now() + 700)))
    begin(one, "TOKEN")
    assert token(one, b"alice").body.session_lifetime_ms == lifetime


def test_credential_that_has_expired_does_not_log_in() -> None:
    clock = HandClock()
    one = session(clock, TOKEN=Expiring(Millis(clock.now() - 1)))
    begin(one, "TOKEN")
    assert token(one, b"alice").close and one.login is None


def test_login_again_may_change_neither_principal_nor_mechanism() -> None:
    clock = HandClock()
    one = session(clock, 5000, TOKEN=Expiring())
    begin(one)
    token(one, b"\0alice\0secret")
    clock.ms += 2000
    begin(one)
    reply = token(one, plain.client_token("bob", USERS["bob"]))
    assert reply.close and one.login is not None and one.login.principal == ALICE
    assert reply.body.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    clock.ms += 2000
    assert begin(one, "TOKEN").body.error_code == ErrorCode.NONE
    reply = token(one, b"alice")
    assert reply.close and reply.body == b"", "as Kafka: closed without a reply"
    assert "re-authentication of mechanism 'PLAIN'" in str(reply.failure)


def test_login_again_within_a_second_of_the_last_is_refused_without_closing() -> None:
    clock = HandClock()
    one = session(clock, 5000)
    for _ in range(2):  # the login itself does not count
        assert begin(one).body.error_code == ErrorCode.NONE
        token(one, b"\0alice\0secret")
    clock.ms += 999
    reply = begin(one)
    assert reply.body == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
    assert not reply.close
    clock.ms += 1
    assert begin(one).body.error_code == ErrorCode.NONE


def test_login_again_in_a_session_without_an_end_is_refused_without_closing() -> None:
    clock = HandClock()
    one = session(clock)
    begin(one)
    token(one, b"\0alice\0secret")
    clock.ms += 60_000
    reply = begin(one)
    assert reply.body == SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
    assert not reply.close


def test_failed_login_again_is_named_as_such() -> None:
    clock = HandClock()
    one = session(clock, 5000, TOKEN=Expiring())
    begin(one)
    token(one, b"\0alice\0secret")
    begin(one)
    reply = token(one, b"no token of PLAIN")
    message = str(reply.body.error_message)
    assert reply.close and "during authentication" not in message


def test_proof_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or real(a, b))
    PlainExchange(USERS.get).step(b"\0nobody\0x")
    server, final = final_of("wrong")
    server.step(final)
    assert len(compared) >= 3
