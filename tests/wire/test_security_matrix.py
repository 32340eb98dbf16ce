"""Every protocol and mechanism with real clients, bad credentials and renewed certificates."""

import asyncio
import ssl
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from secure_node import SecureNode, unsigned
from tests.patience import SECONDS_MAX

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas by a deprecated function
    from kafka import KafkaProducer


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    found = SecureNode(tmp_path_factory.mktemp("secure"))
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


def confluent(secure: SecureNode, listener: str, mechanism: str | None = None) -> dict[str, Any]:
    """The settings of a librdkafka client with good credentials."""
    protocol = {
        "OPEN": "plaintext",
        "TLS": "ssl",
        "MUTUAL": "ssl",
        "LOGIN": "sasl_plaintext",
        "SECURE": "sasl_ssl",
    }[listener]
    settings: dict[str, Any] = {
        "bootstrap.servers": secure.bootstrap(listener),
        "security.protocol": protocol,
        "log_level": 0,
    }
    if protocol.endswith("ssl"):
        settings["ssl.ca.location"] = str(secure.ca_file)
    if listener == "MUTUAL":
        settings["ssl.certificate.location"] = str(secure.client_cert)
        settings["ssl.key.location"] = str(secure.client_key)
    if mechanism is not None:
        settings["sasl.mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (secure.token(), time.time() + 300)
    elif mechanism is not None:
        settings |= {"sasl.username": "alice", "sasl.password": "alice-secret"}
    return settings


CASES = [
    ("OPEN", None),
    ("TLS", None),
    ("MUTUAL", None),
    *(
        (listener, mechanism)
        for listener in ("LOGIN", "SECURE")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]


@pytest.mark.parametrize(("listener", "mechanism"), CASES)
def test_librdkafka_produces_and_consumes(
    secure: SecureNode, listener: str, mechanism: str | None
) -> None:
    topic = f"rd-{listener}-{mechanism}".lower()
    settings = confluent(secure, listener, mechanism)
    failed: list[object] = []
    producer = Producer(settings)
    for number in range(20):
        producer.produce(
            topic, str(number) * 1000, on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failed == []
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    while len(found) < 20:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.error() is None
        found.append(message.value())
    consumer.close()
    assert sorted(found) == sorted(str(number).encode() * 1000 for number in range(20))


def answer_of(settings: dict[str, Any]) -> str:
    """The error that a client reports first; empty where it gets metadata."""
    errors: list[str] = []
    admin = AdminClient({**settings, "error_cb": lambda error: errors.append(str(error))})
    try:
        admin.list_topics(timeout=3)
    except KafkaException as error:
        admin.poll(0)
        return " ".join([*errors, str(error)])
    return ""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret")])
def test_wrong_password_and_unknown_user_are_refused(
    secure: SecureNode, mechanism: str, user: str, password: str
) -> None:
    settings = confluent(secure, "SECURE", mechanism)
    assert answer_of(settings) == ""
    reply = answer_of({**settings, "sasl.username": user, "sasl.password": password})
    assert "Authentication failed" in reply or "AUTHENTICATION" in reply
    assert "alice-secret" not in reply


@pytest.mark.parametrize("bad", ["unsigned", "expired", "audience", "stranger"])
def test_bad_tokens_are_refused(secure: SecureNode, bad: str, tmp_path: Path) -> None:
    tokens = {
        "unsigned": unsigned("alice"),
        "expired": secure.token(seconds=-100),
        "audience": secure.token(audience="other"),
        "stranger": SecureNode(tmp_path).token(),
    }
    settings = confluent(secure, "SECURE", "OAUTHBEARER")
    settings["oauth_cb"] = lambda _: (tokens[bad], time.time() + 300)
    assert "invalid_token" in answer_of(settings)


def test_mechanism_and_protocol_that_do_not_fit_are_refused(secure: SecureNode) -> None:
    assert answer_of({**confluent(secure, "OPEN"), "bootstrap.servers": secure.bootstrap("TLS")})
    assert answer_of({**confluent(secure, "TLS"), "bootstrap.servers": secure.bootstrap("OPEN")})
    assert answer_of({**confluent(secure, "TLS"), "bootstrap.servers": secure.bootstrap("SECURE")})
    assert answer_of({**confluent(secure, "TLS"), "bootstrap.servers": secure.bootstrap("MUTUAL")})


def tls_of(secure: SecureNode) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(secure.ca_file))
    context.load_cert_chain(secure.client_cert, secure.client_key)
    return context


AIO_CASES = [case for case in CASES if case[1] != "OAUTHBEARER"]


@pytest.mark.parametrize(("listener", "mechanism"), AIO_CASES)
def test_aiokafka_produces_and_consumes(
    secure: SecureNode, listener: str, mechanism: str | None
) -> None:
    protocol = str(confluent(secure, listener)["security.protocol"]).upper()
    options: dict[str, Any] = {
        "bootstrap_servers": secure.bootstrap(listener),
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = tls_of(secure)
    if mechanism is not None:
        options |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-secret",
        }

    async def play() -> None:
        topic = f"aio-{listener}-{mechanism}".lower()
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **options
        ) as consumer:
            message = await asyncio.wait_for(consumer.getone(), SECONDS_MAX)
            assert message.value == b"x"
        if mechanism is not None:
            refused = AIOKafkaProducer(**{**options, "sasl_plain_password": "no"})
            with pytest.raises(AioKafkaError):
                await refused.start()
            await refused.stop()

    asyncio.run(play())


@pytest.mark.parametrize(("listener", "mechanism"), AIO_CASES)
def test_kafka_python_produces(secure: SecureNode, listener: str, mechanism: str | None) -> None:
    protocol = str(confluent(secure, listener)["security.protocol"]).upper()
    options: dict[str, Any] = {
        "bootstrap_servers": secure.bootstrap(listener),
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        options["ssl_context"] = tls_of(secure)
    if mechanism is not None:
        options |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-secret",
        }
    producer = KafkaProducer(**options)
    topic = f"kp-{listener}-{mechanism}".lower()
    assert producer.send(topic, b"x").get(SECONDS_MAX).offset == 0
    producer.close()


def test_certificate_is_renewed_under_traffic(tmp_path: Path) -> None:
    secure = SecureNode(tmp_path)
    running = secure.start()
    try:
        producer = Producer(confluent(secure, "TLS"))
        producer.produce("renewed", b"before")
        assert producer.flush(SECONDS_MAX) == 0
        other = trustme.CA()
        secure.renew(other)
        trust = secure._write("other.pem", other.cert_pem.bytes())
        settings = {**confluent(secure, "TLS"), "ssl.ca.location": str(trust)}
        deadline = time.monotonic() + SECONDS_MAX
        while answer_of(settings):
            assert time.monotonic() < deadline, "the new certificate is not served"
        # The connection that was open goes on.
        producer.produce("renewed", b"after")
        assert producer.flush(SECONDS_MAX) == 0
        # A file that is no certificate changes nothing.
        secure.store.write_bytes(b"damaged")
        assert answer_of(settings) == ""
    finally:
        running.stop()


def test_secrets_are_shown_nowhere(secure: SecureNode) -> None:
    text = repr(secure.loaded())
    assert "alice-secret" not in text and "node-secret" not in text
