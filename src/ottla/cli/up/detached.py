"""A cluster of ``ottla up`` in another process: start, show and stop it, read its logs."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Row, render_line
from ottla.cli.up.files import OUTPUT, Running, is_locked, private_files, read_running
from ottla.cli.up.options import GivenOptions
from ottla.cli.up.processes import READY_S_MAX, STOP_S_MAX
from ottla.security.private_files import open_private

NOT_RUNNING: Final = 3
"""The exit code of a status command for a service that does not run, as init scripts have it."""
_LOOK_S: Final = 0.05
_SPARE_S: Final = 10.0
_TAIL_BYTES_MAX: Final = 1 << 20


async def start_detached(root: Path, given: GivenOptions) -> Running:
    """Run a cluster in a process of its own; return once it is ready. Raises `OSError`."""
    if is_locked(root):
        fail(f"{root}: its cluster runs already; see `ottla up status` and `ottla up stop`")
    process = _spawn(root, given)
    try:
        async with asyncio.timeout(READY_S_MAX + _SPARE_S):
            await _until(lambda: is_ready(root) or process.poll() is not None)
    except TimeoutError:
        process.terminate()
        fail(f"not ready within {READY_S_MAX:.0f} s; see {root / OUTPUT}")
    running = read_running(root)
    if process.poll() is not None or running is None:
        code = process.poll()
        fail(_output_of(root) or f"{root}: `ottla up` exited with code {code} and wrote no reason")
    return running


def _spawn(root: Path, given: GivenOptions) -> subprocess.Popen[bytes]:
    """Start the process. The options are passed by a pipe: other users can see command lines."""
    with private_files():
        root.mkdir(parents=True, exist_ok=True)
    output = open_private(root / OUTPUT)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "ottla.cli.main", "up", "--data", str(root), "--detached"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(output)
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as options:  # its output says why it exited
        options.write(msgspec.json.encode(given))
    return process


def read_given() -> GivenOptions:
    """Return the options that `start_detached` passed to this process."""
    return msgspec.json.decode(sys.stdin.buffer.read(), type=GivenOptions)


def _output_of(root: Path) -> str:
    return (root / OUTPUT).read_text(encoding="utf-8", errors="replace").strip()


async def _until(is_done: Callable[[], bool]) -> None:
    """Wait for a change that another process makes."""
    while True:
        if is_done():
            return
        await asyncio.sleep(_LOOK_S)


def is_ready(root: Path) -> bool:
    """Return whether the cluster of a directory serves."""
    running = read_running(root)
    return running is not None and running.is_ready


def state_of(root: Path) -> Row:
    """Return the state of the cluster in a directory."""
    running = read_running(root)
    if running is None:
        return {"data": str(root), "state": "starting" if is_locked(root) else "stopped"}
    return {
        "data": str(root),
        "state": "ready" if running.is_ready else "starting",
        "pid": running.pid,
        "bootstrap": running.bootstrap,
        "metrics": list(running.metrics),
        "schema_registry": list(running.registries),
        "console": list(running.consoles),
        "logs": list(running.logs.values()),
    }


async def stop_cluster(root: Path) -> int:
    """Stop a cluster, and return its process once it has ended; exit 3 if there is none."""
    running = read_running(root)
    if running is None:
        sys.stderr.write(f"{root}: no cluster runs there\n")
        sys.exit(NOT_RUNNING)
    os.kill(running.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_S_MAX + _SPARE_S):
            await _until(lambda: not is_locked(root))
    except TimeoutError:
        fail(f"process {running.pid} has not stopped; see {root}")
    return running.pid


async def print_logs(
    root: Path, node: int | None, lines: int, is_followed: bool, output: Output
) -> None:
    """Print the ends of the nodes' logs; with ``is_followed``, go on until interrupted."""
    wanted = _log_files(root, node)
    ends = {}
    for each, path in wanted.items():
        found, ends[each] = _tail(path, lines)
        _print(each, found, output)
    while is_followed:
        sys.stdout.flush()
        await asyncio.sleep(_LOOK_S)
        for each, path in wanted.items():
            found, ends[each] = _new_lines(path, ends[each])
            _print(each, found, output)


def _log_files(root: Path, node: int | None) -> dict[int, Path]:
    found = {
        int(path.parent.name.removeprefix("node-")): path for path in root.glob("node-*/node.log")
    }
    wanted = {each: found[each] for each in sorted(found) if node in (None, each)}
    if not wanted:
        fail(f"{root}: there is no log" + ("" if node is None else f" of node {node}"))
    return wanted


def _print(node: int, lines: Sequence[str], output: Output) -> None:
    for line in lines:
        if output is Output.TABLE:
            sys.stdout.write(f"node {node}: {line}\n")
        else:
            sys.stdout.write(render_line({"node": node, "line": line}, output))


def _tail(path: Path, lines: int) -> tuple[list[str], int]:
    """Return the last lines of a log, and where its next line begins."""
    size = path.stat().st_size
    start = max(0, size - _TAIL_BYTES_MAX)
    found, end = _new_lines(path, start)
    if start:
        found = found[1:]  # the first one is a part of a line
    return found[len(found) - min(lines, len(found)) :], end


def _new_lines(path: Path, start: int) -> tuple[list[str], int]:
    """Return the whole lines from a position on, and the position after them."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(_TAIL_BYTES_MAX)
    whole = data[: data.rfind(b"\n") + 1]
    return list(_decoded(whole)), start + len(whole)


def _decoded(data: bytes) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in data.splitlines())
