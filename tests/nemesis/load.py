"""Producers and consumers that run while faults are injected, and record what they see.

All are confluent-kafka with its default retries and timeouts, as users run it. A producer that
gives up on a record was failed by the cluster, so that is a problem of the run and not only an
unknown outcome.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from tests.nemesis.recorder import Recorder, now

from ottla.testing.history.events import (
    Assign,
    CommitOffset,
    FetchOffset,
    Isolation,
    Phase,
    Poll,
    Send,
)

# librdkafka's log lines about lost connections: expected here, so they go to a file.
LOGGER = logging.getLogger("nemesis.clients")
LOGGER.propagate = False
LOGGER.addHandler(logging.NullHandler())

# Errors that a group member reports while its coordinator is down; it continues by itself.
TRANSIENT = frozenset(
    {
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._TRANSPORT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
# Settings of a member of a classic group; those of the consumer protocol are the broker's.
CLASSIC: Mapping[str, Any] = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
FLUSH_S_MAX = 60.0
POLL_S = 0.2
COMMIT_EVERY_S = 0.5
JOIN_S_MAX = 90.0


def title(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class Worker:
    """A client with its own thread. A client that ends with an error is a problem of the run."""

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name = name
        self.recorder = recorder
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self) -> None:
        self._thread.join(JOIN_S_MAX)
        if self._thread.is_alive():
            self.recorder.complain(f"{self.name} did not end")

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:
            self.recorder.complain(f"{self.name} died: {error!r}")

    def run(self) -> None:
        raise NotImplementedError


class PacedProducer(Worker):
    """Send unique values at a steady rate, to all partitions in turn, idempotent."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        settings: Mapping[str, Any],
        topic: str,
        partitions: int,
        rate: float,
    ) -> None:
        super().__init__(name, recorder)
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._producer = Producer(
            {
                **settings,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": self._on_error,
            },
            logger=LOGGER,
        )
        self.acknowledged: set[str] = set()

    def run(self) -> None:
        number, due = 0, time.monotonic()
        while not self.stopping.is_set():
            self._send(number)
            number += 1
            due += 1 / self._rate
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        left_over = self._producer.flush(FLUSH_S_MAX)
        if left_over:
            self.recorder.complain(f"{self.name}: {left_over} records never got an answer")

    def _send(self, number: int) -> None:
        partition = number % self._partitions
        value = f"{self.name}:{partition}:{number}"
        where = title(self._topic, partition)
        self.recorder.add(
            Send(time=now(), process=self.name, phase=Phase.INVOKE, partition=where, value=value)
        )

        def done(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(value)
            else:
                self.recorder.complain(f"{self.name} gave up on {value}: {error}")
            self.recorder.add(
                Send(
                    time=now(),
                    process=self.name,
                    phase=Phase.OK if error is None else Phase.INFO,
                    partition=where,
                    value=value,
                    offset=None if error is not None else message.offset(),
                )
            )

        self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=done)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.recorder.complain(f"{self.name}: {error}")


class Consuming(Worker):
    """Common parts of the consumers: read, and record what was received.

    Nothing is ever deleted in a run, so an offset out of range means lost data: there is no reset
    that could hide it.
    """

    isolation = Isolation.READ_UNCOMMITTED

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        settings: Mapping[str, Any],
        group: str,
        protocol: Mapping[str, Any] = CLASSIC,
    ) -> None:
        super().__init__(name, recorder)
        self._consumer = Consumer(
            {
                **settings,
                "client.id": name,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": self.isolation.value,
                "fetch.wait.max.ms": 100,
                "enable.partition.eof": True,
                **protocol,
            },
            logger=LOGGER,
        )
        self.seen: set[str] = set()
        # The end of a partition when it was last reached; transaction markers count as offsets.
        self._ends: dict[tuple[str, int], int] = {}

    def assigned(self, where: TopicPartition) -> None:
        self.recorder.add(
            Assign(
                time=now(),
                process=self.name,
                partition=title(where.topic, where.partition),
                position=where.offset,
                isolation=self.isolation,
            )
        )

    def poll(self) -> dict[tuple[str, int], int]:
        """Read once; return the next offset of each partition that returned records."""
        found: dict[tuple[str, int], list[tuple[int, str]]] = {}
        for message in self._consumer.consume(100, POLL_S):
            at = message.topic(), message.partition()
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ends[at] = message.offset()
                elif error.code() not in TRANSIENT:
                    self.recorder.complain(f"{self.name}: {error}")
                continue
            found.setdefault(at, []).append((message.offset(), message.value().decode()))
        for (topic, partition), records in found.items():
            self.seen.update(value for _, value in records)
            self.recorder.add(
                Poll(
                    time=now(),
                    process=self.name,
                    partition=title(topic, partition),
                    records=tuple(records),
                )
            )
        return {at: records[-1][0] + 1 for at, records in found.items()}


class Reader(Consuming):
    """Read every partition from its start, without a group."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        settings: Mapping[str, Any],
        at: Sequence[TopicPartition],
    ) -> None:
        super().__init__(name, recorder, settings, "unused")
        self._at = [TopicPartition(each.topic, each.partition, 0) for each in at]

    def run(self) -> None:
        self.begin()
        while not self.stopping.is_set():
            self.poll()
        self._consumer.close()

    def begin(self) -> None:
        for each in self._at:
            self.assigned(each)
        self._consumer.assign(self._at)

    def read_to(self, ends: dict[tuple[str, int], int], seconds: float) -> bool:
        """Read in this thread until all ends are reached; return whether they were in time."""
        left = {at: end for at, end in ends.items() if end > 0}
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            self.poll()
            left = {at: end for at, end in left.items() if self._ends.get(at, -1) < end}
        self._consumer.close()
        return not left


class Member(Consuming):
    """A member of a group that commits automatically what it has read.

    ``protocol`` are the settings of its group protocol, the classic one by default.
    """

    isolation = Isolation.READ_COMMITTED

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        settings: Mapping[str, Any],
        group: str,
        topic: str,
        protocol: Mapping[str, Any] = CLASSIC,
    ) -> None:
        super().__init__(name, recorder, settings, group, protocol)
        self._group, self._topic = group, topic
        # Only a part of the assignment changes, unlike in a classic group with eager assignors.
        self._is_incremental = protocol.get("group.protocol") == "consumer"
        self._read: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._begin, on_revoke=self._end)
        due = time.monotonic()
        while not self.stopping.is_set():
            self._read |= self.poll()
            if time.monotonic() >= due:
                self._commit()
                due = time.monotonic() + COMMIT_EVERY_S
        self._consumer.close()

    def _begin(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._offset_event(FetchOffset, each, Phase.INVOKE)
        try:
            found = consumer.committed(partitions, timeout=30.0)
        except KafkaException:
            # No coordinator answered: leave, and rejoin; unassigned partitions are not read.
            consumer.unsubscribe()
            consumer.subscribe([self._topic], on_assign=self._begin, on_revoke=self._end)
            return
        for each in found:
            offset = None if each.offset == OFFSET_INVALID else each.offset
            self._offset_event(FetchOffset, each, Phase.OK, offset)
            each.offset = offset or 0
            self.assigned(each)
        (consumer.incremental_assign if self._is_incremental else consumer.assign)(found)

    def _end(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._commit()
        if self._is_incremental:
            for each in partitions:
                self._read.pop((each.topic, each.partition), None)
            consumer.incremental_unassign(partitions)
        else:
            self._read.clear()
            consumer.unassign()

    def _commit(self) -> None:
        at = [TopicPartition(topic, index, end) for (topic, index), end in self._read.items()]
        if not at:
            return
        for each in at:
            self._offset_event(CommitOffset, each, Phase.INVOKE, each.offset)
        try:
            done = self._consumer.commit(offsets=at, asynchronous=False)
        except KafkaException:
            for each in at:
                self._offset_event(CommitOffset, each, Phase.INFO, each.offset)
            return
        for each in done:
            phase = Phase.OK if each.error is None else Phase.INFO
            self._offset_event(CommitOffset, each, phase, each.offset)
        self._read.clear()

    def _offset_event(
        self, kind: type, at: TopicPartition, phase: Phase, offset: int | None = None
    ) -> None:
        self.recorder.add(
            kind(
                time=now(),
                process=self.name,
                phase=phase,
                group=self._group,
                partition=title(at.topic, at.partition),
                offset=offset,
            )
        )
