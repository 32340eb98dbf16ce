"""A rolling upgrade and its way back, between the previous release and this tree, under load.

The previous release is the tag or commit in OTTLA_UPGRADE_FROM; else the newest tag; else the
parent of this commit.
"""

import itertools
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from io import BytesIO
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.free_ports import free_ports

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120
pytestmark = [pytest.mark.external, pytest.mark.timeout(900)]


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True)
    return done.stdout if done.returncode == 0 else b""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the previous release."""
    named = os.environ.get("OTTLA_UPGRADE_FROM", "").encode()
    found = named or git("describe", "--tags", "--abbrev=0").strip() or b"HEAD~1"
    archive = git("archive", found.decode(), "src")
    if not archive:
        pytest.skip(f"git has no {found.decode()} to upgrade from")
    directory = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return directory / "src"


class Node:
    """One node whose process may run either source tree."""

    def __init__(self, directory: Path, node_id: int, ports: list[int]) -> None:
        self.settings = directory / f"node-{node_id}.properties"
        self.log = directory / f"node-{node_id}.log"
        self.address = f"127.0.0.1:{ports[node_id - 1]}"
        voters = ",".join(f"{n}@127.0.0.1:{ports[n + 2]}" for n in (1, 2, 3))
        self.settings.write_text(
            f"process.roles=broker,controller\nnode.id={node_id}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{ports[node_id + 2]}\n"
            f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters={voters}\n"
            f"log.dirs={directory}/data-{node_id}\n"
            "default.replication.factor=3\nmin.insync.replicas=2\n"
            "offsets.topic.replication.factor=3\noffsets.topic.num.partitions=3\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, source: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "ottla.cli.main", *arguments],
                env={**os.environ, "PYTHONPATH": str(source)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def format(self, source: Path) -> None:
        options = ("--config", str(self.settings), "-t", "3bNfWqRkQo6UWx2Hk1ZfRg")
        assert self.run(source, "format", *options).wait(SECONDS_MAX) == 0, self.log.read_text()

    def start(self, source: Path) -> None:
        self.process = self.run(source, "server", str(self.settings))

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS_MAX) == 0, self.log.read_text()[-3000:]


def wait_healthy(bootstrap: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "health", "-b", bootstrap]
    while True:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr


class Load:
    """Sends numbers until it is stopped; knows which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._stop = threading.Event()
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                break
            self._producer.produce(
                "orders",
                str(number),
                key=str(number % 10),
                on_delivery=lambda error, _, sent=number: (
                    self.failed.append(str(error)) if error else self.acknowledged.append(sent)
                ),
            )
            self._producer.poll(0.005)
        self._producer.flush(SECONDS_MAX)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def read_all(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
    consumer.close()
    return found


def test_nodes_roll_to_this_release_and_back_under_load(previous: Path, tmp_path: Path) -> None:
    ports, current = free_ports(6), ROOT / "src"
    nodes = [Node(tmp_path, node_id, ports) for node_id in (1, 2, 3)]
    bootstrap = ",".join(node.address for node in nodes)
    load: Load | None = None
    try:
        for node in nodes:
            node.format(previous)
            node.start(previous)
        wait_healthy(bootstrap)
        create = ("topic", "create", "orders", "-p", "4", "-b", bootstrap)
        assert nodes[0].run(current, *create).wait(SECONDS_MAX) == 0
        load = Load(bootstrap)
        for source in (current, previous):
            for node in nodes:
                node.stop()
                node.start(source)
                wait_healthy(bootstrap)
        load.end()
        assert load.failed == []
        found = read_all(bootstrap, len(load.acknowledged))
        assert sorted(found) == sorted(load.acknowledged)
        by_key: dict[int, list[int]] = {}
        for number in found:
            by_key.setdefault(number % 10, []).append(number)
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
    finally:
        if load is not None:
            load.end()
        for node in nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
