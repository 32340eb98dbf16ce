"""Ports on 127.0.0.1 for processes that a test starts, and starts again, by number.

The kernel gives outgoing connections ports of the ephemeral range, so a port of that range that is
free now may be taken by any connection a millisecond later. These ports lie below that range, and
each pytest worker has its own share of them.
"""

import os
import socket
from pathlib import Path

FIRST = 12_000
WORKER_SHARE = 2_000
WORKERS_MAX = 8
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_next: dict[str, int] = {}  # where the next search starts


def free_ports(count: int) -> list[int]:
    """Return ``count`` ports in a row that nobody listens on and were not returned lately."""
    first = _first_of_worker()
    for _ in range(WORKER_SHARE):
        start = _next.get("port", first)
        if start + count > first + WORKER_SHARE:
            start = first
        _next["port"] = start + count
        ports = list(range(start, start + count))
        if all(map(_is_free, ports)):
            return ports
    raise AssertionError(f"no {count} free ports in a row from {first} to {first + WORKER_SHARE}")


def _first_of_worker() -> int:
    """Return the first port of this worker's share.

    A run outside pytest's workers starts at a place of its own, so that a benchmark or a nemesis
    beside a test run seldom meets it.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    index = int(worker) if worker else os.getpid()
    first = FIRST + index % WORKERS_MAX * WORKER_SHARE
    assert first + WORKER_SHARE <= _ephemeral_first(), "the ephemeral range reaches down to ours"
    return first


def _ephemeral_first() -> int:
    return int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 49_152


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port with connections in TIME_WAIT is free to listen on.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
