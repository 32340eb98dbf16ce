"""SASL settings of a listener altered at run time, and what a listener must have to start."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from msgspec import structs
from secure_node import PLAIN_MODULE, SCRAM_MODULE, SecureNode
from tests.free_ports import free_ports

from ottla.client.connection import Connection, Options
from ottla.config.layers import Layers
from ottla.config.problems import ConfigError
from ottla.node.security.security_port import build_security
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.client import password_credentials
from ottla.security.sasl.credentials import LoginFailed

SECONDS_MAX = 20
PLAIN_KEY = "listener.name.login.plain.sasl.jaas.config"
JNDI = (
    "com.sun.security.auth.module.JndiLoginModule required "
    'user.provider.url="ldap://example.org" useFirstPass="true";'
)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    made = SecureNode(tmp_path_factory.mktemp("logins"))
    node = made.start()
    yield made
    node.stop()


def alter(secure: SecureNode, **keys: str | None) -> str:
    """Set keys, or delete those that are None; return the error, or ``""``."""
    entries = [
        ConfigEntry(
            name,
            value or "",
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for name, value in keys.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    client = admin(secure)  # lives until the reply
    try:
        client.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG):
            raise
        return str(error)
    return ""


def admin(secure: SecureNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": secure.bootstrap("OPEN"), "log_level": 0})


async def logged_in(
    secure: SecureNode, user: str, password: str, mechanism: str = "PLAIN", port: int = 0
) -> Connection:
    login = password_credentials(mechanism, user, password, SystemRandom())
    address = Address("localhost", port or secure.ports["LOGIN"])
    return await Connection.open(TcpNetwork(), address, options=Options(login=login))


def can_log_in(secure: SecureNode, user: str, password: str, mechanism: str = "PLAIN") -> bool:
    async def scenario() -> bool:
        try:
            connection = await logged_in(secure, user, password, mechanism)
        except (LoginFailed, ConnectionError):
            return False
        await connection.close()
        return True

    return asyncio.run(scenario())


def wait_for(secure: SecureNode, user: str, password: str, expected: bool) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while can_log_in(secure, user, password) is not expected:
        assert time.monotonic() < deadline


@pytest.fixture
def unaltered(secure: SecureNode) -> Iterator[None]:
    yield
    assert alter(secure, **{PLAIN_KEY: None}) == ""
    wait_for(secure, "alice", "alice-secret", True)


@pytest.mark.usefixtures("unaltered")
def test_altered_users_log_in_and_removal_returns_to_the_file(secure: SecureNode) -> None:
    async def scenario() -> None:
        connection = await logged_in(secure, "alice", "alice-secret")
        jaas = f'{PLAIN_MODULE} user_bob="bob-secret";'
        assert await asyncio.to_thread(alter, secure, **{PLAIN_KEY: jaas}) == ""
        await asyncio.to_thread(wait_for, secure, "bob", "bob-secret", True)
        await asyncio.to_thread(wait_for, secure, "alice", "alice-secret", False)
        reply: Any = await connection.send(MetadataRequest([]))
        assert reply.brokers, "an open session stays"
        await connection.close()

    asyncio.run(scenario())
    assert alter(secure, **{PLAIN_KEY: None}) == ""
    wait_for(secure, "alice", "alice-secret", True)
    wait_for(secure, "bob", "bob-secret", False)


@pytest.mark.parametrize(
    "jaas",
    [
        "hunter2",
        'a maybe user_x="hunter2";',
        f'{PLAIN_MODULE} user_x="hunter2"',
        f'{PLAIN_MODULE} user_x="hunter2"; {PLAIN_MODULE} user_y="hunter2";',
        JNDI,
        JNDI.replace("Jndi", "Ldap"),
        "",
    ],
)
def test_jaas_that_cannot_be_used_is_refused_and_not_shown(secure: SecureNode, jaas: str) -> None:
    refused = alter(secure, **{PLAIN_KEY: jaas})
    assert refused and "hunter2" not in refused
    assert can_log_in(secure, "alice", "alice-secret")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),  # not enabled between the nodes
        ("listener.name.secure.sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("sasl.login.class", "os.system"),
        ("listener.name.open.plain.sasl.jaas.config", f'{PLAIN_MODULE} user_x="x";'),  # no SASL
        ("listener.name.nowhere.plain.sasl.jaas.config", f'{PLAIN_MODULE} user_x="x";'),
        ("listener.name.login.sasl.server.callback.handler.class", "os.system"),
        ("listener.name.login.plain.sasl.login.class", "os.system"),
        ("listener.name.login.sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd"),
        ("listener.name.login.sasl.enabled.mechanisms", "NONE"),
        ("listener.name.secure.sasl.enabled.mechanisms", "PLAIN"),  # the node's own is SCRAM
        ("listener.name.secure.scram-sha-512.sasl.jaas.config", f"{SCRAM_MODULE};"),
    ],
)
def test_other_sasl_setting_is_refused(secure: SecureNode, key: str, text: str) -> None:
    assert alter(secure, **{key: text})


def test_altered_mechanisms_count_for_new_logins(secure: SecureNode) -> None:
    key = "listener.name.login.sasl.enabled.mechanisms"
    assert alter(secure, **{key: "SCRAM-SHA-256"}) == ""
    wait_for(secure, "alice", "alice-secret", False)
    assert can_log_in(secure, "alice", "alice-secret", "SCRAM-SHA-256")
    assert alter(secure, **{key: None}) == ""
    wait_for(secure, "alice", "alice-secret", True)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sasl.jaas.config", f'{PLAIN_MODULE} user_x="x";'),
        ("plain.sasl.jaas.config", f'{PLAIN_MODULE} user_x="x";'),  # unknown, as in Kafka
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512"),
        ("sasl.kerberos.service.name", "kafka"),
        ("sasl.login.refresh.window.factor", "0.7"),
        ("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-512"),
    ],
)
def test_sasl_setting_of_a_broker_is_altered_without_a_listener(
    secure: SecureNode, key: str, text: str
) -> None:
    assert alter(secure, **{key: text}) == ""
    assert can_log_in(secure, "alice", "alice-secret"), "a listener has settings of its own"
    assert alter(secure, **{key: None}) == ""


@pytest.mark.usefixtures("unaltered")
def test_altered_users_are_never_described(secure: SecureNode) -> None:
    assert alter(secure, **{PLAIN_KEY: f'{PLAIN_MODULE} user_bob="hunter2";'}) == ""
    resource = ConfigResource(ResourceType.BROKER, "1")
    client = admin(secure)  # lives until the reply
    found = client.describe_configs([resource])[resource].result(SECONDS_MAX)
    assert found[PLAIN_KEY].value is None and found[PLAIN_KEY].is_sensitive
    assert "hunter2" not in repr({name: entry.value for name, entry in found.items()})


def test_listener_is_added_together_with_its_users(secure: SecureNode) -> None:
    port = free_ports(1)[0]
    names = {name: at for name, at in secure.ports.items() if name != "CONTROLLER"}
    listeners = ",".join(
        f"{name}://localhost:{at}" for name, at in {**names, "ADDED": port}.items()
    )
    changes: dict[str, str | None] = {
        "listeners": f"{listeners},CONTROLLER://localhost:{secure.ports['CONTROLLER']}",
        "listener.security.protocol.map": (
            secure.loaded().static["listener.security.protocol.map"] + ",ADDED:SASL_PLAINTEXT"
        ),
        "listener.name.added.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.added.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_dave="dave-secret";',
    }
    assert alter(secure, **changes) == ""

    async def scenario() -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                connection = await logged_in(secure, "dave", "dave-secret", port=port)
            except OSError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            else:
                await connection.close()
                return

    asyncio.run(scenario())
    assert alter(secure, **dict.fromkeys(changes)) == ""


# -- without a node ------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_listener_with_a_mechanism_without_a_jaas_entry_does_not_start(
    tmp_path: Path, mechanism: str
) -> None:
    made = SecureNode(tmp_path)
    key = f"listener.name.login.{mechanism.lower()}.sasl.jaas.config"
    loaded = made.loaded()
    static = {name: text for name, text in loaded.static.items() if name != key}
    with pytest.raises(ConfigError) as caught:
        build_security(replace(loaded, static=static), SystemClock(), SystemRandom())
    assert [problem.key for problem in caught.value.problems] == [key]
    assert "must be set" in str(caught.value)


def test_bearer_tokens_are_not_enabled_at_run_time(tmp_path: Path) -> None:
    made = SecureNode(tmp_path, ("listener.name.login.sasl.enabled.mechanisms=PLAIN",))
    loaded = made.loaded()
    security = build_security(loaded, SystemClock(), SystemRandom())
    key = "listener.name.login.sasl.enabled.mechanisms"
    layers = Layers({key: "PLAIN,OAUTHBEARER"}, {}, loaded.static)
    (problem,) = security.login_problems("LOGIN", layers)
    assert "OAUTHBEARER" in str(problem)


def test_node_logs_in_to_others_with_altered_credentials(tmp_path: Path) -> None:
    loaded = SecureNode(tmp_path).loaded()
    security = build_security(loaded, SystemClock(), SystemRandom())
    login = security.peer_options("SECURE").login
    assert login is not None and b"n=node," in (login.current().start("h").step(None) or b"")
    key = "listener.name.secure.scram-sha-512.sasl.jaas.config"
    jaas = f'{SCRAM_MODULE} username="other" password="x";'
    for texts, user in (
        ({key: jaas}, b"n=other,"),
        ({key: "broken"}, b"n=other,"),
        ({}, b"n=node,"),
    ):
        security.apply(loaded.broker, Layers(texts, {}, loaded.static))
        assert user in (login.current().start("h").step(None) or b"")


def test_node_logs_in_to_others_by_an_altered_mechanism(tmp_path: Path) -> None:
    loaded = SecureNode(tmp_path).loaded()
    security = build_security(loaded, SystemClock(), SystemRandom())
    login = security.peer_options("SECURE").login
    assert login is not None and login.current().mechanism == "SCRAM-SHA-512"
    own = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} username="node" password="x" user_node="x";'
        ),
    }
    layers = Layers(own, {}, loaded.static)
    assert security.login_problems("SECURE", layers) == []
    security.apply(loaded.broker, layers)
    assert login.current().mechanism == "PLAIN"
    assert login.current().start("h").step(None) == b"\0node\0x"
    security.apply(loaded.broker, Layers({}, {}, loaded.static))
    assert login.current().mechanism == "SCRAM-SHA-512"


def test_base_setting_is_used_by_listeners_without_their_own(tmp_path: Path) -> None:
    own = "listener.name.login.sasl.enabled.mechanisms"
    made = SecureNode(tmp_path)
    loaded = made.loaded()
    static = {name: text for name, text in loaded.static.items() if name != own}
    loaded = replace(loaded, static={**static, "sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    broker = structs.replace(loaded.broker, sasl_enabled_mechanisms=("SCRAM-SHA-512",))
    security = build_security(replace(loaded, broker=broker), SystemClock(), SystemRandom())
    for text, is_refused in (("PLAIN", False), ("NONE", True)):
        layers = Layers({"sasl.enabled.mechanisms": text}, {}, loaded.static)
        assert bool(security.login_problems("LOGIN", layers)) is is_refused
