"""A node refuses to start with settings that ask for security which it does not have."""

import pytest

from ottla.config.loading import Loaded, load
from ottla.config.problems import ConfigError
from ottla.node.security.listener_rules import check_listeners

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
        "super.users=User:hunter2",
    ],
)
def test_setting_that_nothing_enforces_is_refused_without_showing_its_value(line: str) -> None:
    key = line.partition("=")[0]
    assert refused(line) == [key]
    with pytest.raises(ConfigError) as caught:
        check_listeners(node(line))
    assert "hunter2" not in str(caught.value)
    assert "not enforced" in str(caught.value)
    assert "\n" not in str(caught.value)


AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("users", ["admin", "User:admin;bob", "admin;", "User=admin"])
def test_super_user_without_a_type_is_refused(users: str) -> None:
    assert refused(AUTHORIZER, f"super.users={users}") == ["super.users"]


@pytest.mark.parametrize("users", ["", ";", "User:admin", " User:a ; User:CN=b,O=c:d ;", "Role:x"])
def test_super_users_are_principals_between_semicolons(users: str) -> None:
    check_listeners(node(AUTHORIZER, f"super.users={users}"))


@pytest.mark.parametrize(
    "line",
    [
        "allow.everyone.if.no.acl.found=true",
        "connections.max.reauth.ms=1000",
        "ssl.client.auth=none",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "delegation.token.secret.key=hunter2",
    ],
)
def test_setting_that_asks_for_no_security_is_accepted(line: str) -> None:
    check_listeners(node(line))


@pytest.mark.parametrize(
    ("lines", "is_refused"),
    [
        (["CONTROLLER:PLAINTEXT"], True),
        (["CONTROLLER:SSL"], True),
        (["CONTROLLER:SSL", "ssl.client.auth=required"], False),
        (["CONTROLLER:SSL", "listener.name.controller.ssl.client.auth=required"], False),
        (["CONTROLLER:SSL", "listener.name.plaintext.ssl.client.auth=required"], True),
        (["CONTROLLER:SASL_SSL"], False),
        (["CONTROLLER:SASL_PLAINTEXT"], False),
        (["CONTROLLER:PLAINTEXT", "ottla.allow.insecure.controller.listener=true"], False),
    ],
)
def test_controller_listener_that_others_reach_must_authenticate(
    lines: list[str], is_refused: bool
) -> None:
    protocol, *others = lines
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://0.0.0.0:0",
        "advertised.listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        f"listener.security.protocol.map={protocol},PLAINTEXT:PLAINTEXT",
        *others,
    )
    if is_refused:
        assert refused(*settings) == ["listeners"]
    else:
        check_listeners(node(*settings))


def test_client_listener_without_authentication_on_the_network_is_warned_about() -> None:
    def warnings(listener: str) -> list[str]:
        lines = (
            f"listeners={listener},CONTROLLER://127.0.0.1:0",
            "advertised.listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        )
        return [line for line in check_listeners(node(*lines)) if line.startswith("listener ")]

    assert warnings("PLAINTEXT://127.0.0.1:0") == []
    (warning,) = warnings("PLAINTEXT://0.0.0.0:0")
    assert "ANYBODY WHO REACHES IT" in warning and "\n" not in warning


def test_registry_that_anybody_can_reach_is_warned_about() -> None:
    warnings = check_listeners(node("schema.registry.listeners=http://0.0.0.0:8081"))
    assert any("SCHEMA_REGISTRY" in text and "without authentication" in text for text in warnings)
    local = check_listeners(node("schema.registry.listeners=http://127.0.0.1:8081"))
    assert not any("SCHEMA_REGISTRY" in text for text in local)
