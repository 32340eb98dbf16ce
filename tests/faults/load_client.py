"""A librdkafka producer and consumer that record everything they see: python load_client.py ...

    load_client.py BOOTSTRAP TOPIC HISTORY RATE

Runs until its standard input ends; then waits for requests in flight, reads to the end of the
partition, and writes the history. Prints ``ready`` once a first value was read back.
"""

import json
import select
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from ottla.testing.history.events import (
    AnyEvent,
    Assign,
    Final,
    Phase,
    Poll,
    Send,
    Watermark,
    to_line,
)

END_S_MAX = 240.0  # as in tests.patience, which this process does not import
PAUSE_S = 0.002
OPEN_MAX = 3000  # while the node is down
# Retry soon after a restart: the tests measure loss, not waiting.
QUICK = {
    "socket.connection.setup.timeout.ms": 1000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


class Load:
    """Sends numbered values at a rate, and reads them back."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic, self.partition = topic, f"{topic}-0"
        self.events: list[AnyEvent] = []
        self.sent = self.open = self.seen = 0
        common = {"bootstrap.servers": bootstrap, **QUICK}
        self.producer = Producer(
            {
                **common,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
            }
        )
        self.consumer = Consumer(
            {
                **common,
                "group.id": "load",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
            }
        )
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.note(Assign, "consumer", position=0)

    def note(self, kind: type[AnyEvent], process: str, phase: Phase = Phase.OK, **what) -> None:
        what.setdefault("time", time.monotonic_ns())
        self.events.append(kind(process=process, phase=phase, partition=self.partition, **what))

    def send(self) -> None:
        value = f"v{self.sent}"
        self.sent += 1
        self.open += 1
        self.note(Send, "producer", Phase.INVOKE, value=value)

        def delivered(error: object, message: Message) -> None:
            self.open -= 1
            offset = message.offset()
            phase = Phase.OK if error is None else Phase.INFO
            self.note(
                Send,
                "producer",
                phase,
                value=value,
                offset=offset if error is None and offset is not None and offset >= 0 else None,
            )

        self.producer.produce(self.topic, value.encode() + b" " * 100, on_delivery=delivered)

    def turn(self) -> None:
        """Poll both clients once."""
        self.producer.poll(0)
        found = self.consumer.consume(500, PAUSE_S)
        records = []
        for message in found:
            if message.error() is not None:
                raise KafkaException(message.error())
            records.append((message.offset(), message.value().decode().strip()))
        if records:
            self.seen += len(records)
            self.note(Poll, "consumer", records=tuple(records))
            mark = self.consumer.get_watermark_offsets(TopicPartition(self.topic, 0), cached=True)
            if mark is not None and mark[1] >= 0:
                self.note(Watermark, "consumer", high=mark[1])

    def run(self, rate: float) -> None:
        """Send at a rate until standard input ends."""
        began, is_ready = time.monotonic(), False
        while not select.select([sys.stdin], [], [], 0)[0]:
            due = int((time.monotonic() - began) * rate)
            # After a stall it continues at its rate: catching up in a burst would distort the
            # measurement.
            began += max(0.0, (due - self.sent - 20) / rate)
            while self.sent < due and self.open < OPEN_MAX:
                self.send()
            self.turn()
            if self.seen and not is_ready:
                is_ready = True
                print("ready", flush=True)

    def ask_end(self, where: TopicPartition, deadline: float) -> tuple[int, int]:
        """Return when the log's end was asked for, and what it is."""
        while True:
            asked = time.monotonic_ns()
            try:
                return asked, self.consumer.get_watermark_offsets(where, timeout=END_S_MAX)[1]
            except KafkaException:
                # The client does not know the leader yet.
                if time.monotonic() > deadline:
                    raise
                self.turn()

    def finish(self) -> None:
        """Wait for requests in flight, then read everything."""
        deadline = time.monotonic() + END_S_MAX
        while self.open and time.monotonic() < deadline:
            self.turn()
        assert not self.open, f"{self.open} values in flight"
        where = TopicPartition(self.topic, 0)
        asked, end = self.ask_end(where, deadline)
        while self.consumer.position([where])[0].offset < end:
            assert time.monotonic() < deadline, "the end is not reached"
            self.turn()
        self.note(Final, "consumer", time=asked)
        self.consumer.close()


def main(bootstrap: str, topic: str, history: str, rate: str) -> None:
    load = Load(bootstrap, topic)
    load.run(float(rate))
    load.finish()
    Path(history).write_bytes(b"".join(map(to_line, load.events)))
    print(json.dumps({"sent": load.sent, "seen": load.seen}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
