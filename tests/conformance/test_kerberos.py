"""GSSAPI with tickets of a real KDC: between nodes, and with Java, kcat and the command line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from client_contract import Refused
from local_kdc import REALM, Kdc
from secure_drivers import Java
from secure_node import SecureNode

from ottla.security.kerberos import KerberosLogin, acceptor
from ottla.security.sasl.exchange import Rejection
from ottla.security.sasl.gssapi import GssapiExchange
from ottla.security.sasl.kerberos_rules import KerberosRules

pytestmark = pytest.mark.external

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
SERVICE = f"kafka/localhost@{REALM}"


@dataclass
class Realm:
    """A node that takes tickets on LOGIN, SECURE and CONTROLLER, and a user with a keytab."""

    kdc: Kdc
    secure: SecureNode
    user: Path
    service: Path

    def jaas(self, keytab: Path, principal: str) -> str:
        return f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    root = tmp_path_factory.mktemp("kerberos")
    kdc = Kdc(root / "kdc")
    patch = pytest.MonkeyPatch()
    for name, value in kdc.environment.items():
        patch.setenv(name, value)
    patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
    try:
        kdc.start()
        service, user = kdc.keytab("kafka/localhost"), kdc.keytab("App.carol/desk")
        jaas = f'{KRB5} useKeyTab=true storeKey=true keyTab="{service}" principal="{SERVICE}";'
        extra = [
            "sasl.kerberos.service.name=kafka",
            "sasl.kerberos.principal.to.local.rules=RULE:[2:$1](App\\\\..*)s/App\\\\.(.*)/$1/,DEFAULT",
            "sasl.mechanism.inter.broker.protocol=GSSAPI",
            "sasl.mechanism.controller.protocol=GSSAPI",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:kafka;User:carol",
        ]
        for listener in ("login", "secure", "controller"):
            extra += [
                f"listener.name.{listener}.sasl.enabled.mechanisms=GSSAPI",
                f"listener.name.{listener}.gssapi.sasl.jaas.config={jaas}",
            ]
        secure = SecureNode(root, tuple(extra))
        running = secure.start()  # the broker registers at its controller with a ticket
        try:
            yield Realm(kdc, secure, user, service)
        finally:
            running.stop()
    finally:
        kdc.stop()
        patch.undo()


@pytest.mark.jvm
def test_java_client_works_with_a_ticket(realm: Realm, tmp_path: Path) -> None:
    client = Java(tmp_path)
    properties = {
        "bootstrap.servers": realm.secure.bootstrap("SECURE"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(realm.secure.ca_file),
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": realm.jaas(realm.user, f"App.carol/desk@{REALM}"),
    }
    try:
        # Only carol and the node may create topics: the rule has named the user.
        found = client._ask("round_trip", topic="tickets", config=properties)
        assert found == ["value-0", "value-1", "value-2"]
        properties["sasl.jaas.config"] = realm.jaas(realm.user, f"mallory@{REALM}")
        with pytest.raises(Refused, match=r"(?i)login|password|keytab"):
            client._ask("login", config=properties)
    finally:
        client.close()


def kerberos_options(realm: Realm) -> list[str]:
    options = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(realm.user),
        "sasl.kerberos.principal": f"App.carol/desk@{REALM}",
    }
    return [part for pair in options.items() for part in ("-X", "=".join(pair))]


def run(*command: str, stdin: str = "") -> str:
    done = subprocess.run(
        command, input=stdin, text=True, capture_output=True, timeout=60, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kcat_works_with_a_ticket(realm: Realm) -> None:
    at = ("-b", realm.secure.bootstrap("LOGIN"), *kerberos_options(realm))
    run("kcat", *at, "-P", "-t", "of-kcat", stdin="hello\n")
    assert run("kcat", *at, "-C", "-t", "of-kcat", "-e", "-q") == "hello\n"


def test_command_line_works_with_a_ticket(realm: Realm) -> None:
    at = ("-b", realm.secure.bootstrap("LOGIN"), *kerberos_options(realm))
    ottla = (sys.executable, "-m", "ottla.cli.main")
    run(*ottla, "topic", "create", "of-ottla", *at)
    assert "of-ottla" in run(*ottla, "topic", "list", *at)


def test_forged_tokens_are_rejected(realm: Realm) -> None:
    accept = acceptor(KerberosLogin(str(realm.service), SERVICE, "kafka"))
    rules = KerberosRules(["DEFAULT"], REALM)
    for token in (b"", b"x", b"\x60" + bytes(200), os.urandom(2000)):
        assert isinstance(GssapiExchange(accept, rules).step(token), Rejection)
