"""Keeps every topic with ``ottla.table.format`` as a table, in one Spark session.

Each round reads the settings of all topics, compares offsets, and starts runs of tables as
`schedule` decides. A run is an AvailableNow query: its checkpoint makes it exactly once, and
it may be stopped at any time. A run that fails is reported with its table and tried again later;
the other tables continue.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.client import requests
from ottla.client.blocking.broker_client import BrokerClient
from ottla.client.cluster import NoBroker, Refused
from ottla.client.offset_spec import LATEST
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import Clock
from ottla.spark.runner import cause_of
from ottla.spark.stream_offsets import BadStreamOffset, Positions, from_json
from ottla.tables import schedule
from ottla.tables.hadoop_files import SparkFiles
from ottla.tables.job import BadJob, TableJob
from ottla.tables.schedule import Start, TableState, choose, is_turn_over
from ottla.tables.table_writer import start_table
from ottla.tables.topic_tables import FORMAT, KEYS, Declared, Place, jobs_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPICS_PER_REQUEST: Final = 200
ROUND_S: Final = 1.0


class TableReport(msgspec.Struct, frozen=True):
    """The state of one table, as it is shown."""

    topic: str
    table: str
    state: str
    records: int
    lag: int | None
    rate: float
    """Records per second that producers add."""
    error: str
    batch: int = -1
    seconds: float | None = None
    """The duration of the last micro-batch."""


class _Running(msgspec.Struct):
    query: "StreamingQuery"
    turn_ms: int
    batch: int = -1


def declared_tables(client: BrokerClient, place: Place) -> Declared:
    """Read the settings of all topics.

    Raises:
        NoBroker, Refused: they cannot be read.
    """
    names = sorted(name for name, each in client.topics(None).items() if not each.is_internal)
    settings: dict[str, dict[str, str]] = {}
    for first in range(0, len(names), TOPICS_PER_REQUEST):
        chunk = names[first : first + TOPICS_PER_REQUEST]
        reply = client.call(requests.describe_topics(chunk, [FORMAT]))
        tables = [name for name, each in requests.read_settings(reply).items() if is_table(each)]
        if tables:
            reply = client.call(requests.describe_topics(tables, KEYS))
            settings |= requests.read_settings(reply)
    return jobs_of(settings, place)


def is_table(settings: Mapping[str, str]) -> bool:
    """Return whether a topic is kept as a table. Apache Kafka does not have the setting."""
    return settings.get(FORMAT, "none") != "none"


class TablesApplication:
    """The tables of a cluster. ``formats`` are those that the session has jars for.

    ``unavailable`` are formats that it cannot have, each with the reason.
    """

    def __init__(
        self,
        spark: "SparkSession",
        client: BrokerClient,
        place: Place,
        clock: Clock,
        *,
        formats: Iterable[str],
        unavailable: Mapping[str, str] | None = None,
        slots: int,
        interval_ms: int = schedule.INTERVAL_MS,
    ) -> None:
        self._spark = spark
        self._client = client
        self._place = place
        self._clock = clock
        self._formats = frozenset(formats)
        self._unavailable = dict(unavailable or {})
        self._slots = slots
        self._interval_ms = interval_ms
        self._declared = Declared({}, {})
        self._states: dict[str, TableState] = {}
        self._running: dict[str, _Running] = {}
        self._positions: dict[str, Positions] = {}
        self._batches: dict[str, tuple[int, float | None]] = {}

    def run(self, stopped: threading.Event, on_report: Callable[[list[TableReport]], None]) -> None:
        """Work until ``stopped`` is set; report after each round."""
        try:
            while not stopped.wait(ROUND_S):
                self.round()
                on_report(self.reports())
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop all runs; the next application continues from their checkpoints."""
        for each in self._running.values():
            each.query.stop()
        self._running.clear()

    def round(self) -> None:
        """Look for tables and their lag, end runs, and start the next ones."""
        now = self._clock.monotonic()
        try:
            self._declared = self._usable(declared_tables(self._client, self._place))
            self._states = schedule.merged(self._states, self._declared.jobs)
            self._measure(now)
        except (NoBroker, Refused):
            pass  # brokers may restart: what is known stays, and the next round tries again
        self._collect(now)
        for start in choose(self._states.values(), self._slots, now, self._interval_ms):
            self._start(start, now)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and every table that works has no lag."""
        return not self._running and all(
            each.lag == 0 or each.failures for each in self._states.values()
        )

    def reports(self) -> list[TableReport]:
        """Return the state of every declared table, also of those with invalid settings."""
        found = [
            TableReport(
                topic,
                job.table.name or job.table.path or "",
                _state_of(self._states[topic]),
                sum(self._positions.get(topic, {}).values()),
                self._states[topic].lag,
                round(self._states[topic].rate, 1),
                self._states[topic].error,
                *self._batches.get(topic, (-1, None)),
            )
            for topic, job in self._declared.jobs.items()
            if topic in self._states
        ]
        found += [
            TableReport(topic, "", "invalid", 0, None, 0.0, error)
            for topic, error in self._declared.errors.items()
        ]
        return sorted(found, key=lambda each: each.topic)

    # -- a round -----------------------------------------------------------------

    def _usable(self, declared: Declared) -> Declared:
        """Leave out tables whose format the session has no jars for."""
        jobs, errors = dict(declared.jobs), dict(declared.errors)
        for topic, job in declared.jobs.items():
            format = job.table.format.value
            if format not in self._formats:
                del jobs[topic]
                wanted = ",".join(sorted({*self._formats, format}))
                errors[topic] = self._unavailable.get(
                    format,
                    f"the application was started without {format}: "
                    f"restart it with --formats {wanted}",
                )
        return Declared(jobs, errors)

    def _measure(self, now: int) -> None:
        asked = {
            TopicPartition(topic, number): LATEST
            for topic, info in self._client.topics(sorted(self._declared.jobs)).items()
            for number in info.partitions
        }
        ends = self._client.list_offsets(asked, committed=True) if asked else {}
        for topic, job in self._declared.jobs.items():
            theirs = {each: end for each, end in ends.items() if each.topic == topic}
            if topic not in self._positions:
                self._positions[topic] = _checkpointed(self._spark, job)
            position = self._positions[topic]
            lag = sum(max(end - position.get(each, 0), 0) for each, end in theirs.items())
            state = self._states[topic]
            # Records that were deleted before the first run are no lag: let the run find out.
            known = lag if position or not theirs else None
            self._states[topic] = schedule.measured(state, sum(theirs.values()), known, now)

    def _collect(self, now: int) -> None:
        """End runs that are over, and those whose turn is over while other tables wait."""
        others = any(not each.is_running and each.lag for each in self._states.values())
        for topic, running in list(self._running.items()):
            progress = running.query.lastProgress
            batch = -1 if progress is None else int(progress["batchId"])
            if progress is not None and batch != running.batch:
                running.batch = batch
                self._positions[topic] = _ends(progress)
                self._batches[topic] = batch, progress["batchDuration"] / 1000
            if not running.query.isActive:
                self._finish(topic, running, now)
            elif is_turn_over(self._states[topic], running.turn_ms, others, now):
                running.query.stop()
                self._finish(topic, running, now)

    def _finish(self, topic: str, running: _Running, now: int) -> None:
        del self._running[topic]
        error = running.query.exception()
        text = "" if error is None else cause_of(str(error))
        self._states[topic] = schedule.finished(self._states[topic], text, now)
        if topic in self._declared.jobs:
            self._positions[topic] = _checkpointed(self._spark, self._declared.jobs[topic])
        if topic not in self._declared.jobs:
            del self._states[topic]

    def _start(self, start: Start, now: int) -> None:
        from pyspark.errors import PySparkException

        job = self._declared.jobs[start.topic]
        state = schedule.started(self._states[start.topic], now)
        try:
            query = start_table(self._spark, job)
        except (BadJob, PySparkException) as error:
            self._states[start.topic] = schedule.finished(state, cause_of(str(error)), now)
            return
        self._states[start.topic] = state
        self._running[start.topic] = _Running(query, start.turn_ms)


def _state_of(state: TableState) -> str:
    if state.is_running:
        return "running"
    if state.failures:
        return "failed"
    return "current" if state.lag == 0 else "waiting"


def _ends(progress: Mapping[str, object]) -> Positions:
    """Return the end offsets of a query's progress."""
    sources = progress.get("sources")
    if not isinstance(sources, list) or not sources:
        return {}
    end = sources[0]["endOffset"]
    try:
        kept = msgspec.json.decode(end) if isinstance(end, str) else end
        return from_json(kept).ends
    except (ValueError, BadStreamOffset):
        return {}


def _checkpointed(spark: "SparkSession", job: TableJob) -> Positions:
    """Return the end offsets of the last finished micro-batch; empty if there is none."""
    files, root = SparkFiles(spark), job.checkpoint_path
    numbers = [int(each.name) for each in files.children(f"{root}/commits") if each.name.isdigit()]
    text = files.read(f"{root}/offsets/{max(numbers)}") if numbers else None
    for line in (text or "").splitlines()[2:]:
        try:
            return from_json(msgspec.json.decode(line)).ends
        except (ValueError, BadStreamOffset):
            continue
    return {}
