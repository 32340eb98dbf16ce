"""An exactly-once worker in a process that may be killed at any point.

    python eos_worker.py BOOTSTRAP GROUP-PROTOCOL NAME HISTORY

Reads ``in`` as a member of the group ``work`` and writes one value for each record to ``out``, with
its offsets, in transactions of librdkafka. Each event is in the file HISTORY before the next
action, so that the file of a killed process holds everything it did. Ends at SIGTERM.
"""

import contextlib
import signal
import sys
import time
from typing import Any, BinaryIO

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.testing.history.events import AnyEvent, CommitOffset, End, Phase, Send, to_line

INPUT, OUTPUT, GROUP = "in", "out", "work"
PARTITIONS = 2
RECORDS_MAX = 20
ABORTED_ONE_IN = 7
ASK_S = 15.0


class Over(Exception):
    """The process was asked to end."""


class Fenced(Exception):
    """The producer was fenced; another process, or a new one, has its id."""


class EosWorker:
    def __init__(self, bootstrap: str, protocol: str, name: str, history: BinaryIO) -> None:
        self._name, self._file = name, history
        self._number = 0
        self._life = time.monotonic_ns()
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([INPUT])
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 1,
            }
        )
        self._until_done(lambda: self._producer.init_transactions(ASK_S))

    def run(self) -> None:
        while True:
            messages = self._consumer.consume(RECORDS_MAX, 0.2)
            values = [each for each in messages if each.error() is None]
            if values:
                self._transact(values)

    def _transact(self, messages: list[Any]) -> None:
        self._number += 1
        txn = f"{self._name}-{self._life}-{self._number}"
        ends: dict[int, int] = {}
        self._producer.begin_transaction()
        for each in messages:
            ends[each.partition()] = max(each.offset() + 1, ends.get(each.partition(), 0))
            self._send(txn, each)
        places = [TopicPartition(INPUT, index, end) for index, end in ends.items()]
        is_commit = self._commit_offsets(txn, places) and self._number % ABORTED_ONE_IN != 0
        if is_commit:
            self._note(End, Phase.INVOKE, txn=txn, commit=True)
            if self._is_done(lambda: self._producer.commit_transaction(ASK_S)):
                self._note(End, Phase.OK, txn=txn, commit=True)
                return
            self._note(End, Phase.INFO, txn=txn, commit=True)
        self._note(End, Phase.INVOKE, txn=txn, commit=False)
        self._until_done(lambda: self._producer.abort_transaction(ASK_S))
        self._note(End, Phase.OK, txn=txn, commit=False)
        self._rewind(messages)

    def _rewind(self, messages: list[Any]) -> None:
        """Return to the committed offsets."""
        first = {each.partition(): each.offset() for each in reversed(messages)}
        for index, offset in first.items():
            with contextlib.suppress(KafkaException):  # another member may own it by now
                self._consumer.seek(TopicPartition(INPUT, index, offset))

    def _send(self, txn: str, message: Any) -> None:
        value = f"{message.value().decode()}|{txn}"
        partition = self._number % PARTITIONS if message.offset() % 2 else message.partition()
        where = f"{OUTPUT}-{partition}"
        self._note(Send, Phase.INVOKE, partition=where, value=value, txn=txn)

        def done(error: Any, sent: Any) -> None:
            offset = None if error is not None else sent.offset()
            phase = Phase.OK if error is None else Phase.INFO
            self._note(Send, phase, partition=where, value=value, txn=txn, offset=offset)

        self._producer.produce(OUTPUT, value.encode(), partition=partition, on_delivery=done)

    def _commit_offsets(self, txn: str, places: list[TopicPartition]) -> bool:
        def note(phase: Phase) -> None:
            for each in places:
                where = f"{each.topic}-{each.partition}"
                self._note(
                    CommitOffset, phase, group=GROUP, partition=where, offset=each.offset, txn=txn
                )

        note(Phase.INVOKE)
        member = self._consumer.consumer_group_metadata()
        is_done = self._is_done(
            lambda: self._producer.send_offsets_to_transaction(places, member, ASK_S)
        )
        note(Phase.OK if is_done else Phase.INFO)
        return is_done

    def _is_done(self, ask: Any) -> bool:
        """Retry until done; False when the transaction has to be aborted."""
        while True:
            try:
                ask()
            except KafkaException as error:
                reason = error.args[0]
                if reason.fatal():
                    raise Fenced(str(reason)) from error
                if reason.txn_requires_abort() or not reason.retriable():
                    return False
            else:
                return True

    def _until_done(self, ask: Any) -> None:
        while not self._is_done(ask):
            time.sleep(0.1)

    def _note(self, kind: type, phase: Phase, **fields: Any) -> None:
        event: AnyEvent = kind(time=time.monotonic_ns(), process=self._name, phase=phase, **fields)
        self._file.write(to_line(event))

    def close(self) -> None:
        self._consumer.close()


def over(number: int, frame: Any) -> None:
    raise Over


def main() -> None:
    signal.signal(signal.SIGTERM, over)
    bootstrap, protocol, name, path = sys.argv[1:]
    with open(path, "ab", buffering=0) as history:
        while True:
            try:
                worker = EosWorker(bootstrap, protocol, name, history)
                print("ready", flush=True)
                worker.run()
            except Fenced as reason:
                print(f"fenced: {reason}", flush=True)
            except Over:
                return


if __name__ == "__main__":
    main()
