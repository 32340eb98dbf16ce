"""confluent-kafka, that is librdkafka."""

from collections.abc import Sequence
from typing import Any

from client_contract import (
    CODECS,
    CONSUMER_GROUPS,
    EVERYTHING,
    PLAIN,
    TRANSACTIONS,
    Record,
    Refused,
    Sending,
    Start,
    Topic,
)
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.patience import SECONDS_MAX


class ConfluentClient:
    name = "confluent-kafka"
    can = EVERYTHING | {TRANSACTIONS, CONSUMER_GROUPS}
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        self._common = {"bootstrap.servers": bootstrap, "client.id": "confluent"}
        self._admin = AdminClient(self._common)

    def create_topic(self, topic: Topic) -> None:
        new = NewTopic(topic.name, topic.partitions, 1, config=topic.config)
        self._wait(self._admin.create_topics([new])[topic.name])

    def delete_topic(self, name: str) -> None:
        self._wait(self._admin.delete_topics([name])[name])

    def _wait(self, future: Any) -> Any:
        try:
            return future.result(SECONDS_MAX)
        except KafkaException as error:
            raise Refused(error.args[0].code(), str(error)) from error

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=SECONDS_MAX).topics)

    def produce(
        self, topic: str, records: Sequence[Record], how: Sending = PLAIN
    ) -> list[tuple[int, int]]:
        producer = Producer(
            {
                **self._common,
                "acks": how.acks,
                "compression.type": how.codec,
                "enable.idempotence": how.idempotent,
                "message.max.bytes": 10_000_000,
                "linger.ms": 5,
            }
        )
        done: list[tuple[KafkaError | None, Any]] = []
        for record in records:
            extra = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                lambda error, message: done.append((error, message)),
                headers=list(record.headers) or None,
                **extra,
            )
        assert producer.flush(SECONDS_MAX) == 0
        for error, _ in done:
            if error is not None:
                raise Refused(error.code(), str(error))
        unknown = how.acks == 0
        return [(m.partition(), -1 if unknown else m.offset()) for _, m in done]

    def consume(self, topic: str, partition: int, start: Start, count: int) -> list[Record]:
        consumer = self._consumer("unused")
        try:
            offset = 0 if start.offset is None else start.offset
            if start.timestamp is not None:
                at = TopicPartition(topic, partition, start.timestamp)
                offset = consumer.offsets_for_times([at], timeout=SECONDS_MAX)[0].offset
            consumer.assign([TopicPartition(topic, partition, offset)])
            return self._read(consumer, count)
        finally:
            consumer.close()

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        return self._consume_in(self._consumer(group), topic, count)

    def consume_in_consumer_group(self, topic: str, group: str, count: int) -> list[Record]:
        consumer = self._consumer(group, **{"group.protocol": "consumer"})
        return self._consume_in(consumer, topic, count)

    def _consume_in(self, consumer: Consumer, topic: str, count: int) -> list[Record]:
        try:
            consumer.subscribe([topic])
            found = self._read(consumer, count)
            # Only what was handed out: librdkafka's position is behind it, not behind its buffer.
            consumer.commit(asynchronous=False)
            return found
        finally:
            consumer.close()

    def transact(
        self, topic: str, transactional_id: str, records: Sequence[Record], *, commit: bool
    ) -> None:
        producer = Producer({**self._common, "transactional.id": transactional_id})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        for record in records:
            producer.produce(topic, record.value, record.key, record.partition)
        assert producer.flush(SECONDS_MAX) == 0
        if commit:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)

    def consume_committed(self, topic: str, partition: int, count: int) -> list[Record]:
        consumer = self._consumer("unused", **{"isolation.level": "read_committed"})
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            return self._read(consumer, count)
        finally:
            consumer.close()

    def _consumer(self, group: str, **more: str) -> Consumer:
        return Consumer(
            {
                **self._common,
                **more,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )

    def _read(self, consumer: Consumer, count: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=SECONDS_MAX)
            assert messages, f"{len(found)} of {count} records came"
            for message in messages:
                if message.error() is not None:
                    raise Refused(message.error().code(), str(message.error()))
                found.append(
                    Record(
                        message.value(),
                        message.key(),
                        tuple((name, value) for name, value in message.headers() or ()),
                        message.timestamp()[1],
                        message.partition(),
                        message.offset(),
                    )
                )
        return found

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return (
            self._listed(topic, partition, OffsetSpec.earliest()),
            self._listed(topic, partition, OffsetSpec.latest()),
        )

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        return self._listed(topic, partition, OffsetSpec.for_timestamp(timestamp))

    def _listed(self, topic: str, partition: int, spec: OffsetSpec) -> int:
        at = TopicPartition(topic, partition)
        return int(self._wait(self._admin.list_offsets({at: spec})[at]).offset)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        at = TopicPartition(topic, partition, offset)
        (future,) = self._admin.delete_records([at]).values()
        return int(self._wait(future).low_watermark)

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self._admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in self._wait(future).items()}

    def set_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (future,) = self._admin.incremental_alter_configs([resource]).values()
        self._wait(future)

    def close(self) -> None:
        del self._admin
