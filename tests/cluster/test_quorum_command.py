"""`ottla cluster quorum` and `ottla cluster features` against real processes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX

OTTLA = (sys.executable, "-m", "ottla.cli.main")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Quorum:
    """A combined node 1, and a controller 2 that is no voter at first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client, *self.controllers = free_ports(3)
        roles = {1: "broker,controller", 2: "controller"}
        for node, role in roles.items():
            listeners = [f"CONTROLLER://127.0.0.1:{self.controllers[node - 1]}"]
            if node == 1:
                listeners.append(f"PLAINTEXT://127.0.0.1:{self.client}")
            self.settings(node).write_text(
                f"process.roles={role}\nnode.id={node}\n"
                f"controller.quorum.bootstrap.servers=127.0.0.1:{self.controllers[0]}\n"
                f"listeners={','.join(listeners)}\ncontroller.listener.names=CONTROLLER\n"
                f"log.dirs={root / f'data-{node}'}\n"
            )

    def settings(self, node: int) -> Path:
        return self.root / f"node-{node}.properties"

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*OTTLA, *arguments, "-b", f"127.0.0.1:{self.client}"],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    @contextmanager
    def running(self, node: int, how: str) -> Iterator[None]:
        command = [*OTTLA, "format", "-t", CLUSTER_ID, "-c", str(self.settings(node)), how]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX)
        with (self.root / f"node-{node}.log").open("wb") as log:
            process = subprocess.Popen(
                [*OTTLA, "server", str(self.settings(node))],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"started node")
            yield
        finally:
            process.kill()
            process.wait(SECONDS_MAX)
            assert process.stdout is not None
            process.stdout.close()

    def roles(self) -> dict[int, str]:
        rows = self.json("cluster", "quorum", "describe")["replicas"]
        return {row["node"]: row["role"] for row in rows}

    def wait_for(self, roles: dict[int, str]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while self.roles() != roles:
            assert time.monotonic() < deadline, self.roles()

    def add(self, *arguments: str) -> None:
        """Add a voter; it is refused until it has caught up."""
        deadline = time.monotonic() + SECONDS_MAX
        command = [*OTTLA, "cluster", "quorum", "add", *arguments]
        while True:
            bootstrap = f"127.0.0.1:{self.client}"
            done = subprocess.run([*command, "-b", bootstrap], capture_output=True, text=True)
            if done.returncode == 0:
                return
            assert time.monotonic() < deadline, done


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    made = Quorum(tmp_path_factory.mktemp("quorum"))
    with made.running(1, "--standalone"):
        yield made


def test_voters_are_described_added_and_removed(quorum: Quorum) -> None:
    quorum.wait_for({1: "leader"})
    refused = quorum("cluster", "quorum", "remove", "1", code=1)
    assert "node 1 is the only voter" in refused
    refused = quorum("cluster", "quorum", "add", "2", "--address", "127.0.0.1:1", code=1)
    assert "node 2 does not follow the metadata log" in refused
    with quorum.running(2, "--no-initial-controllers"):
        quorum.wait_for({1: "leader", 2: "observer"})
        quorum.add("--config", str(quorum.settings(2)))
        quorum.wait_for({1: "leader", 2: "voter"})
        described = quorum.json("cluster", "quorum", "describe")
        addresses = [row["address"] for row in described["replicas"]]
        assert addresses == [f"127.0.0.1:{port}" for port in quorum.controllers]
        address = ("--address", f"127.0.0.1:{quorum.controllers[1]}")
        refused = quorum("cluster", "quorum", "add", "2", *address, code=1)
        assert "is a voter already" in refused
        (removed,) = quorum.json("cluster", "quorum", "remove", "2")
        assert removed["directory_id"] == described["replicas"][1]["directory_id"]
        quorum.wait_for({1: "leader", 2: "observer"})
        quorum.add("2", *address)
        quorum.wait_for({1: "leader", 2: "voter"})
        refused = quorum("cluster", "quorum", "unregister", "2", code=1)
        assert "controller 2 is a voter; `ottla cluster quorum remove 2`" in refused
        quorum("cluster", "quorum", "remove", "2")
    refused = quorum("cluster", "quorum", "unregister", "2", code=1)
    assert "metadata.version is too old to unregister controllers" in refused


def test_features_are_described_and_changed(quorum: Quorum) -> None:
    def levels() -> dict[str, str]:
        rows = quorum.json("cluster", "features", "describe")
        return {row["feature"]: row["level"] for row in rows}

    before = levels()
    assert before["metadata.version"] == "4.2-IV1" and before["share.version"] == "1"
    change = ("cluster", "features", "downgrade", "-f", "share.version=0")
    (row,) = quorum.json(*change, "--dry-run")
    assert row == {"feature": "share.version", "from": "1", "to": "0"}
    assert levels() == before
    assert quorum.json(*change) == [row]
    assert levels() == {**before, "share.version": "0"}
    upgrade = ("cluster", "features", "upgrade", "--release-version")
    (row,) = quorum.json(*upgrade, "4.2")
    assert row == {"feature": "share.version", "from": "0", "to": "1"}
    assert quorum.json(*upgrade, "4.2") == []
    refused = quorum("cluster", "features", "upgrade", "-f", "share.version=9", code=1)
    assert "INVALID_UPDATE_VERSION" in refused
    refused = quorum("cluster", "features", "downgrade", "--release-version", "3.9", code=1)
    assert "might delete metadata information" in refused or "Can't downgrade" in refused
    assert "did you mean" in quorum("cluster", "features", "upgrade", "-f", "share.vers=1", code=2)


def test_lost_controller_is_unregistered_at_the_level_of_kafka_4_4(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path)
    with quorum.running(1, "--standalone"):
        with quorum.running(2, "--no-initial-controllers"):
            quorum.wait_for({1: "leader", 2: "observer"})
            quorum("cluster", "features", "upgrade", "-f", "metadata.version=4.4-IV2")
        refused = quorum("cluster", "quorum", "unregister", "7", code=1)
        assert "Controller ID 7 is not currently registered" in refused
        assert quorum.json("cluster", "quorum", "unregister", "2") == [{"unregistered": 2}]
        refused = quorum("cluster", "quorum", "unregister", "2", code=1)
        assert "Controller ID 2 is not currently registered" in refused
