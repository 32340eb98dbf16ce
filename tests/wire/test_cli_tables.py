"""The tables of commands on a terminal of 80 columns, with long names."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner
from up_process import COMMAND

from ottla.cli import options
from ottla.cli.app import app
from ottla.cli.commands import log_command, top_command
from ottla.testing import Cluster, run_node

WIDTH = 80
TOPIC = "payments.eu-central-1.card-authorisations.dead-letters.v2.retries-after-30-minutes"
GROUP = "settlement-service.production.eu-central-1.card-authorisations-reconciliation-v17"
USER = "CN=settlement-service.production.eu-central-1.example.internal,OU=Payments,O=Example"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    directory = tmp_path_factory.mktemp("a-directory-with-a-name-that-is-not-short")
    with run_node(directory=directory, config=config) as found:
        yield found


class Terminal:
    """Runs commands in this process as on a terminal of 80 columns."""

    def __init__(self, node: Cluster) -> None:
        self.environment = {"OTTLA_BOOTSTRAP": node.bootstrap}

    def __call__(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        done = CliRunner().invoke(app, arguments, env=self.environment)
        assert done.exit_code in codes, f"{done.output}\n{done.exception!r}"
        return done.stdout


@pytest.fixture
def ottla(node: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    for module in (options, top_command, log_command):
        monkeypatch.setattr(module, "terminal_width", lambda: WIDTH)
    monkeypatch.setenv("OTTLA_PROFILES", str(tmp_path / "profiles.toml"))
    return Terminal(node)


@pytest.fixture
def member(node: Cluster, ottla: Terminal) -> Iterator[Consumer]:
    """Return a member of a group; there are records, settings, ACLs and quotas with long names."""
    key = "retention.bytes=1073741824"
    ottla(
        "topic",
        "create",
        TOPIC,
        "--if-not-exists",
        "-p",
        "12",
        "-c",
        key,
        "-c",
        "cleanup.policy=compact,delete",
    )
    ottla(
        "acl", "add", "--allow-principal", f"User:{USER}", "--operation", "read", "--topic", TOPIC
    )
    ottla("quota", "set", "--user", USER, "producer_byte_rate=1048576", "request_percentage=200")
    ottla(
        "profile", "set", "production-eu", f"bootstrap.servers={','.join(['broker.example:9'] * 9)}"
    )
    match = "client_software_name=apache-kafka-java-or-librdkafka"
    metrics = "org.apache.kafka.producer.,org.apache.kafka.consumer."
    set_metrics = ("client-metrics", "set", "all-clients", "--interval", "60000")
    ottla(*set_metrics, "--metrics", metrics, "--match", match)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(TOPIC, b"x" * 3000, key=b"k", partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": GROUP,
            "client.id": GROUP,
            "group.instance.id": GROUP,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


def test_every_table_fits_a_terminal_of_80_columns(ottla: Terminal, member: Consumer) -> None:
    commands = (
        ("topic list", TOPIC),
        (f"topic describe {TOPIC}", "retention.bytes"),
        (f"topic offsets {TOPIC}", TOPIC),
        (f"config describe topic {TOPIC} --all", "compression.gzip.level"),
        ("config describe broker 1 --all", "log.dirs"),
        ("client-metrics list", "all-clients"),
        ("client-metrics describe all-clients", "apache-kafka-java"),
        ("cluster info", "cluster_id"),
        ("group list", GROUP),
        (f"group describe {GROUP}", TOPIC),
        (f"group lag {GROUP}", TOPIC),
        ("top -i 0.1 -c 1", GROUP),
        ("acl list", USER),
        ("quota list", "producer_byte_rate=1048576"),
        ("profile list", "production-eu"),
        ("profile show production-eu", "broker.example:9"),
        ("logdir list", "online"),
        ("logdir list -p", TOPIC),
        (f"group reset-offsets {GROUP}-2 -t {TOPIC} --to-latest", TOPIC),
        ("topic create another." + TOPIC[:60], "another."),
    )
    for words, shown in commands:
        text = ottla(*words.split())
        assert [line for line in text.splitlines() if len(line) > WIDTH] == [], words
        # Names continue on the next line.
        assert re.split(r"[-.=,]", shown)[0] in text, f"{words}: {text}"


def test_sizes_are_human_unless_asked_for(ottla: Terminal, member: Consumer) -> None:
    text = ottla("logdir", "list", "-p")
    assert " KiB" in text or " B" in text, text
    assert "iB" not in ottla("logdir", "list", "--bytes")


def test_terminal_is_asked_for_its_width_and_a_pipe_is_not(node: Cluster, member: Consumer) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    environment["OTTLA_BOOTSTRAP"] = node.bootstrap
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    command = [*COMMAND, "group", "describe", GROUP]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, env=environment) as process:
        os.close(terminal)
        text = read_all(controller)
    assert process.returncode == 0 and "reconciliation" in text
    assert max(map(len, text.splitlines())) <= WIDTH, text
    piped = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert any(TOPIC in line and GROUP in line for line in piped.stdout.splitlines())


def read_all(controller: int) -> str:
    """Read what was written to a terminal, until nobody has it open any more."""
    found = b""
    with os.fdopen(controller, "rb", buffering=0) as file:
        while True:
            try:
                data = file.read(65536)
            except OSError:
                data = b""
            if not data:
                return found.decode()
            found += data
