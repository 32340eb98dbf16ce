"""Read what the transactions of a test committed, as events of the history checker."""

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.patience import SECONDS_MAX

from ottla.testing.history.events import AnyEvent, Assign, Final, Isolation, Poll

READER = "reader"


def read_committed_output(bootstrap: str, topic: str, partitions: int) -> list[AnyEvent]:
    """Return what a read_committed consumer reads from the start to the high watermarks.

    EndTxn is answered before the markers are written. Until they are, librdkafka reports the last
    stable offset as the end of a partition, with committed records behind it; such an end is
    passed over.
    """
    ends = _high_watermarks(bootstrap, topic, partitions)
    consumer = Consumer({**_settings(bootstrap, "read_committed"), "enable.partition.eof": True})
    began = time.monotonic_ns()
    committed = Isolation.READ_COMMITTED
    names = [f"{topic}-{index}" for index in range(partitions)]
    events: list[AnyEvent] = [
        Assign(time=began, process=READER, partition=name, position=0, isolation=committed)
        for name in names
    ]
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    left = set(range(partitions))
    deadline = time.monotonic() + SECONDS_MAX
    while left:
        assert time.monotonic() < deadline, f"{topic}: no end of {left} below {ends}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            is_end = message.error().code() == KafkaError._PARTITION_EOF
            if is_end and message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
            continue
        record = (message.offset(), message.value().decode())
        where, at = names[message.partition()], time.monotonic_ns()
        events.append(Poll(time=at, process=READER, partition=where, records=(record,)))
    consumer.close()
    return [*events, *(Final(time=began, process=READER, partition=name) for name in names)]


def _high_watermarks(bootstrap: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer(_settings(bootstrap, "read_uncommitted"))
    try:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        return [consumer.get_watermark_offsets(place, SECONDS_MAX)[1] for place in places]
    finally:
        consumer.close()


def _settings(bootstrap: str, isolation: str) -> dict[str, str | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": READER,
        "enable.auto.commit": False,
        "isolation.level": isolation,
    }
