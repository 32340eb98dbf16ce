"""A node of `SecureNode` in its own process, whose memory and delays a test can measure."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from secure_node import SecureNode

COMMAND = (sys.executable, "-m", "ottla.cli.main")
STOP_S_MAX = 60


class SecureProcess:
    """The running process. Its log goes to the file ``log``."""

    def __init__(self, secure: SecureNode) -> None:
        self.secure = secure
        self.log = secure.root / "node.log"
        secure.format()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "server", str(secure.write_settings())],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log.read_text()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        """The resident memory of the process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, "the node has stopped"
        return int(found[1]) * 1024

    def wait_resident(self, bytes_max: int, seconds_max: float) -> int:
        """Wait until the resident memory is at most ``bytes_max``; return it then or at the end."""
        deadline = time.monotonic() + seconds_max
        while (resident := self.resident_bytes) > bytes_max and time.monotonic() < deadline:
            time.sleep(0.2)
        return resident

    def stop(self) -> None:
        """Stop the node; it must end by itself."""
        self._process.terminate()
        try:
            assert self._process.wait(STOP_S_MAX) == 0
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()


@contextlib.contextmanager
def secure_process(secure: SecureNode) -> Iterator[SecureProcess]:
    """Run a node for a test."""
    running = SecureProcess(secure)
    try:
        yield running
    finally:
        running.stop()
