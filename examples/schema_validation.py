"""Let a topic reject records without a registered schema; `ottla up` runs broker and registry.

pip install 'ottla[registry]' 'confluent-kafka[avro,schemaregistry]'
"""

import json

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

TOPIC = "checked-orders"
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


def report(error: KafkaError | None, _: object) -> None:
    """Print what became of a record."""
    print("accepted" if error is None else f"rejected: {error.name()}")


def main(bootstrap: str = "127.0.0.1:9092", url: str = "http://127.0.0.1:8081") -> None:
    """Send a record with a schema, and one without."""
    settings = {"confluent.value.schema.validation": "true"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    with SchemaRegistryClient({"url": url}) as registry:
        serialize = AvroSerializer(registry, ORDER)
        context = SerializationContext(TOPIC, MessageField.VALUE)
        producer.produce(TOPIC, serialize({"id": 1}, context), on_delivery=report)
        producer.flush(30)
    producer.produce(TOPIC, b'{"id": 2}', on_delivery=report)
    producer.flush(30)


if __name__ == "__main__":
    main()
