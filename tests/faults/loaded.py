"""A node in its own process, and real clients that use it while a test injects faults."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import SECONDS_MAX

from ottla.testing.history.anomalies import Anomaly
from ottla.testing.history.check import check
from ottla.testing.history.events import AnyEvent, Phase, Send, read_lines

CLIENT = Path(__file__).parent / "load_client.py"


@dataclass
class Load:
    """Running clients. ``finish`` returns their history."""

    process: subprocess.Popen[bytes]
    history: Path
    said: Path

    def wait_ready(self) -> None:
        while b"ready" not in self.said.read_bytes():
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(0.01)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def finish(self) -> list[AnyEvent]:
        """Stop the clients and return what they recorded."""
        assert self.process.stdin is not None
        assert self.is_running, self.said.read_text()
        self.process.stdin.close()
        self.process.wait(SECONDS_MAX)
        assert self.process.returncode == 0, self.said.read_text()
        return read_lines(self.history.read_bytes().splitlines())


@contextmanager
def run_load(
    bootstrap: str, directory: Path, *, topic: str = "load", rate: int = 300
) -> Iterator[Load]:
    """Start the clients; they are always stopped with the test."""
    said = directory / "load.txt"
    history = directory / "history.jsonl"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(CLIENT), bootstrap, topic, str(history), str(rate)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield Load(process, history, said)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def acknowledged(events: list[AnyEvent]) -> int:
    return sum(isinstance(each, Send) and each.phase is Phase.OK for each in events)


def latencies_ms(events: list[AnyEvent], start: int, end: int) -> list[float]:
    """Return how long acknowledgements took, of records sent in a span of monotonic nanoseconds."""
    begun: dict[str, int] = {}
    found = []
    for each in events:
        if isinstance(each, Send) and each.phase is Phase.INVOKE:
            begun[each.value] = each.time
        elif isinstance(each, Send) and start <= begun[each.value] < end:
            found.append((each.time - begun[each.value]) / 1e6)
    return sorted(found)


def p99(values: list[float]) -> float:
    assert len(values) > 100, "too few to say anything"
    return values[len(values) * 99 // 100]


def first_of(anomalies: list[Anomaly]) -> str:
    """Return the first problems, for a message."""
    return "\n".join(map(str, anomalies[:20]))


def violations(events: list[AnyEvent]) -> str:
    """Return the violations in a history; empty if there are none."""
    return first_of(check(events))


def resident_kib(process_id: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{process_id}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, "no such process"
    return int(found[1])


def cpu_s(process_id: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
