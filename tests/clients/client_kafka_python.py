"""kafka-python."""

import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from tests.patience import SECONDS_MAX

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
    from kafka.errors import KafkaError

from client_contract import (
    CODECS,
    EVERYTHING,
    NULL_HEADERS,
    PLAIN,
    TRANSACTIONS,
    Record,
    Refused,
    Sending,
    Start,
    Topic,
)

WAIT_MS_MAX = int(SECONDS_MAX * 1000)


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise Refused(getattr(error, "errno", -1), repr(error)) from error


class KafkaPythonClient:
    name = "kafka-python"
    can = EVERYTHING - {NULL_HEADERS} | {TRANSACTIONS}
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create_topic(self, topic: Topic) -> None:
        new = NewTopic(topic.name, topic.partitions, 1, topic_configs=topic.config)
        with refusals():
            self._admin.create_topics([new])

    def delete_topic(self, name: str) -> None:
        with refusals():
            self._admin.delete_topics([name])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def produce(
        self, topic: str, records: Sequence[Record], how: Sending = PLAIN
    ) -> list[tuple[int, int]]:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks={-1: "all"}.get(how.acks, how.acks),
            compression_type=None if how.codec == "none" else how.codec,
            enable_idempotence=how.idempotent,
            max_request_size=10_000_000,
            linger_ms=5,
        )
        with closing(producer), refusals():
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    record.timestamp,
                )
                for record in records
            ]
            producer.flush(SECONDS_MAX)
            replies = [each.get(SECONDS_MAX) for each in sent]
            return [(each.partition, each.offset) for each in replies]

    def transact(
        self, topic: str, transactional_id: str, records: Sequence[Record], *, commit: bool
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=transactional_id
        )
        with closing(producer), refusals():
            producer.init_transactions()
            producer.begin_transaction()
            for each in records:
                producer.send(topic, each.value, each.key, partition=each.partition)
            producer.flush(SECONDS_MAX)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def consume_committed(self, topic: str, partition: int, count: int) -> list[Record]:
        at = TopicPartition(topic, partition)
        consumer = self._consumer(isolation_level="read_committed")
        with closing(consumer), refusals():
            consumer.assign([at])
            consumer.seek(at, 0)
            return self._read(consumer, count)

    def _consumer(
        self, group: str | None = None, isolation_level: str = "read_uncommitted"
    ) -> KafkaConsumer:
        return KafkaConsumer(
            isolation_level=isolation_level,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            consumer_timeout_ms=WAIT_MS_MAX,
        )

    def consume(self, topic: str, partition: int, start: Start, count: int) -> list[Record]:
        at = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer, refusals():
            consumer.assign([at])
            offset = 0 if start.offset is None else start.offset
            if start.timestamp is not None:
                offset = consumer.offsets_for_times({at: start.timestamp})[at].offset
            consumer.seek(at, offset)
            return self._read(consumer, count)

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        with closing(self._consumer(group)) as consumer, refusals():
            consumer.subscribe([topic])
            found = self._read(consumer, count)
            consumer.commit()
            return found

    def _read(self, consumer: Any, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            polled = consumer.poll(WAIT_MS_MAX, max_records=count - len(found))
            assert polled, f"{len(found)} of {count} records came"
            found += [
                Record(
                    each.value,
                    each.key,
                    tuple((name, value) for name, value in each.headers),
                    each.timestamp,
                    each.partition,
                    each.offset,
                )
                for records in polled.values()
                for each in records
            ]
        return found

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        at = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer, refusals():
            return consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        at = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer, refusals():
            found = consumer.offsets_for_times({at: timestamp})[at]
            return -1 if found is None else int(found.offset)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        at = TopicPartition(topic, partition)
        with refusals():
            found = self._admin.delete_records({at: offset})[at]
        return int(found["low_watermark"])

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with refusals():
            reply = self._admin.describe_configs([resource], config_filter="all")
        (found,) = (each for kind in reply.values() for each in kind.values())
        return {name: entry["value"] for name, entry in found.items()}

    def set_config(self, topic: str, key: str, value: str) -> None:
        with refusals():
            self._admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})], incremental=True
            )

    def close(self) -> None:
        self._admin.close()
        del self._admin
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves its wake-up pipes open
            gc.collect()
