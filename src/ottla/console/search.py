"""Searches as jobs: they read partitions in the background, say how far they are, and stop.

A search ends when it has read all, has `HITS_MAX` more hits, was cancelled, or failed; all but the
first can be resumed where it stopped.
"""

import asyncio
import enum
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from ottla.client.cluster import Cluster, Refused
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.fetched import Fetched
from ottla.console.endpoints import Rejected
from ottla.console.failures import message_of
from ottla.console.record_views import LIST_CHARACTERS_MAX, Decode, record_view
from ottla.operations.rows import Row
from ottla.protocol.faults import Fault
from ottla.protocol.records.reader import Record
from ottla.protocol.types import Offset, TopicPartition
from ottla.runtime.ports import Random, Worker

HITS_MAX: Final = 200
"""Hits of one run; resuming looks for as many more."""
HITS_TOTAL_MAX: Final = 1_000
RUNNING_MAX: Final = 8
JOBS_MAX: Final = 100
OPTIONS: Final = ReaderOptions(wait_ms_max=250, bytes_max=16 << 20, failures_max=5)


class State(enum.StrEnum):
    """What a search does."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


class SearchJob(msgspec.Struct):
    """A search: where it is, and what it has found. ``ends`` are exclusive."""

    topic: str
    conditions: Mapping[str, str]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    matches: Callable[[Record], bool]
    decode: Decode | None
    cluster: Cluster
    positions: dict[TopicPartition, int] = {}
    hits: list[Row] = []
    state: State = State.RUNNING
    failure: str = ""
    job_id: str = ""
    owner: str = ""

    @property
    def total(self) -> int:
        """Offsets to read."""
        return sum(self.ends[place] - self.starts[place] for place in self.starts)

    @property
    def scanned(self) -> int:
        """Offsets that were read."""
        return sum(self.positions[place] - self.starts[place] for place in self.starts)

    def view(self) -> Row:
        """Return the search as a row."""
        return {
            "id": self.job_id,
            "topic": self.topic,
            "conditions": dict(self.conditions),
            "state": self.state.value,
            "failure": self.failure,
            "scanned": self.scanned,
            "total": self.total,
            "percent": round(100 * self.scanned / self.total, 1) if self.total else 100.0,
            "hit_count": len(self.hits),
            "can_resume": self.state not in (State.RUNNING, State.DONE)
            and len(self.hits) < HITS_TOTAL_MAX,
        }


async def run_search(job: SearchJob, worker: Worker) -> None:
    """Run a search until it ends or is cancelled. Failures become part of it."""
    hits_before = len(job.hits)
    try:
        positions = {
            place: Offset(position)
            for place, position in job.positions.items()
            if position < job.ends[place]
        }
        async with open_reader(job.cluster, positions, OPTIONS) as reader:
            while reader.positions and len(job.hits) - hits_before < HITS_MAX:
                for fetched in await reader.poll():
                    rows = await worker.run(partial(_hits_in, job, fetched))
                    job.hits += rows
                for place, position in reader.positions.items():
                    job.positions[place] = min(position, job.ends[place])
                    if position >= job.ends[place]:
                        reader.drop(place)
    except asyncio.CancelledError:
        job.state = State.CANCELLED
        raise
    except (Refused, Fault, OSError) as error:
        job.state, job.failure = State.FAILED, message_of(error)
    else:
        job.state = State.DONE if job.scanned >= job.total else State.STOPPED


def _hits_in(job: SearchJob, fetched: Fetched) -> list[Row]:
    """Return the records of a fetch that fulfil the conditions. Runs on a thread."""
    end = job.ends[fetched.partition]
    return [
        record_view(fetched.partition, record, LIST_CHARACTERS_MAX, job.decode)
        for record in fetched.records()
        if record.offset < end and job.matches(record)
    ]


class SearchJobs:
    """`Jobs`: all searches of a console, the oldest of which are forgotten."""

    def __init__(self, random: Random, worker: Worker) -> None:
        self._random = random
        self._worker = worker
        self._jobs: OrderedDict[str, SearchJob] = OrderedDict()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Own the tasks of searches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            ready()
            await asyncio.get_running_loop().create_future()

    def start(self, owner: str, job: SearchJob) -> str:
        """Run a search; return its id. Raises `Rejected`: there are too many."""
        job.job_id = self._random.bytes(9).hex()
        job.owner = owner
        job.positions = dict(job.starts)
        job.hits = []
        self._begin(job)
        self._jobs[job.job_id] = job
        self._forget()
        return job.job_id

    def get(self, owner: str, job_id: str) -> SearchJob:
        """Return a search of an owner. Raises `Rejected`: there is none."""
        job = self._jobs.get(job_id)
        if job is None or job.owner != owner:
            raise Rejected(404, "There is no such search; it may have been forgotten.")
        return job

    def list(self, owner: str) -> list[SearchJob]:
        """Return the searches of an owner, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.owner == owner]

    def resume(self, owner: str, job_id: str) -> None:
        """Continue a search that has stopped. Raises `Rejected`."""
        job = self.get(owner, job_id)
        if not job.view()["can_resume"]:
            raise Rejected(409, "This search cannot be resumed.")
        self._begin(job)

    def cancel(self, owner: str, job_id: str) -> None:
        """Stop a search. Raises `Rejected`: there is none."""
        self.get(owner, job_id)
        task = self._running.get(job_id)
        if task is not None:
            task.cancel()

    def _begin(self, job: SearchJob) -> None:
        if self._tasks is None or len(self._running) >= RUNNING_MAX:
            raise Rejected(503, "There are too many searches; wait for one, or cancel it.")
        job.state, job.failure = State.RUNNING, ""
        task = self._tasks.create_task(run_search(job, self._worker))
        self._running[job.job_id] = task
        task.add_done_callback(lambda _: self._running.pop(job.job_id, None))

    def _forget(self) -> None:
        for job_id in list(self._jobs):
            if len(self._jobs) <= JOBS_MAX:
                return
            if job_id not in self._running:
                del self._jobs[job_id]
