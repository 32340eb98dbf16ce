"""`ottla server` and `ottla format` as processes: messages, signals, exit codes."""

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from tests.free_ports import free_ports
from up_process import COMMAND, SECONDS_MAX


def write_settings(directory: Path, *, voters: int = 1) -> Path:
    ports = free_ports(voters + 1)
    quorum = ",".join(f"{at + 1}@127.0.0.1:{ports[at]}" for at in range(voters))
    path = directory / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[-1]},CONTROLLER://127.0.0.1:{ports[0]}\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters={quorum}\n"
        f"log.dirs={directory}/data\n"
    )
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX
    )


class Server:
    """One run of `ottla server`; waits for a text in its output."""

    def __init__(self, settings: Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "server", str(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said = ""

    def wait_for(self, text: str) -> None:
        assert self.process.stdout is not None
        timer = threading.Timer(SECONDS_MAX, self.process.kill)
        timer.start()
        try:
            while text not in self.said:
                line = self.process.stdout.readline()
                assert line, self.said
                self.said += line
        finally:
            timer.cancel()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=SECONDS_MAX)
        self.said += out
        return self.process.returncode


def test_new_node_names_the_command_to_format_it(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    refused = run("server", str(settings))
    assert refused.returncode == 1
    command = f"ottla format --config {settings}"
    assert f"is not formatted: there is no such directory. Run `{command}`" in refused.stderr
    document = run("server", str(settings), "-o", "json").stderr
    error = json.loads(document[document.index("{\n") :])  # the log of the node precedes it
    assert f"Run `{command}`" in error["error"] and error["exit_code"] == 1
    formatted = run(*command.split()[1:])
    assert formatted.returncode == 0
    cluster_id = formatted.stderr.split()[-1]
    again = run(*command.split()[1:], "-t", cluster_id, "--ignore-formatted", "-o", "json")
    assert again.returncode == 0 and '"already formatted"' in again.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signal_stops_a_running_server_with_its_exit_code(
    tmp_path: Path, number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node notifies the service manager when it serves, and when it begins to stop."""
    settings = write_settings(tmp_path)
    run("format", "--config", str(settings))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SECONDS_MAX)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        server = Server(settings)
        server.wait_for("started node 1")
        assert manager.recv(100) == b"READY=1\nSTATUS=node 1 serves"
        assert server.end(number) == code
        assert manager.recv(100) == b"STOPPING=1"
    assert "Traceback" not in server.said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signal_stops_a_server_that_waits_for_its_quorum(
    tmp_path: Path, number: int, code: int
) -> None:
    settings = write_settings(tmp_path, voters=3)
    run("format", "--config", str(settings))
    server = Server(settings)
    server.wait_for("listening name=CONTROLLER")
    assert server.end(number) == code
    assert "Traceback" not in server.said and "started node" not in server.said


def test_interrupt_before_the_server_runs_is_quiet() -> None:
    code = (
        "import os, signal, sys\n"
        "from ottla.cli import main\n"
        "def read(arguments): os.kill(os.getpid(), signal.SIGINT)\n"
        "import ottla.cli.commands.server_arguments as parser\n"
        "parser.parse_arguments = read\n"
        "sys.argv = ['ottla', 'server', 'x']\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", code], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
