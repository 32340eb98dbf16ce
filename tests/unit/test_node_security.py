"""A node refuses to start with settings that ask for security which it does not have."""

import pytest

from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError
from ottla.node.security import check_listeners

PLAIN = (
    "process.roles=broker,controller\nnode.id=1\n"
    "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
    "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\n"
    # As in the server.properties that Kafka ships: names that no listener has are harmless.
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
)


def node(*lines: str) -> Loaded:
    return load(PLAIN + "\n".join(lines))


def refused(*lines: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_listeners(node(*lines))
    return [problem.key for problem in caught.value.problems]


def test_plaintext_node_without_security_settings_starts() -> None:
    check_listeners(node())


@pytest.mark.parametrize(
    "line",
    [
        "allow.everyone.if.no.acl.found=false",
        "connections.max.reauth.ms=1000",
        "delegation.token.secret.key=hunter2",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "sasl.jaas.config=hunter2",
        "listener.name.plaintext.plain.sasl.jaas.config=hunter2",
        "listener.name.plaintext.connections.max.reauth.ms=5",
        "ssl.client.auth=required",
        "ssl.keystore.location=/hunter2",
        "super.users=User:admin",
    ],
)
def test_unenforced_security_setting_is_rejected_without_its_value(line: str) -> None:
    key = line.partition("=")[0]
    assert refused(line) == [key]
    with pytest.raises(ConfigError) as caught:
        check_listeners(node(line))
    assert "hunter2" not in str(caught.value)
    assert "not enforced" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "allow.everyone.if.no.acl.found=true",
        "connections.max.reauth.ms=0",
        "ssl.client.auth=none",
        "security.inter.broker.protocol=PLAINTEXT",
        "sasl.jaas.config=",
    ],
)
def test_setting_without_security_is_accepted(line: str) -> None:
    check_listeners(node(line))


def test_listener_with_another_protocol_is_rejected() -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:1,CONTROLLER://127.0.0.1:0"
    assert refused(f"listeners={listeners}") == ["listeners"]


def test_controllers_with_another_protocol_are_rejected() -> None:
    lines = (
        "process.roles=broker",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map=CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT",
    )
    assert refused(*lines) == ["controller.listener.names"]
