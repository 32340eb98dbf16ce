"""Schema validation of a broker, through confluent-kafka and through plain Produce requests."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.patience import SECONDS_MAX

from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.formats.wire_format import framed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Millis, Offset, TopicPartition
from ottla.testing import Cluster, run_cluster

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
VALIDATED = {"confluent.value.schema.validation": "true"}
PLACES = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    properties = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
    with run_cluster(1, schema_registry=True, config=properties) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry(node: Cluster) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": node.schema_registry_url}) as client:
        yield client


def create(node: Cluster, topic: str, **configs: str) -> str:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    new = NewTopic(topic, 1, 1, config={**VALIDATED, **named})
    admin.create_topics([new])[topic].result(SECONDS_MAX)
    return topic


def send(node: Cluster, topic: str, *values: bytes, **settings: object) -> list[KafkaError | None]:
    """Send values one by one; return the error of each."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS_MAX) == 0
    return errors


def read(node: Cluster, topic: str, count: int) -> list[Message]:
    """Return the records of a topic; ``count`` are expected."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    messages: list[Message] = []
    try:
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{len(messages)} of {count} records"
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF and len(messages) >= count:
                return messages
    finally:
        consumer.close()


def produce(
    node: Cluster, topic: str, *values: bytes | None, codec: Compression = Compression.NONE
) -> PartitionProduceResponse:
    """Send one batch by a plain request; return the reply about its partition."""
    records = [
        Record(Offset(index), Millis(1_700_000_000_000), None, value)
        for index, value in enumerate(values)
    ]
    client = client_for(ClientSettings((node.bootstrap,), "plain", {}))
    data = PartitionProduceData(0, bytes(build_batch(records, compression=codec)))
    row = TopicProduceData(topic, client.topic(topic).topic_id, [data])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[row])
    reply = client.call_leader(TopicPartition(topic, 0), request)
    assert isinstance(reply, ProduceResponse)
    return reply.responses[0].partition_responses[0]


@pytest.mark.parametrize("place", PLACES)
def test_records_of_the_subject_are_accepted(
    node: Cluster, registry: SchemaRegistryClient, place: str
) -> None:
    topic = create(node, f"accepted-{place}")
    serialize = AvroSerializer(registry, ORDER, conf={"schema.id.serializer": PLACES[place]})
    producer = Producer({"bootstrap.servers": node.bootstrap})
    errors: list[KafkaError | None] = []
    for number in range(3):
        headers: list[tuple[str, bytes]] = []
        context = SerializationContext(topic, MessageField.VALUE, headers)
        value = serialize({"id": number}, context)
        producer.produce(
            topic, value, headers=headers, on_delivery=lambda error, _: errors.append(error)
        )
    producer.produce(topic, None, b"gone", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert errors == [None] * 4


def test_records_without_a_schema_are_rejected(node: Cluster) -> None:
    topic = create(node, "rejected")
    (error,) = send(node, topic, b'{"id": 1}')
    assert error is not None and error.code() == KafkaError.INVALID_RECORD
    assert read(node, topic, 0) == []


@pytest.mark.parametrize("codec", list(Compression))
def test_reply_names_each_bad_record(
    node: Cluster, registry: SchemaRegistryClient, codec: Compression
) -> None:
    topic = create(node, f"errors-{codec.name.lower()}")
    number = registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
    other = registry.register_schema(f"{topic}-other", Schema('"long"', "AVRO"))
    good = framed(number, b"\2")
    reply = produce(node, topic, good, b"poison", None, framed(999_999, b""), framed(other, b"\2"),
                    codec=codec)  # fmt: skip
    assert reply.error_code == ErrorCode.INVALID_RECORD
    assert reply.base_offset == -1
    assert [error.batch_index for error in reply.record_errors] == [1, 3, 4]
    texts = [error.batch_index_error_message or "" for error in reply.record_errors]
    assert "does not name a schema" in texts[0]
    assert "schema id 999999 is unknown" in texts[1]
    assert f"schema id {other} is not a schema of subject {topic}-value" in texts[2]
    assert "3 record errors in total" in (reply.error_message or "")
    assert produce(node, topic, good, None, codec=codec).base_offset == 0


def test_large_batches_are_validated_by_a_worker(
    node: Cluster, registry: SchemaRegistryClient
) -> None:
    topic = create(node, "large")
    number = registry.register_schema(f"{topic}-value", Schema('"bytes"', "AVRO"))
    good = framed(number, bytes(100))
    reply = produce(node, topic, *[good] * 2000, b"poison", *[good] * 10)
    assert [error.batch_index for error in reply.record_errors] == [2000]
    assert produce(node, topic, *[good] * 2000).error_code == ErrorCode.NONE


def test_payload_is_decoded(node: Cluster, registry: SchemaRegistryClient) -> None:
    topic = create(node, "payload", ottla_schema_validation="payload")
    number = registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
    reply = produce(node, topic, framed(number, b"\2"), framed(number, b""))
    assert [error.batch_index for error in reply.record_errors] == [1]
    assert "cut off" in (reply.record_errors[0].batch_index_error_message or "")
    assert send(node, topic, framed(number, b"\2"), framed(number, b"\4")) == [None, None]


def test_record_name_strategy(node: Cluster, registry: SchemaRegistryClient) -> None:
    topic = create(
        node,
        "by-record",
        confluent_value_subject_name_strategy=(
            "io.confluent.kafka.serializers.subject.RecordNameStrategy"
        ),
    )
    number = registry.register_schema("Order", Schema(ORDER, "AVRO"))
    assert send(node, topic, framed(number, b"\2")) == [None]
    other = registry.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    assert produce(node, topic, framed(other, b"\0")).error_code == ErrorCode.INVALID_RECORD


def test_validation_is_turned_on_and_off_while_producers_run(node: Cluster) -> None:
    topic = create(node, "turned", **{"confluent_value_schema_validation": "false"})
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    producer = Producer({"bootstrap.servers": node.bootstrap})

    def turn(value: str) -> None:
        entry = ConfigEntry(
            "confluent.value.schema.validation",
            value,
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)

    def outcome() -> KafkaError | None:
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"plain", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS_MAX) == 0
        return errors[0]

    assert outcome() is None  # on the fast path
    turn("true")
    error = outcome()
    assert error is not None and error.code() == KafkaError.INVALID_RECORD
    turn("false")
    assert outcome() is None


class TestDeadLetters:
    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_bad_records_become_letters_and_the_others_keep_their_offsets(
        self, node: Cluster, registry: SchemaRegistryClient, codec: str
    ) -> None:
        topic = create(node, f"letters-{codec}", ottla_schema_validation_mode="dead-letter")
        number = registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
        good = framed(number, b"\2")
        reply = produce(node, topic, good, b"poison", good, codec=Compression[codec.upper()])
        assert (reply.error_code, reply.base_offset) == (ErrorCode.NONE, 0)
        assert produce(node, topic, b"poison").base_offset == 3
        assert produce(node, topic, good).base_offset == 4
        assert [message.offset() for message in read(node, topic, 3)] == [0, 2, 4]
        letters = read(node, f"dlq.{topic}", 2)
        assert [letter.value() for letter in letters] == [b"poison", b"poison"]
        headers = dict(letters[0].headers())
        assert headers["__dlq.errors.topic"] == topic.encode()
        assert b"does not name a schema" in headers["__dlq.errors.message"]

    def test_idempotent_producer_goes_on_after_a_letter(
        self, node: Cluster, registry: SchemaRegistryClient
    ) -> None:
        topic = create(node, "letters-idempotent", ottla_schema_validation_mode="dead-letter")
        number = registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
        values = [framed(number, b"\2"), b"poison", framed(number, b"\4"), b"poison"]
        settings = {"enable.idempotence": True}
        assert send(node, topic, *values, **settings) == [None] * 4
        assert [message.offset() for message in read(node, topic, 2)] == [0, 2]
        assert len(read(node, f"dlq.{topic}", 2)) == 2

    def test_transaction_with_a_bad_record_is_rejected(self, node: Cluster) -> None:
        topic = create(node, "letters-transaction", ottla_schema_validation_mode="dead-letter")
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "letters"})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        producer.produce(topic, b"poison")
        with pytest.raises(KafkaException):
            producer.commit_transaction(SECONDS_MAX)
        producer.abort_transaction(SECONDS_MAX)
        assert read(node, topic, 0) == []


def test_cluster_without_a_registry_refuses_the_setting() -> None:
    with run_cluster(1) as cluster:
        with pytest.raises(KafkaException) as refused:
            create(cluster, "lonely")
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
        assert "schema.registry.listeners" in refused.value.args[0].str()


def test_example_shows_an_accepted_and_a_rejected_record(
    node: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(__file__).parents[2] / "examples" / "schema_validation.py"
    runpy.run_path(str(file))["main"](node.bootstrap, node.schema_registry_url)
    assert capsys.readouterr().out.splitlines() == ["accepted", "rejected: INVALID_RECORD"]
