"""Measures how long a node takes to answer a small request, from a process of its own.

python ping_process.py PORT FRAME_HEX    a line on stdin ends a measurement: the latencies since
                                         the last one, in ms, are a line on stdout
"""

import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

PAUSE_S = 0.002


class Pings:
    """Pings a node until closed."""

    def __init__(self, port: int, frame: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(port), frame.hex()],
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


def main() -> None:
    port, frame = int(sys.argv[1]), bytes.fromhex(sys.argv[2])
    sock = socket.create_connection(("localhost", port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    latencies: list[float] = []
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable:
            if not sys.stdin.readline():
                return
            print(*(f"{each:.2f}" for each in latencies), flush=True)
            latencies = []
        began = time.perf_counter()
        sock.sendall(frame)
        (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        while left:
            left -= len(sock.recv(left))
        latencies.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
