"""The README, block by block and as typed, in a fresh clone of the repository.

Nodes listen at the port of the README, in a network namespace of their own where that is allowed;
what downloads runs outside of it. `make test` is stopped once tests pass: it is the suite itself.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.readme_blocks import ROOT, Block, readme_blocks

pytestmark = [pytest.mark.external, pytest.mark.timeout(2400)]
SECONDS_MAX = 900.0
DOWNLOADS = ("pip install", "make ")


class Shell:
    """A user's terminal in the clone. ``namespace`` is the process whose network it uses."""

    def __init__(self, clone: Path, namespace: int | None) -> None:
        self.clone = clone
        self.inside = [] if namespace is None else _enter(namespace)
        # Nothing of this checkout, or of the caller's environment, may be found from there.
        kept = ("PATH", "LANG", "TMPDIR")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name in kept or name.startswith(("PIP_", "HTTP", "SSL", "UV_", "no_proxy"))
        } | {"HOME": str(clone.parent)}

    def start(self, command: str, log: Path, *, is_inside: bool) -> subprocess.Popen[bytes]:
        """Start a command as typed; its output goes to ``log``."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [*(self.inside if is_inside else []), "bash", "-euo", "pipefail", "-c", command],
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, command: str, *, is_inside: bool) -> str:
        """Run a command as typed and return its output."""
        log = self.clone.parent / "output"
        process = self.start(command, log, is_inside=is_inside)
        try:
            code = process.wait(SECONDS_MAX)
        finally:
            stop(process)
        said = log.read_text(errors="replace")
        assert code == 0, f"{command}\n{said}"
        return said

    def activated(self, command: str, *, is_inside: bool) -> str:
        return self.run(f". .venv/bin/activate\n{command}", is_inside=is_inside)


def _enter(namespace: int) -> list[str]:
    return ["nsenter", "-t", str(namespace), "-U", "-n", "--preserve-credentials", "--"]


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
    """Signal a process and its children, and wait for it; kill them if they do not stop."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for a line in a log."""
    end = time.monotonic() + SECONDS_MAX
    while not re.search(pattern, log.read_text(errors="replace"), re.M):
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < end, log.read_text(errors="replace")[-3000:]
        time.sleep(0.2)


@pytest.fixture
def namespace() -> Iterator[int | None]:
    """Return a process with a network of its own; None if that is not allowed, but 9092 is free."""
    command = ["unshare", "-r", "-n", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"]
    if shutil.which("unshare") and shutil.which("ip"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        try:
            if process.stdout.readline() == b"up\n":
                yield process.pid
                return
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 9092)) == 0:
            pytest.skip("port 9092 is in use, and namespaces are not permitted")
    yield None


@pytest.fixture
def shell(tmp_path: Path, namespace: int | None) -> Shell:
    clone = tmp_path / "ottla"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    return Shell(clone, namespace)


def test_readme_runs_as_typed_in_a_fresh_clone(shell: Shell, tmp_path: Path) -> None:
    first, *others = readme_blocks(shell.clone)
    run, test = (line.partition("#")[0].strip() for line in first.text.splitlines())
    assert (run, test) == ("make run", "make test")
    if shell.inside:
        shell.run("make node", is_inside=False)  # what `make run` downloads
    log = tmp_path / "node.log"
    node = shell.start(run, log, is_inside=True)
    try:
        until(log, r"^ready 127\.0\.0\.1:9092$", node)
        said = [run_block(shell, block) for block in others]
    finally:
        stop(node, signal.SIGINT)
    assert any("lars:good morning" in each for each in said)
    assert sum("good" in each for each in said) >= 5, "each client has read a greeting"
    assert any("1 passed" in output for output in said)
    check_make_test(shell, test, tmp_path / "test.log")


def run_block(shell: Shell, block: Block) -> str:
    """Run one block as a user does: shell commands typed, Python by python, tests by pytest."""
    if block.is_test:
        (shell.clone.parent / "mine").mkdir()
        (shell.clone.parent / "mine" / "test_orders.py").write_text(block.text)
        return shell.activated("cd ../mine && pytest", is_inside=True)
    if block.language == "python":
        (shell.clone / "block.py").write_text(block.text)
        return shell.activated("python block.py", is_inside=True)
    if "kcat" in block.text and shutil.which("kcat") is None:
        return ""
    return "".join(
        shell.activated(line, is_inside=not line.startswith(DOWNLOADS))
        for line in block.text.splitlines()
    )


def check_make_test(shell: Shell, command: str, log: Path) -> None:
    """Run the suite until its first tests have passed."""
    process = shell.start(command, log, is_inside=False)
    try:
        until(log, r"^\.{40}", process)
        assert not re.search(r"^\.*[FE]", log.read_text(errors="replace"), re.M)
    finally:
        stop(process, signal.SIGINT)
