"""TLS stores of a listener altered at run time, and reloaded by the handle of the node."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from one_node import OneNode, one_node, settings
from secure_node import SecureNode
from tests.patience import SECONDS_MAX

from ottla.config.problems import ConfigError
from ottla.security.tls_settings import BadTls

PREFIX = "listener.name.tls.ssl."


@pytest.fixture
def secure(tmp_path: Path) -> SecureNode:
    # Files are read on a reload, not when they change.
    return SecureNode(
        tmp_path, ("ottla.tls.reload.interval.ms=600000", "ssl.allow.dn.changes=true")
    )


@pytest.fixture
def running(secure: SecureNode) -> Iterator[OneNode]:
    node = secure.start()
    try:
        yield node
    finally:
        node.stop()


def store(path: Path, ca: trustme.CA) -> str:
    ca.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def alter(secure: SecureNode, **values: str | None) -> str:
    """Set keys of listener TLS, or delete those that are None; return the error, empty for none."""
    entries = [
        ConfigEntry(
            PREFIX + name.replace("_", "."),
            value or "",
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for name, value in values.items()
    ]
    admin = AdminClient({"bootstrap.servers": secure.bootstrap("OPEN"), "log_level": 0})
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    try:
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    except KafkaException as error:
        return str(error)
    return ""


def is_served(secure: SecureNode, listener: str, ca: trustme.CA) -> bool:
    """Whether a listener shows a certificate of this authority."""
    context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    try:
        plain = socket.create_connection(("localhost", secure.ports[listener]), SECONDS_MAX)
        with plain, context.wrap_socket(plain, server_hostname="localhost"):
            return True
    except ssl.SSLCertVerificationError:
        return False


def test_altered_store_is_served_and_removal_returns_to_the_file(
    secure: SecureNode, running: OneNode, tmp_path: Path
) -> None:
    other = trustme.CA()
    assert is_served(secure, "TLS", secure.ca)
    assert alter(secure, keystore_location=store(tmp_path / "other.pem", other)) == ""
    wait_for(lambda: is_served(secure, "TLS", other))
    # Only that listener was altered.
    assert is_served(secure, "SECURE", secure.ca)
    assert alter(secure, keystore_location=None) == ""
    wait_for(lambda: is_served(secure, "TLS", secure.ca))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    "text", ["", "/etc/passwd", "/nonexistent", "${file:/etc/passwd:root}", "${env:HOME}"]
)
def test_store_that_cannot_be_used_is_refused_and_changes_nothing(
    secure: SecureNode, running: OneNode, text: str
) -> None:
    refused = alter(secure, keystore_location=text)
    assert refused and "root:" not in refused and "/root" not in refused
    assert is_served(secure, "TLS", secure.ca)


def test_other_security_keys_are_refused_at_run_time(secure: SecureNode, running: OneNode) -> None:
    assert alter(secure, client_auth="required")
    assert alter(secure, enabled_protocols="TLSv1.2")
    admin = AdminClient({"bootstrap.servers": secure.bootstrap("OPEN"), "log_level": 0})
    jndi = (
        "com.sun.security.auth.module.JndiLoginModule required "
        'user.provider.url="ldap://example.org" useFirstPass="true";'
    )
    for name, value in (
        ("ssl.keystore.location", str(secure.store)),  # of all listeners
        ("listener.name.secure.plain.sasl.jaas.config", jndi),
        ("listener.name.tls.ssl.engine.factory.class", "os.system"),
    ):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        with pytest.raises(KafkaException):
            admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)


def test_54_altered_password_is_never_shown(
    secure: SecureNode, running: OneNode, tmp_path: Path
) -> None:
    assert alter(secure, key_password="not-shown-to-anyone") == ""
    admin = AdminClient({"bootstrap.servers": secure.bootstrap("OPEN"), "log_level": 0})
    resource = ConfigResource(ResourceType.BROKER, "1")
    found = admin.describe_configs([resource])[resource].result(SECONDS_MAX)
    entry = found[f"{PREFIX}key.password"]
    assert entry.value is None and entry.is_sensitive
    assert "not-shown" not in repr({name: each.value for name, each in found.items()})


def test_handle_reloads_certificates_and_keeps_the_old_ones_if_it_cannot(
    secure: SecureNode, running: OneNode
) -> None:
    async def reload() -> None:
        running.node.reload_tls()

    other = trustme.CA()
    secure.renew(other)
    assert is_served(secure, "TLS", secure.ca)
    running.call(reload())
    assert is_served(secure, "TLS", other)
    secure.store.write_bytes(b"damaged")
    with pytest.raises(BadTls):
        running.call(reload())
    assert is_served(secure, "TLS", other)


def test_handle_of_a_node_without_tls_refuses_to_reload(tmp_path: Path) -> None:
    with one_node(settings(tmp_path)) as node, pytest.raises(ConfigError, match="TLS"):
        node.node.reload_tls()
