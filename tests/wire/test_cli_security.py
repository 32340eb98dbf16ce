"""The command line against secure listeners, and `ottla up --secure` with what it prints."""

import ast
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from secure_node import SecureNode
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner
from up_process import Up

from ottla.cli.app import app


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    found = SecureNode(tmp_path_factory.mktemp("secure"))
    running = found.start()
    try:
        yield found
    finally:
        running.stop()


def run(*arguments: str, code: int = 0, given: str = "", **variables: str) -> str:
    done = CliRunner().invoke(app, arguments, input=given, env=variables)
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout if code == 0 else done.stderr


def login(secure: SecureNode, mechanism: str = "SCRAM-SHA-512", password: str = "") -> list[str]:
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secure.ca_file),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password or "alice-secret",
    }
    words = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
    return ["-b", secure.bootstrap("SECURE"), *words]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_commands_log_in(secure: SecureNode, mechanism: str) -> None:
    found = json.loads(run("cluster", "info", "-o", "json", *login(secure, mechanism)))
    assert found["brokers"]


def test_settings_come_from_a_file_the_environment_and_a_profile(
    secure: SecureNode, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secure.ca_file}\n"
        f"ssl.certificate.location={secure.client_cert}\nssl.key.location={secure.client_key}\n"
    )
    mutual = secure.bootstrap("MUTUAL")
    run("topic", "list", "-b", mutual, "--command-config", str(file))
    run("topic", "list", OTTLA_COMMAND_CONFIG=str(file), OTTLA_BOOTSTRAP=mutual)
    run(
        *("topic", "list", "-b", secure.bootstrap("TLS")),
        OTTLA_SECURITY_PROTOCOL="ssl",
        OTTLA_SSL_CA_LOCATION=str(secure.ca_file),
    )
    profiles = {"OTTLA_PROFILES": str(tmp_path / "profiles.toml")}
    run("profile", "set", "m", "-f", str(file), f"bootstrap.servers={mutual}", **profiles)
    run("topic", "list", "--profile", "m", **profiles)
    token = tmp_path / "token"
    token.write_text(secure.token())
    run(
        *("topic", "list", "-b", secure.bootstrap("LOGIN")),
        *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=OAUTHBEARER"),
        *("-X", f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}"),
    )


def test_failures_say_what_to_do_and_no_secret(secure: SecureNode) -> None:
    reply = run("topic", "list", *login(secure, password="giraffe"), code=1)
    assert "login failed" in reply and "giraffe" not in reply
    reply = run("topic", "list", "-b", secure.bootstrap("SECURE"), code=1)
    assert "set security.protocol=SASL_SSL" in reply
    reply = run(
        "topic", "list", "-b", secure.bootstrap("TLS"), "-X", "security.protocol=SSL", code=1
    )
    assert "ssl.ca.location" in reply


@pytest.mark.parametrize(
    ("protocol", "listener", "says"),
    [
        ("PLAINTEXT", "TLS", "requires TLS: set security.protocol=SSL and ssl.ca.location"),
        ("PLAINTEXT", "MUTUAL", "requires TLS: set security.protocol=SSL"),
        ("PLAINTEXT", "LOGIN", "requires a login: set security.protocol=SASL_PLAINTEXT, sasl.m"),
        ("PLAINTEXT", "SECURE", "requires TLS: set security.protocol=SASL_SSL and ssl.ca.locat"),
        ("SSL", "OPEN", "does not use TLS: set security.protocol=PLAINTEXT"),
        ("SSL", "LOGIN", "does not use TLS: set security.protocol=SASL_PLAINTEXT"),
        ("SSL", "SECURE", "requires a login: set security.protocol=SASL_SSL, sasl.mechanism (PLA"),
        ("SSL", "MUTUAL", "requires a client certificate: set ssl.certificate.location"),
        ("SASL_PLAINTEXT", "OPEN", "has no login: set security.protocol=PLAINTEXT"),
        ("SASL_PLAINTEXT", "TLS", "requires TLS: set security.protocol=SSL"),
        ("SASL_PLAINTEXT", "SECURE", "requires TLS: set security.protocol=SASL_SSL"),
        ("SASL_SSL", "OPEN", "does not use TLS: set security.protocol=PLAINTEXT"),
        ("SASL_SSL", "TLS", "has no login: set security.protocol=SSL"),
        ("SASL_SSL", "LOGIN", "does not use TLS: set security.protocol=SASL_PLAINTEXT"),
    ],
)
def test_client_of_another_protocol_learns_which_one_to_set(
    secure: SecureNode, protocol: str, listener: str, says: str
) -> None:
    words = ("-b", secure.bootstrap(listener), *settings_for(protocol, secure))
    reply = run("topic", "list", *words, code=1)
    assert f"{secure.bootstrap(listener)} {says}" in reply or f"the listener {says}" in reply
    assert "alice-secret" not in reply and len(reply.splitlines()) == 1


def test_sql_tells_which_protocol_to_set(secure: SecureNode) -> None:
    for protocol, listener, says in (
        ("SSL", "OPEN", "does not use TLS: set security.protocol=PLAINTEXT"),
        ("SASL_PLAINTEXT", "OPEN", "has no login: set security.protocol=PLAINTEXT"),
    ):
        words = ("-b", secure.bootstrap(listener), *settings_for(protocol, secure))
        assert says in run("sql", "select * from t", *words, code=1)


def settings_for(protocol: str, secure: SecureNode) -> list[str]:
    own = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        own["ssl.ca.location"] = str(secure.ca_file)
    if protocol.startswith("SASL"):
        own |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        own["sasl.password"] = "alice-secret"
    return [word for key, value in own.items() for word in ("-X", f"{key}={value}")]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_port_of_a_web_server_is_named(secure: SecureNode, protocol: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        at = f"127.0.0.1:{server.server_address[1]}"
        reply = run("topic", "list", "-b", at, *settings_for(protocol, secure), code=1)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert f"{at} speaks HTTP, not Kafka" in reply


def test_user_from_creation_to_deletion(secure: SecureNode, tmp_path: Path) -> None:
    own = login(secure)
    (made,) = json.loads(run("user", "create", "bob", "-o", "json", *own, given="first\n"))
    assert made == {
        "user": "bob",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "iterations": [8192, 8192],
    }
    assert "exists" in run("user", "create", "bob", *own, given="other\n", code=1)
    as_bob = ["-X", "sasl.username=bob", "-X"]
    run("topic", "list", *own, *as_bob, "sasl.password=first")
    (tmp_path / "password").write_text("second\n")
    run("user", "set-password", "bob", "--password-file", str(tmp_path / "password"), *own)
    run("topic", "list", *own, *as_bob, "sasl.password=second")
    assert "login failed" in run("topic", "list", *own, *as_bob, "sasl.password=first", code=1)
    run("user", "delete", "bob", "-m", "scram-sha-256", *own)
    users = {row["user"]: row for row in json.loads(run("user", "list", "-o", "json", *own))}
    assert users["bob"]["mechanisms"] == ["SCRAM-SHA-512"]
    assert json.loads(run("user", "delete", "bob", "-o", "json", *own)) == [{"deleted": "bob"}]
    assert "bob" not in run("user", "list", *own)
    assert "bob" in run("user", "delete", "bob", *own, code=1)


def test_acl_commands_explain_a_cluster_without_authorizer(secure: SecureNode) -> None:
    own = login(secure)
    reply = run("acl", "list", *own, code=1)
    assert "SECURITY_DISABLED" in reply and "authorizer.class.name" in reply
    words = ("--allow-principal", "User:bob", "--operation", "read", "--topic", "t")
    assert "authorizer.class.name" in run("acl", "add", *words, *own, code=1)


def test_quota_from_setting_to_removal(secure: SecureNode) -> None:
    own = login(secure)
    (row,) = json.loads(
        run("quota", "set", "producer_byte_rate=1024", "--user", "bob", "-o", "json", *own)
    )
    assert row["user"] == "bob" and row["limits"] == {"producer_byte_rate": 1024.0}
    run("quota", "set", "consumer_byte_rate=5", "--client-default", "--user-default", *own)
    rows = json.loads(run("quota", "list", "-o", "json", *own))
    assert {(each["user"], each["client"]) for each in rows} == {
        ("bob", None),
        ("(default)", "(default)"),
    }
    run("quota", "remove", "--user", "bob", *own)
    run("quota", "remove", "consumer_byte_rate", "--client-default", "--user-default", *own)
    assert json.loads(run("quota", "list", "-o", "json", *own)) == []


def check_acls(*connection: str) -> None:
    """Add, list and remove entries on a cluster with an authorizer."""
    words = ("--allow-principal", "User:bob", "--producer", "--topic", "orders-", "--prefixed")
    added = json.loads(run("acl", "add", *words, "-o", "json", *connection))
    assert [each["operation"] for each in added] == ["write", "describe", "create"]
    assert all(each["pattern"] == "prefixed" for each in added)
    match = ("--topic", "orders-7", "--resource-pattern-type", "match")
    listed = json.loads(run("acl", "list", *match, "-o", "json", *connection))
    assert sorted(each["operation"] for each in listed) == ["create", "describe", "write"]
    assert json.loads(run("acl", "list", "--principal", "User:x", "-o", "json", *connection)) == []
    chosen = ("--operation", "create", "--topic", "orders-", "--prefixed")
    (removed,) = json.loads(run("acl", "remove", *chosen, "-o", "json", *connection))
    assert removed["operation"] == "create" and removed["principal"] == "User:bob"
    run("acl", "remove", "--topic", "orders-", "--prefixed", *connection)
    assert json.loads(run("acl", "list", "-o", "json", *connection)) == []


def check_tokens(config: dict[str, str], *connection: str) -> None:
    """Create a token, log in with it, renew it and let it expire."""
    words = ("token", "create", "--renewer", "User:bob", "-o", "json", *connection)
    made = json.loads(run(*words))
    assert made["owner"] == "User:admin"
    (listed,) = json.loads(run("token", "list", "-o", "json", *connection))
    assert listed["token_id"] == made["token_id"] and listed["renewers"] == ["User:bob"]
    assert made["hmac"] not in json.dumps(listed)
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";'
    )
    own = [
        *("-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=SCRAM-SHA-256"),
        *("-X", f"ssl.ca.location={config['ssl.ca.location']}", "-X", f"sasl.jaas.config={jaas}"),
        *("-b", config["bootstrap.servers"]),
    ]
    assert "greetings" in run("topic", "list", *own)
    renewed = json.loads(run("token", "renew", made["hmac"], "-o", "json", *connection))
    assert renewed["expires_ms"] >= made["expires_ms"]
    run("token", "expire", made["hmac"], *connection)
    assert json.loads(run("token", "list", "-o", "json", *connection)) == []
    assert "login failed" in run("topic", "list", *own, code=1)


def test_up_secure_serves_exactly_the_clients_it_prints(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    up = Up(tmp_path / "data", port, "--secure")
    try:
        assert up.wait_ready() == f"ready 127.0.0.1:{port}\n"
        assert up.process.stdout is not None
        printed = ""
        while "ottla topic list --profile local" not in printed:
            line = up.process.stdout.readline()
            assert line, printed
            printed += line
        config = ast.literal_eval(printed.partition("config = ")[2].partition("}")[0] + "}")
        producer = Producer(config)
        producer.produce("greetings", b"hello")
        assert producer.flush(SECONDS_MAX) == 0
        consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["greetings"])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.value() == b"hello"
        consumer.close()
        java = tmp_path / "client.properties"
        java.write_text(printed.partition("client.properties\n")[2].partition("\n\n")[0])
        assert "greetings" in run("topic", "list", "--command-config", str(java))
        words = printed.partition("kcat -L ")[2].partition("\n\n")[0].replace("\\\n", " ").split()
        assert "greetings" in run("topic", "list", *words)
        check_acls("--command-config", str(java))
        check_tokens(config, "--command-config", str(java))
        wrong = AdminClient({**config, "sasl.password": "wrong", "log_level": 0})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)
        for name in ("security/credentials.json", "security/ca.key", "node-1/server.properties"):
            assert os.stat(tmp_path / "data" / name).st_mode & 0o077 == 0, name
    finally:
        code, errors = up.end()
    assert code == 0, errors
    password = config["sasl.password"]
    assert password not in errors
    assert password not in (tmp_path / "data" / "node-1" / "node.log").read_text()
    # Its data is never served openly: the next start is secure without the option.
    again = Up(tmp_path / "data", port)
    try:
        assert again.wait_ready() == f"ready 127.0.0.1:{port}\n"
        assert "greetings" in run("topic", "list", "--command-config", str(java))
        assert "security.protocol" in run("topic", "list", "-b", f"127.0.0.1:{port}", code=1)
    finally:
        again.end()


def test_cert_create_makes_what_a_secure_node_serves(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    one = json.loads(
        run("cert", "create", "broker", "--host", "localhost", "-d", str(directory), "-o", "json")
    )
    assert one["ca"] == str(directory / "ca.pem")
    before = (directory / "ca.pem").read_bytes()
    run("cert", "create", "carol", "-d", str(directory))
    assert (directory / "ca.pem").read_bytes() == before
    assert {path.name for path in directory.glob("*.key")} == {"ca.key", "broker.key", "carol.key"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in directory.glob("*.key"))
    node = SecureNode(tmp_path)
    node.store.write_bytes(Path(one["key_store"]).read_bytes())
    node.ca_file.write_bytes(before)
    running = node.start()
    try:
        settings = {
            "bootstrap.servers": node.bootstrap("MUTUAL"),
            "security.protocol": "ssl",
            "ssl.ca.location": one["ca"],
            "ssl.certificate.location": str(directory / "carol.crt"),
            "ssl.key.location": str(directory / "carol.key"),
        }
        assert AdminClient(settings).list_topics(timeout=SECONDS_MAX).brokers
    finally:
        running.stop()
