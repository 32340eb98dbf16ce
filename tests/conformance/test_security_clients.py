"""Every protocol and mechanism with Java, kafkajs, @platformatic/kafka and kcat.

The Python clients are in ``tests/wire/test_security_matrix.py``, with the same cases.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from client_contract import Refused
from confluent_kafka import Producer
from secure_drivers import Java, KafkaJs, Kcat, Login, Platformatic, login_of
from secure_node import SecureNode, unsigned

CLIENTS = {
    Java: pytest.mark.jvm,
    KafkaJs: pytest.mark.external,
    Platformatic: pytest.mark.external,
    Kcat: pytest.mark.external,
}
Client = Java | KafkaJs | Platformatic | Kcat
LISTENERS = [
    ("TLS", None),
    ("MUTUAL", None),
    *(
        (listener, mechanism)
        for listener in ("LOGIN", "SECURE")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]
CASES = [
    pytest.param(made, *case, marks=mark, id="-".join(filter(None, (made.name, *case))))
    for made, mark in CLIENTS.items()
    for case in LISTENERS
    if case[1] is None or case[1] in made.mechanisms
]
EACH_CLIENT = [pytest.param(made, marks=mark, id=made.name) for made, mark in CLIENTS.items()]

# What clients say of a login or of certificates; anything else is a fault of the test.
REFUSALS = re.compile("auth|credential|certificate|ssl|tls|invalid_token", re.IGNORECASE)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    found = SecureNode(tmp_path_factory.mktemp("secure"))
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, secure: SecureNode) -> Iterator[Client]:
    made: Client = request.param(secure.root)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("client", "listener", "mechanism"), CASES, indirect=["client"])
def test_client_creates_writes_and_reads(
    client: Client, secure: SecureNode, listener: str, mechanism: str | None
) -> None:
    topic = f"{client.name}-{listener}-{mechanism}".lower()
    login = login_of(secure, listener, mechanism)
    if isinstance(client, Kcat) and client.repeats_nonce and "SCRAM" in str(mechanism):
        with pytest.raises(Refused, match="invalid credentials"):
            client.log_in(login)
        return
    found = client.round_trip(login, topic)
    assert found == ["value-0", "value-1", "value-2"]


def bad_logins(client: Client, secure: SecureNode, other: trustme.CA) -> dict[str, Login]:
    """Logins that a listener refuses, each beside a good one in the matrix above."""
    ca = secure.root / "other-ca.pem"
    other.cert_pem.write_to_path(str(ca))
    leaf = other.issue_cert("mallory", common_name="carol")
    cert, key = secure.root / "mallory.crt", secure.root / "mallory.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(key))
    bad = {
        "authority of the server": replace(login_of(secure, "TLS"), ca=str(ca)),
        "no client certificate": replace(login_of(secure, "MUTUAL"), cert=None, key=None),
        "unknown client certificate": replace(
            login_of(secure, "MUTUAL"), cert=str(cert), key=str(key)
        ),
    }
    for mechanism in client.mechanisms:
        login = login_of(secure, "SECURE", mechanism)
        if mechanism == "OAUTHBEARER":
            bad["unsigned token"] = replace(login, token=unsigned("alice"))
            bad["token of another audience"] = replace(login, token=secure.token(audience="other"))
        else:
            bad[f"{mechanism} password"] = replace(login, password="wrong")
            bad[f"{mechanism} user"] = replace(login, user="nobody")
    return {name: replace(login, is_bad=True) for name, login in bad.items()}


@pytest.mark.parametrize("client", EACH_CLIENT, indirect=True)
def test_bad_credentials_are_refused(client: Client, secure: SecureNode) -> None:
    accepted, unclear = [], []
    assert client.log_in(login_of(secure, "SECURE", "PLAIN"))
    for name, login in bad_logins(client, secure, trustme.CA()).items():
        try:
            client.log_in(login)
            accepted.append(name)
        except Refused as refused:
            if not REFUSALS.search(str(refused)) or "alice-secret" in str(refused):
                unclear.append((name, str(refused)[-300:]))
    assert (accepted, unclear) == ([], [])


@pytest.mark.parametrize(
    "client", [pytest.param(Java, marks=pytest.mark.jvm, id="java")], indirect=True
)
def test_java_client_fails_at_once_with_a_wrong_password(client: Java, secure: SecureNode) -> None:
    """An error that the client does not retry, as Kafka's is."""
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        login = replace(login_of(secure, "SECURE", mechanism), password="no", is_bad=True)
        began = time.monotonic()
        with pytest.raises(Refused, match="SaslAuthenticationException"):
            client.log_in(login)
        assert time.monotonic() - began < 15, "the client went on trying"


@pytest.mark.jvm
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_java_client_logs_in_again_before_its_session_ends(tmp_path: Path, mechanism: str) -> None:
    secure = SecureNode(tmp_path, ("connections.max.reauth.ms=3000",))
    running = secure.start()
    client = Java(tmp_path)
    try:
        login = login_of(secure, "SECURE", mechanism)
        assert client.round_trip(login, "steady") == ["value-0", "value-1", "value-2"]
        output = client.produce_for(login, "steady", 8)
        assert output["failures"] == []
        assert float(str(output["successful-reauthentication-total"])) >= 2
        assert float(str(output["failed-reauthentication-total"])) == 0
    finally:
        client.close()
        running.stop()


@pytest.mark.external
def test_librdkafka_goes_on_beyond_the_end_of_its_session(tmp_path: Path) -> None:
    secure = SecureNode(tmp_path, ("connections.max.reauth.ms=2000",))
    running = secure.start()
    failed: list[str] = []
    try:
        login = login_of(secure, "SECURE", "SCRAM-SHA-512")
        producer = Producer(
            {
                "bootstrap.servers": login.bootstrap,
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": login.ca,
                "sasl.mechanism": login.mechanism,
                "sasl.username": login.user,
                "sasl.password": login.password,
                "log_level": 0,
            }
        )
        ends = time.monotonic() + 7
        while time.monotonic() < ends:
            producer.produce(
                "steady", b"x", on_delivery=lambda error, _: error and failed.append(str(error))
            )
            assert producer.flush(30) == 0
            producer.poll(0.05)
        assert failed == []
    finally:
        running.stop()


@pytest.mark.jvm
def test_java_client_keeps_writing_while_the_certificate_is_renewed(tmp_path: Path) -> None:
    secure = SecureNode(tmp_path)
    running = secure.start()
    client = Java(tmp_path)
    try:
        login = login_of(secure, "TLS")
        assert client.round_trip(login, "renewed") == ["value-0", "value-1", "value-2"]
        before = served(secure)
        secure.renew(secure.ca)
        output = client.produce_for(login, "renewed", 4)
        assert output["failures"] == []
        assert served(secure) != before, "the old certificate is still served"
        # A new connection of the same client accepts the new certificate.
        assert client.log_in(login)
    finally:
        client.close()
        running.stop()


def served(secure: SecureNode) -> str:
    """The certificate that a new connection sees."""
    import ssl

    host, port = secure.bootstrap("TLS").split(":")
    return ssl.get_server_certificate((host, int(port)))
