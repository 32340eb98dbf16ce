"""GSSAPI without Kerberos: the conversation, user names of principals, and settings."""

import contextlib
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config.loading import load
from ottla.config.problems import ConfigError
from ottla.node.security.kerberos_logins import build_gssapi
from ottla.security.jaas import parse_jaas
from ottla.security.kerberos import BadKerberos, KerberosLogin, kerberos_login, ticket_credentials
from ottla.security.sasl.exchange import Challenge, Login, Rejection
from ottla.security.sasl.gssapi import TOKEN_BYTES_MAX, GssapiClient, GssapiExchange, GssFailed
from ottla.security.sasl.kerberos_rules import BadKerberosRules, KerberosRules, NoUserName

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


class FakeContext:
    """A context that is complete after some steps and marks what it wraps."""

    def __init__(self, *answers: bytes | None, peer: str = "alice@OURS") -> None:
        self._answers = list(answers)
        self.peer = peer

    def step(self, token: bytes | None) -> bytes | None:
        if token == b"forged":
            raise GssFailed("the token is forged")
        return self._answers.pop(0)

    def is_complete(self) -> bool:
        return not self._answers

    def wrap(self, data: bytes) -> bytes:
        return b"sealed" + data

    def unwrap(self, data: bytes) -> bytes:
        if not data.startswith(b"sealed"):
            raise GssFailed("not sealed")
        return data.removeprefix(b"sealed")


def server(*answers: bytes | None, peer: str = "alice@OURS") -> GssapiExchange:
    context = FakeContext(*answers, peer=peer)
    return GssapiExchange(lambda: context, KerberosRules(["DEFAULT"], "OURS"))


def choice(layer: int = 1, authorization_id: bytes = b"") -> bytes:
    return b"sealed" + struct.pack(">I", layer << 24) + authorization_id


OFFER = Challenge(b"sealed\x01\x00\x00\x00")


def test_login_offers_no_layer_and_names_the_user_of_the_ticket() -> None:
    exchange = server(b"answer")
    assert exchange.step(b"ticket") == Challenge(b"answer")
    assert exchange.step(b"") == OFFER
    login = exchange.step(choice())
    assert isinstance(login, Login) and str(login.principal) == "User:alice"


def test_context_without_a_last_token_is_followed_by_the_offer() -> None:
    exchange = server(None)
    assert exchange.step(b"ticket") == OFFER
    assert isinstance(exchange.step(choice(authorization_id=b"alice@OURS")), Login)


def test_client_and_server_agree() -> None:
    exchange = server(b"answer")
    client = GssapiClient(FakeContext(b"ticket", b""))
    challenge: bytes | None = None
    while (token := client.step(challenge)) is not None:
        step = exchange.step(token)
        assert not isinstance(step, Rejection)
        challenge = step.token
    assert isinstance(step, Login)


@pytest.mark.parametrize(
    "last",
    [
        choice(2),
        choice(4),
        choice(5),
        choice(authorization_id=b"bob"),
        choice(authorization_id=b"\xff"),
        b"sealed\x01",
        b"not sealed",
    ],
    ids=repr,
)
def test_bad_choice_is_rejected(last: bytes) -> None:
    exchange = server(None)
    exchange.step(b"ticket")
    assert isinstance(exchange.step(last), Rejection)


def test_bad_tokens_are_rejected() -> None:
    assert isinstance(server(b"answer").step(b"forged"), Rejection)
    assert isinstance(server(b"answer").step(b"x" * (TOKEN_BYTES_MAX + 1)), Rejection)
    complete = server(b"answer")
    complete.step(b"ticket")
    assert isinstance(complete.step(b"more"), Rejection)


def test_ticket_without_a_user_name_is_rejected() -> None:
    exchange = server(None, peer="alice@THEIRS")
    exchange.step(b"ticket")
    step = exchange.step(choice())
    assert isinstance(step, Rejection) and "THEIRS" not in step.message


@pytest.mark.parametrize("offer", [b"sealed\x02\0\0\0", b"sealed\x01\0", b"\x01\0\0\0"], ids=repr)
def test_client_refuses_another_offer(offer: bytes) -> None:
    client = GssapiClient(FakeContext(b"ticket"))
    client.step(None)
    with pytest.raises(GssFailed):
        client.step(offer)


# -- user names ------------------------------------------------------------------

RULES = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1@$0](dn@THEIRS)s/.*/datanode/",
    "RULE:[1:$1@$0](.*@UPPER)s/@.*///U",
    "RULE:[1:$1@$0](.*@LOWER)s/@.*///L",
    "RULE:[1:$1-$0](.*-DASH)s/A/b/",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        ("App.service-name@OURS", "service-name"),
        ("App.service-name/example.com@OURS", "service-name"),
        ("dn/host@THEIRS", "datanode"),
        ("alice@UPPER", "ALICE"),
        ("ALICE@LOWER", "alice"),
        ("AA@DASH", "bA-DASH"),
        ("user@OURS", "user"),
        ("kafka/broker.example.com@OURS", "kafka"),
    ],
)
def test_first_rule_that_applies_names_the_user(principal: str, user: str) -> None:
    assert KerberosRules(RULES, "OURS").user_of(principal) == user


@pytest.mark.parametrize(
    "principal", ["user@THEIRS", "user", "a/b/c@OURS", "@OURS", "a@b@OURS", ""]
)
def test_principal_without_a_rule_has_no_user_name(principal: str) -> None:
    with pytest.raises(NoUserName):
        KerberosRules(RULES, "OURS").user_of(principal)


def test_result_must_be_a_simple_name() -> None:
    for text in ("", "a/b"):
        rules = KerberosRules([f"RULE:[1:{text}]"], "OURS")
        with pytest.raises(NoUserName):
            rules.user_of("alice@OURS")


@pytest.mark.parametrize(
    "rule", ["default", "RULE:", "RULE:[1:$2]", "RULE:[1:$1](a", "RULE:[1:$1]([)", "RULE:[x:$1]"]
)
def test_bad_rules_are_refused(rule: str) -> None:
    with pytest.raises(BadKerberosRules):
        KerberosRules([rule], "OURS")


@given(st.text(max_size=40))
def test_any_principal_has_a_user_name_or_none(principal: str) -> None:
    with contextlib.suppress(NoUserName):
        assert KerberosRules(RULES, "OURS").user_of(principal)


# -- settings --------------------------------------------------------------------


def login_of(options: str, service: str | None = None) -> KerberosLogin:
    return kerberos_login(parse_jaas(f"{KRB5} {options};")[0], service)


def test_jaas_options_are_read_as_data() -> None:
    options = 'useKeyTab=true storeKey=true keyTab="FILE:/k/t" principal="kafka/a@R"'
    assert login_of(options, "kafka") == KerberosLogin("/k/t", "kafka/a@R", "kafka")
    assert login_of('useTicketCache=true serviceName="kafka"') == KerberosLogin(service="kafka")
    with pytest.raises(BadKerberos, match="contradict"):
        login_of('serviceName="a"', "b")
    with pytest.raises(BadKerberos, match="needs keyTab"):
        login_of("useKeyTab=true")


def test_missing_package_is_named_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(BadKerberos, match=r"pip install 'ottla\[gssapi\]'"):
        ticket_credentials(KerberosLogin(service="kafka"))
    jaas = f'{KRB5} useKeyTab=true keyTab="/nowhere" principal="kafka/a@R";'
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[gssapi\]'"):
        build_gssapi(settings(jaas), "CLIENTS")


@pytest.mark.parametrize(
    ("jaas", "said"),
    [
        (None, "needs keyTab and principal"),
        (f"{KRB5} useTicketCache=true principal=a@R;", "needs keyTab and principal"),
        ("nonsense", "control flag"),
    ],
)
def test_bad_settings_of_a_listener_keep_the_node_from_starting(
    jaas: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        build_gssapi(settings(jaas), "CLIENTS")


def settings(jaas: str | None):
    key = "listener.name.clients.gssapi.sasl.jaas.config"
    return load(
        "process.roles=broker,controller\nnode.id=1\nlog.dirs=x\n"
        "listeners=CLIENTS://localhost:1,CONTROLLER://localhost:2\n"
        "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        "inter.broker.listener.name=CLIENTS\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@localhost:2\n" + (f"{key}={jaas}\n" if jaas else "")
    )
