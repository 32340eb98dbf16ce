"""`ottla server --nodes`: several nodes of one machine under one supervisor, as real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from free_ports import free_ports
from ottla.cli.host.plan import PORT_STEP

OTTLA = (sys.executable, "-m", "ottla.cli.main")
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class Host:
    """One machine with nodes. Its output is in files, so that no pipe can fill."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        first = free_ports(PORT_STEP * count)[0]
        self.folder, self.count, self.port = folder, count, first
        self.settings = folder / "server.properties"
        self.settings.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={folder}/data\n"
            f"controller.quorum.bootstrap.servers=127.0.0.1:{first + 1}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{first},CONTROLLER://127.0.0.1:{first + 1}\n"
            f"controller.listener.names=CONTROLLER\nottla.metrics.listener=127.0.0.1:{first + 2}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *words: str) -> str:
        done = subprocess.run([*OTTLA, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def format(self) -> None:
        config = ("--cluster-id", CLUSTER, "--config", str(self.settings), "--standalone")
        self.command("format", "--nodes", str(self.count), *config)

    def start(self) -> None:
        with (self.folder / "out").open("wb") as out, (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*OTTLA, "server", str(self.settings), "--nodes", str(self.count)],
                stdout=out,
                stderr=log,
            )

    def said(self) -> str:
        return (self.folder / "out").read_text()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, self.said() + self.log()
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(SECONDS_MAX)

    def pids(self) -> dict[int, int]:
        """Return the processes of the nodes by node id."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode().split("\0")
            except OSError:
                continue
            if str(self.settings) in words and "--supervised" in words:
                node_id = next(word for word in words if word.startswith("node.id="))
                found[int(node_id.removeprefix("node.id="))] = int(path.parent.name)
        return found


@contextmanager
def host(folder: Path) -> Iterator[Host]:
    made = Host(folder)
    try:
        yield made
    finally:
        if made.process is not None:
            made.process.kill()
            made.process.wait()
        for pid in made.pids().values():
            os.kill(pid, signal.SIGKILL)


def test_nodes_run_are_restarted_and_stop_together(tmp_path: Path) -> None:
    with host(tmp_path) as made:
        made.format()
        made.start()
        made.wait(lambda: "ready " in made.said())
        first, second = f"127.0.0.1:{made.port}", f"127.0.0.1:{made.port + PORT_STEP}"
        assert f"ready {first},{second}" in made.said() or f"ready {second},{first}" in made.said()
        assert f"metrics=127.0.0.1:{made.port + PORT_STEP + 2}" in made.said()
        assert sorted(made.pids()) == [1, 2]
        os.kill(made.pids()[2], signal.SIGKILL)
        made.wait(lambda: made.said().count("started node 2") == 2)
        assert "node 2 was ended by signal 9; starting it again in 0.5 s" in made.log()
        assert made.end(signal.SIGTERM) == 0
        assert made.pids() == {}
        log = made.log()
        assert "[node 1] " in log
        assert "[node 2] " in log


@pytest.mark.nightly
def test_nodes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with host(tmp_path) as made:
        made.format()
        made.start()
        made.wait(lambda: "ready " in made.said())
        made.end(signal.SIGKILL)
        made.wait(lambda: made.pids() == {})


def test_nodes_that_are_not_formatted_are_reported_with_exit_code_1(tmp_path: Path) -> None:
    with host(tmp_path) as made:
        made.start()
        assert made.process is not None
        assert made.process.wait(SECONDS_MAX) == 1
        assert "before it was ready" in made.log()
        assert "ottla format" in made.log()
        assert "[node " in made.log()


@pytest.mark.nightly
def test_sighup_restarts_one_node_after_the_other(tmp_path: Path) -> None:
    with host(tmp_path) as made:
        made.format()
        made.start()
        made.wait(lambda: "ready " in made.said())
        made.command(
            "topic", "create", "t", "-p", "4", "-r", "2", "--bootstrap", f"127.0.0.1:{made.port}"
        )
        before = made.pids()
        made.settings.write_text(made.settings.read_text() + "num.partitions=7\n")
        assert made.process is not None
        made.process.send_signal(signal.SIGHUP)
        made.wait(lambda: "rolling restart done" in made.log())
        log, after = made.log(), made.pids()
        assert log.index("node 2 is restarted and in sync") < log.index("node 1 is restarted")
        assert not set(before.values()) & set(after.values())
        assert sorted(after) == [1, 2]
        assert made.end(signal.SIGINT) == 130
