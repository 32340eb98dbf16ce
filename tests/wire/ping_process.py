"""Measures how long a node takes to answer a small request, from a process of its own.

python ping_process.py PORT FRAME_HEX PID    a line on stdin ends a measurement: the latencies since
                                             the last one, in ms, are a line on stdout

Other processes of a busy machine delay single pings. So the time that the node's event loop or this
process waited for a core does not count; the time in which the loop computed always does.
"""

import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PAUSE_S = 0.002


class Pings:
    """Pings the node of a process until closed."""

    def __init__(self, port: int, frame: bytes, pid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(port), frame.hex(), str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.take()

    def take(self) -> list[float]:
        """Return the latencies since the last call in ms, sorted."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return sorted(map(float, self._process.stdout.readline().split()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def p99(latencies: list[float]) -> float:
    """Return the 99th percentile of sorted values."""
    return latencies[len(latencies) * 99 // 100]


class Usage(NamedTuple):
    """What the first thread of a process has used, in ms."""

    core_ms: float
    waited_ms: float
    """The time in which it was ready, and other threads had the cores."""


def usage(pid: int | str) -> Usage:
    """Return the usage so far; its precision is that of the scheduler's tick, 1 to 4 ms."""
    core_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return Usage(int(core_ns) / 1e6, int(waited_ns) / 1e6)


def stall_ms(elapsed_ms: float, node: Usage, own: Usage) -> float:
    """Return how long a ping waited for the node, without the waits for a core.

    ``node`` and ``own`` are the usage of the event loop and of this process meanwhile. Where both
    waited for a core at once, the difference is too small; the loop's computing bounds it below.
    """
    awake_ms = elapsed_ms - own.waited_ms
    return max(awake_ms - node.waited_ms, min(node.core_ms, awake_ms), 0.0)


def since(now: Usage, before: Usage) -> Usage:
    """Return the usage between two moments."""
    return Usage(now.core_ms - before.core_ms, now.waited_ms - before.waited_ms)


def main() -> None:
    port, frame, pid = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3])
    sock = socket.create_connection(("localhost", port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    latencies: list[float] = []
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable:
            if not sys.stdin.readline():
                return
            print(*(f"{latency:.2f}" for latency in latencies), flush=True)
            latencies = []
        node, own = usage(pid), usage("self")
        began = time.perf_counter()
        sock.sendall(frame)
        (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        while left:
            left -= len(sock.recv(left))
        elapsed_ms = (time.perf_counter() - began) * 1000
        latencies.append(stall_ms(elapsed_ms, since(usage(pid), node), since(usage("self"), own)))
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
