"""`ottla up` as a separate process for tests: start it, wait for its output, stop it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.patience import SECONDS_MAX

COMMAND = (sys.executable, "-m", "ottla.cli.main")


class Up:
    """One run of `ottla up`."""

    def __init__(self, data: Path, port: int, *options: str) -> None:
        self.data, self.port = data, port
        self.process = subprocess.Popen(
            [*COMMAND, "up", "--port", str(port), "--data", str(data), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said = ""

    def wait_ready(self) -> str:
        """Return the one line on stdout; the process's own end is waited for no longer."""
        assert self.process.stdout is not None
        timer = threading.Timer(SECONDS_MAX, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise AssertionError(self.end(signal.SIGKILL)[1])
        return line

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code and what was on stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=SECONDS_MAX)
        self.said += out
        return self.process.returncode, errors

    def node_pids(self) -> list[int]:
        """Return the processes that run a node of this cluster, by what they were started with."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"server" in words and any(str(self.data).encode() in word for word in words):
                found.append(int(path.parent.name))
        return sorted(found)
