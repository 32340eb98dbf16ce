"""A producer that writes in transactions, over all partitions, and aborts some of them.

Transactions are atomic; a read_committed consumer never sees records of an aborted or open one. A
cluster may force a client to abort (the client reports it); it must not fence the producer.
"""

import time
from collections.abc import Mapping
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer
from tests.nemesis.load import FLUSH_S_MAX, LOGGER, Worker, title
from tests.nemesis.recorder import Recorder, now

from ottla.testing.history.events import End, Phase, Send

EVERY_S = 0.3
ASK_S = 10.0
TRIES_MAX = 12
ABORTED = 0.25


class TransactionalProducer(Worker):
    """``acknowledged`` are the values of transactions that were committed."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        settings: Mapping[str, Any],
        topic: str,
        partitions: int,
    ) -> None:
        super().__init__(name, recorder)
        self._topic, self._partitions = topic, partitions
        self._random = Random(name)
        self._number = 0
        self.acknowledged: set[str] = set()
        self._producer = Producer(
            {
                **settings,
                "client.id": name,
                "transactional.id": f"{name}-id",
                "linger.ms": 5,
                "error_cb": self._on_error,
            },
            logger=LOGGER,
        )

    def run(self) -> None:
        if not self._is_done(lambda: self._producer.init_transactions(ASK_S)):
            self.recorder.complain(f"{self.name} was never given a producer id")
            return
        while not self.stopping.wait(EVERY_S):
            self._transact(f"{self.name}-{self._number}")

    def _transact(self, txn: str) -> None:
        self._producer.begin_transaction()
        values = [self._send(txn, partition) for partition in range(self._partitions)]
        is_commit = self._random.random() >= ABORTED
        if not is_commit:
            # An abort drops what was not sent yet, and then fails for good if a lost coordinator
            # never learned of the transaction. This way the aborted records are in the logs, too.
            self._producer.flush(FLUSH_S_MAX)
        self._end(txn, Phase.INVOKE, commit=is_commit)
        if is_commit and self._is_done(lambda: self._producer.commit_transaction(ASK_S)):
            self._end(txn, Phase.OK, commit=True)
            self.acknowledged.update(values)
            return
        if is_commit:
            # A commit has to become an abort: the commit is not known to have failed.
            self._end(txn, Phase.INFO, commit=True)
            self._end(txn, Phase.INVOKE, commit=False)
        is_aborted = self._is_done(lambda: self._producer.abort_transaction(ASK_S))
        self._end(txn, Phase.OK if is_aborted else Phase.INFO, commit=False)
        if not is_aborted:
            self.recorder.complain(f"{txn} could be neither committed nor aborted")

    def _is_done(self, ask: Any) -> bool:
        """Retry until done, as the client's error allows; False when the client has to abort."""
        for _ in range(TRIES_MAX):
            try:
                ask()
            except KafkaException as error:
                reason = error.args[0]
                if reason.fatal():
                    self.recorder.complain(f"{self.name}: {reason}")
                    self.stop()
                    return False
                if reason.txn_requires_abort() or not reason.retriable():
                    return False
                time.sleep(EVERY_S)
            else:
                return True
        return False

    def _end(self, txn: str, phase: Phase, *, commit: bool) -> None:
        self.recorder.add(End(time=now(), process=self.name, phase=phase, txn=txn, commit=commit))

    def _send(self, txn: str, partition: int) -> str:
        self._number += 1
        value = f"{self.name}:{partition}:{self._number}"
        where = title(self._topic, partition)

        def note(phase: Phase, offset: int | None = None) -> None:
            self.recorder.add(
                Send(
                    time=now(),
                    process=self.name,
                    phase=phase,
                    partition=where,
                    value=value,
                    offset=offset,
                    txn=txn,
                )
            )

        def done(error: Any, message: Any) -> None:
            if error is None:
                note(Phase.OK, message.offset())
            else:
                note(Phase.INFO)

        note(Phase.INVOKE)
        self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=done)
        return value

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.recorder.complain(f"{self.name}: {error}")
