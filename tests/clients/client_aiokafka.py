"""aiokafka."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code
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
from tests.patience import SECONDS_MAX


class AiokafkaClient:
    name = "aiokafka"
    can = EVERYTHING - {NULL_HEADERS} | {TRANSACTIONS}
    codecs = CODECS

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _run(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(SECONDS_MAX):
                return await work

        try:
            return asyncio.run(bounded())
        except KafkaError as error:
            raise Refused(getattr(error, "errno", -1), repr(error)) from error

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def create_topic(self, topic: Topic) -> None:
        async def create() -> None:
            async with self._admin() as admin:
                new = NewTopic(topic.name, topic.partitions, 1, topic_configs=topic.config)
                self._check((await admin.create_topics([new])).topic_errors[0][1])

        self._run(create())

    def _check(self, code: int) -> None:
        if code:
            raise for_code(code)()

    def delete_topic(self, name: str) -> None:
        async def delete() -> None:
            async with self._admin() as admin:
                self._check((await admin.delete_topics([name])).topic_error_codes[0][1])

        self._run(delete())

    def topics(self) -> set[str]:
        async def listed() -> set[str]:
            async with self._admin() as admin:
                return set(await admin.list_topics())

        found: set[str] = self._run(listed())
        return found

    def produce(
        self, topic: str, records: Sequence[Record], how: Sending = PLAIN
    ) -> list[tuple[int, int]]:
        async def send() -> list[tuple[int, int]]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks={-1: "all"}.get(how.acks, how.acks),
                compression_type=None if how.codec == "none" else how.codec,
                enable_idempotence=how.idempotent,
                max_request_size=10_000_000,
                max_batch_size=1_000_000,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        record.partition,
                        record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                replies = [await each for each in sent]
            finally:
                await producer.stop()
            if how.acks == 0:
                return [(record.partition, -1) for record in records]
            return [(each.partition, each.offset) for each in replies]

        found: list[tuple[int, int]] = self._run(send())
        return found

    def transact(
        self, topic: str, transactional_id: str, records: Sequence[Record], *, commit: bool
    ) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, transactional_id=transactional_id
            )
            await producer.start()
            try:
                await producer.begin_transaction()
                for each in records:
                    await producer.send_and_wait(topic, each.value, each.key, each.partition)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
            finally:
                await producer.stop()

        self._run(work())

    def consume_committed(self, topic: str, partition: int, count: int) -> list[Record]:
        async def read() -> list[Record]:
            at = TopicPartition(topic, partition)
            async with self._consumer(isolation_level="read_committed") as consumer:
                consumer.assign([at])
                consumer.seek(at, 0)
                return [_record(await consumer.getone()) for _ in range(count)]

        got: list[Record] = self._run(read())
        return got

    @asynccontextmanager
    async def _consumer(
        self, group: str | None = None, isolation_level: str = "read_uncommitted"
    ) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            isolation_level=isolation_level,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    def consume(self, topic: str, partition: int, start: Start, count: int) -> list[Record]:
        async def read() -> list[Record]:
            at = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                offset = 0 if start.offset is None else start.offset
                if start.timestamp is not None:
                    found = await consumer.offsets_for_times({at: start.timestamp})
                    offset = found[at].offset
                consumer.assign([at])
                consumer.seek(at, offset)
                return [_record(await consumer.getone()) for _ in range(count)]

        got: list[Record] = self._run(read())
        return got

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        async def read() -> list[Record]:
            async with self._consumer(group) as consumer:
                consumer.subscribe([topic])
                found = [_record(await consumer.getone()) for _ in range(count)]
                await consumer.commit()
                return found

        got: list[Record] = self._run(read())
        return got

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        async def ends() -> tuple[int, int]:
            at = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                first = await consumer.beginning_offsets([at])
                last = await consumer.end_offsets([at])
                return first[at], last[at]

        found: tuple[int, int] = self._run(ends())
        return found

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        async def at_time() -> int:
            at = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                found = (await consumer.offsets_for_times({at: timestamp}))[at]
                return -1 if found is None else int(found.offset)

        offset: int = self._run(at_time())
        return offset

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        async def delete() -> int:
            at = TopicPartition(topic, partition)
            async with self._admin() as admin:
                return int((await admin.delete_records({at: RecordsToDelete(offset)}))[at])

        low: int = self._run(delete())
        return low

    def config(self, topic: str) -> dict[str, str]:
        async def described() -> dict[str, str]:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic)
                (response,) = await admin.describe_configs([resource])
                code, _, _, _, entries = response.resources[0][:5]
                self._check(code)
                return {entry[0]: entry[1] for entry in entries}

        found: dict[str, str] = self._run(described())
        return found

    def set_config(self, topic: str, key: str, value: str) -> None:
        async def alter() -> None:
            async with self._admin() as admin:
                resource = ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})
                (response,) = await admin.alter_configs([resource])
                self._check(response.resources[0][0])

        self._run(alter())

    def close(self) -> None:
        pass


def _record(message: Any) -> Record:
    return Record(
        message.value,
        message.key,
        tuple((name, value) for name, value in message.headers),
        message.timestamp,
        message.partition,
        message.offset,
    )
