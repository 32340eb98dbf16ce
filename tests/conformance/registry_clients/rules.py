"""Data contracts: rules stored by the registry and run by confluent-kafka's serializers."""

import asyncio
import json
import sys

from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
from confluent_kafka.schema_registry.rules.cel.cel_field_executor import CelFieldExecutor
from confluent_kafka.schema_registry.rules.jsonata.jsonata_executor import JsonataExecutor
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

USE_LATEST = {"auto.register.schemas": False, "use.latest.version": True}


def record(*names: str) -> str:
    fields = [{"name": name, "type": "string"} for name in names]
    return json.dumps({"type": "record", "name": "User", "fields": fields})


def rule(name: str, kind: RuleKind, mode: RuleMode, kind_of_rule: str, expr: str) -> Rule:
    return Rule(name, "", kind, mode, kind_of_rule, None, RuleParams({}), expr, None, None, False)


def check_cel(client: SchemaRegistryClient) -> None:
    rules = [
        rule("checkName", RuleKind.CONDITION, RuleMode.WRITE, "CEL", "message.name == 'Ada'"),
        rule("mark", RuleKind.TRANSFORM, RuleMode.WRITE, "CEL_FIELD",
             "typeName == 'STRING' ; value + '!'"),
    ]  # fmt: skip
    schema = Schema(record("name"), "AVRO", [], None, RuleSet(None, rules, None))
    client.register_schema("cel-value", schema)
    serialize = AvroSerializer(client, schema_str=None, conf=USE_LATEST)
    context = SerializationContext("cel", MessageField.VALUE)
    payload = serialize({"name": "Ada"}, context)
    assert AvroDeserializer(client)(payload, context) == {"name": "Ada!"}
    reason = ""
    try:
        serialize({"name": "Bob"}, context)
    except SerializationError as error:
        reason = repr(error.__cause__)
    assert "checkName" in reason or "message.name == 'Ada'" in reason, reason


def check_migration(client: SchemaRegistryClient) -> None:
    subject = "moved-value"
    client.set_config(subject, ServerConfig(compatibility_group="major.version"))
    old = Metadata(None, MetadataProperties({"major.version": "1"}), None)
    new = Metadata(None, MetadataProperties({"major.version": "2"}), None)
    client.register_schema(subject, Schema(record("name"), "AVRO", [], old, None))
    rename = "$merge([$sift($, function($v, $k) {$k != 'name'}), {'title': $.'name'}])"
    back = "$merge([$sift($, function($v, $k) {$k != 'title'}), {'name': $.'title'}])"
    rules = [
        rule("up", RuleKind.TRANSFORM, RuleMode.UPGRADE, "JSONATA", rename),
        rule("down", RuleKind.TRANSFORM, RuleMode.DOWNGRADE, "JSONATA", back),
    ]
    client.register_schema(
        subject, Schema(record("title"), "AVRO", [], new, RuleSet(rules, None, None))
    )
    context = SerializationContext("moved", MessageField.VALUE)
    writer = {"auto.register.schemas": False, "use.latest.with.metadata": {"major.version": "1"}}
    payload = AvroSerializer(client, schema_str=None, conf=writer)({"name": "Ada"}, context)
    reader = AvroDeserializer(client, conf={"use.latest.with.metadata": {"major.version": "2"}})
    assert reader(payload, context) == {"title": "Ada"}


async def check_async(url: str) -> None:
    client = AsyncSchemaRegistryClient({"url": url})
    await client.register_schema("async-value", Schema(record("name"), "AVRO"))
    serialize = await AsyncAvroSerializer(client, schema_str=None, conf=USE_LATEST)
    deserialize = await AsyncAvroDeserializer(client)
    context = SerializationContext("async", MessageField.VALUE)
    payload = await serialize({"name": "Ada"}, context)
    assert await deserialize(payload, context) == {"name": "Ada"}
    assert (await client.get_latest_version("async-value")).version == 1


def main() -> None:
    for executor in (CelExecutor, CelFieldExecutor, JsonataExecutor):
        executor.register()
    with SchemaRegistryClient({"url": sys.argv[1]}) as client:
        check_cel(client)
        check_migration(client)
    asyncio.run(check_async(sys.argv[1]))
    print("all passed")


main()
