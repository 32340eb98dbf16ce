"""Metrics of the process from the kernel and the interpreter, with Prometheus' usual names.

They are read when they are scraped. Without ``/proc`` those of the kernel are left out.
"""

import gc
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.observability.exposition import Family, Kind, Sample, counter, gauge
from ottla.runtime import system_calls

_PAGE = system_calls.system_constant("SC_PAGE_SIZE", 4096)
_TICKS = system_calls.system_constant("SC_CLK_TCK", 100)
# Fields of /proc/self/stat after the name in parentheses, which may contain any character.
_THREADS, _STARTED, _VIRTUAL, _RESIDENT = 17, 19, 20, 21


@dataclass(slots=True)
class ProcessMetrics:
    """A `Source` of process metrics. ``root`` is where the kernel's files are."""

    root: str = "/proc"
    _started: float | None = field(default=None, init=False)

    def collect(self) -> Iterable[Family]:
        """Yield CPU, memory, descriptors, threads and collections."""
        seconds = time.process_time()
        yield counter("process_cpu_seconds_total", "CPU seconds, user and system.", seconds)
        limits = system_calls.open_files_limit()
        if limits is not None:
            text = "Maximum number of open file descriptors."
            yield gauge("process_max_fds", text, float(limits[0]))
        yield from self._from_kernel()
        yield from self._disk()
        yield Family(
            "python_gc_collections_total",
            Kind.COUNTER,
            "Runs of the garbage collector.",
            tuple(
                Sample((("generation", str(generation)),), stats["collections"])
                for generation, stats in enumerate(gc.get_stats())
            ),
        )

    def _from_kernel(self) -> Iterable[Family]:
        try:
            with open(f"{self.root}/self/stat") as file:
                stat = file.read().rpartition(")")[2].split()
            descriptors = len(os.listdir(f"{self.root}/self/fd"))
            yield gauge(
                "process_start_time_seconds",
                "When the process was started, since the epoch.",
                self._boot_time() + int(stat[_STARTED]) / _TICKS,
            )
        except OSError:
            return
        yield gauge("process_open_fds", "Open file descriptors.", descriptors)
        yield gauge("process_threads", "Threads.", int(stat[_THREADS]))
        yield gauge("process_virtual_memory_bytes", "Address space.", int(stat[_VIRTUAL]))
        resident = int(stat[_RESIDENT]) * _PAGE
        yield gauge("process_resident_memory_bytes", "Resident memory.", resident)

    def _disk(self) -> Iterable[Family]:
        """Yield the bytes that this process read from disks and wrote to them."""
        try:
            with open(f"{self.root}/self/io") as file:
                lines = dict(line.split(": ") for line in file.read().splitlines())
        except (OSError, ValueError):
            return
        for name in ("read_bytes", "write_bytes"):
            metric = f"kafka_server_kafkaserver_linux_disk_{name}"
            verb = "read from" if name == "read_bytes" else "written to"
            yield counter(metric, f"Bytes {verb} disks by this process.", int(lines.get(name, 0)))

    def _boot_time(self) -> float:
        if self._started is None:
            with open(f"{self.root}/stat") as file:
                lines = file.read().splitlines()
            found = next((line for line in lines if line.startswith("btime ")), "btime 0")
            self._started = float(found.split()[1])
        return self._started
