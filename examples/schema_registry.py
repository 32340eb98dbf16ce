"""Register an Avro schema and send a record with it; `ottla up` runs broker and registry.

pip install 'ottla[registry]' 'confluent-kafka[avro,schemaregistry]'
"""

import json

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)


def main(bootstrap: str = "127.0.0.1:9092", url: str = "http://127.0.0.1:8081") -> None:
    """Send one order."""
    with SchemaRegistryClient({"url": url}) as registry:
        serialize = AvroSerializer(registry, ORDER)
        context = SerializationContext("orders", MessageField.VALUE)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("orders", serialize({"id": 1, "item": "tea"}, context))
        producer.flush(10)
        print(registry.get_latest_version("orders-value").schema_id)


if __name__ == "__main__":
    main()
