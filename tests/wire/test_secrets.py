"""No secret of a node is in its logs, answers, errors, metrics or process arguments."""

import base64
import os
import signal
import subprocess
import sys
import time
import urllib.request
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
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

from ottla.config.loading import load

OTTLA = (sys.executable, "-m", "ottla.cli.main")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
# Every secret has the word in it, so that one search finds all of them.
WORD = "hush"
STORE, NODE, USER, TOKENS = f"{WORD}-store", f"{WORD}-node", f"{WORD}-user", f"{WORD}-tokens"
METRICS, GUESS, CHANGED = f"{WORD}-metrics", f"{WORD}-guess", f"{WORD}-changed"


class SecretNode:
    """A node process with a secret wherever a setting takes one; its output goes to a file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port, self.controller, self.metrics = free_ports(3)
        authority = trustme.CA()
        self.ca = root / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        leaf = authority.issue_cert("localhost", common_name="node")
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        chain = [load_pem_x509_certificate(blob.bytes()) for blob in leaf.cert_chain_pems]
        (root / "node.p12").write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"node",
                key,  # type: ignore[arg-type]
                chain[0],
                chain[1:],
                BestAvailableEncryption(STORE.encode()),
            )
        )
        (root / "tokens.properties").write_text(f"key={TOKENS}\n")
        self.file = root / "server.properties"
        self.file.write_text(self.text())
        self.log = root / "out.txt"

    def text(self, store_password: str = STORE) -> str:
        return f"""process.roles=broker,controller
node.id=1
listeners=SASL_SSL://localhost:{self.port},CONTROLLER://localhost:{self.controller}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:{self.controller}
inter.broker.listener.name=SASL_SSL
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL
log.dirs={self.root / "data"}
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
delegation.token.secret.key=${{file:{self.root / "tokens.properties"}:key}}
ssl.keystore.type=PKCS12
ssl.keystore.location={self.root / "node.p12"}
ssl.keystore.password={store_password}
ssl.truststore.type=PEM
ssl.truststore.location={self.ca}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN} user_alice="{USER}";
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM} username="node" password="{NODE}";
listener.name.controller.plain.sasl.jaas.config={PLAIN} username="node" password="{NODE}" \
user_node="{NODE}";
ottla.metrics.listener=127.0.0.1:{self.metrics}
ottla.metrics.user=prometheus
ottla.metrics.password={METRICS}
connection.failed.authentication.delay.ms=0
"""

    def start(self) -> "subprocess.Popen[bytes]":
        scram = f"SCRAM-SHA-512=[name=node,password={NODE}]"
        command = [*OTTLA, "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(self.file)]
        done = subprocess.run(
            [*command, "--standalone", "--add-scram", scram], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert WORD not in done.stdout + done.stderr
        with self.log.open("wb") as out:
            return subprocess.Popen([*OTTLA, "server", str(self.file)], stdout=out, stderr=out)

    def settings(self, password: str = USER) -> dict[str, str | int]:
        return {
            "bootstrap.servers": f"localhost:{self.port}",
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
            "log_level": 0,
        }


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecretNode, int]]:
    found = SecretNode(tmp_path_factory.mktemp("secrets"))
    process = found.start()
    try:
        admin = AdminClient(found.settings())

        def serves() -> bool:
            assert process.poll() is None, found.log.read_text()[-2000:]
            try:
                return bool(admin.list_topics(timeout=1).brokers)
            except KafkaException:
                return False

        until(serves)
        yield found, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS_MAX)


def change(admin: AdminClient, kind: ResourceType, key: str, value: str) -> str:
    """Change a setting of the node; return the error, or an empty text."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, "1", incremental_configs=[entry])
    try:
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(SECONDS_MAX)
    except KafkaException as error:
        return str(error)
    return ""


def test_running_node_shows_no_secret(node: tuple[SecretNode, int]) -> None:
    secret, pid = node
    admin = AdminClient(secret.settings())
    shown = []
    wrong = AdminClient(secret.settings(GUESS))
    with pytest.raises(KafkaException) as caught:
        wrong.list_topics(timeout=3)
    shown.append(str(caught.value))
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion("bob", information, f"{WORD}-bob".encode())
    for done in admin.alter_user_scram_credentials([upsertion]).values():
        done.result(SECONDS_MAX)
    shown.append(repr(admin.describe_user_scram_credentials().result(SECONDS_MAX)))
    prefix = "listener.name.sasl_ssl.ssl."
    error = change(admin, ResourceType.BROKER, f"{prefix}keystore.password", CHANGED)
    assert error, "the store has another password"
    shown.append(error)
    described = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")])
    (entries,) = (each.result(SECONDS_MAX) for each in described.values())
    assert "ssl.keystore.password" in entries and entries["ssl.keystore.password"].value is None
    shown += [f"{name} {entry.value} {entry.synonyms}" for name, entry in entries.items()]
    for path in ("cmdline", "environ"):
        shown.append(Path(f"/proc/{pid}/{path}").read_text(errors="replace"))
    asked = urllib.request.Request(f"http://127.0.0.1:{secret.metrics}/metrics")
    asked.add_header("Authorization", "Basic " + _basic(f"prometheus:{METRICS}"))
    with urllib.request.urlopen(asked, timeout=SECONDS_MAX) as page:
        shown.append(page.read().decode())
    log = secret.log.read_text()
    assert "alice" in log, "the failed login is logged"
    for text in (*shown, log):
        assert WORD not in text, text[max(0, text.find(WORD) - 300) : text.find(WORD) + 100]


def _basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_node_that_cannot_start_shows_no_secret(tmp_path: Path) -> None:
    secret = SecretNode(tmp_path)
    secret.file.write_text(secret.text(store_password=GUESS))
    done = subprocess.run(
        [*OTTLA, "server", str(secret.file)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode != 0 and "node.p12" in done.stderr, done.stderr
    assert WORD not in done.stdout + done.stderr


def test_loaded_settings_show_no_secret(tmp_path: Path) -> None:
    loaded = load(SecretNode(tmp_path).text(), read_file=lambda path: Path(path).read_text())
    assert WORD not in repr(loaded) + str(loaded)
