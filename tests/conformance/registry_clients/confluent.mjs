// @confluentinc/schemaregistry: its client, its serializers, and rules that it runs.
import assert from "node:assert";
import clientModule from "@confluentinc/schemaregistry";

const { SchemaRegistryClient, AvroSerializer, AvroDeserializer, JsonSerializer, JsonDeserializer,
  SerdeType, Compatibility } = clientModule;
const client = new SchemaRegistryClient({ baseURLs: [process.argv[2]],
  cacheCapacity: 100, cacheLatestTtlSecs: 60 });

const order = JSON.stringify({ type: "record", name: "Order",
  fields: [{ name: "id", type: "int" }, { name: "note", type: "string" }] });
const id = await client.register("cf-value", { schema: order, schemaType: "AVRO" });
assert.equal((await client.getBySubjectAndId("cf-value", id)).schema.length > 0, true);
assert.equal(await client.getId("cf-value", { schema: order, schemaType: "AVRO" }), id);
assert.equal(await client.getVersion("cf-value", { schema: order, schemaType: "AVRO" }), 1);
assert.deepEqual(await client.getAllVersions("cf-value"), [1]);
assert.equal((await client.getLatestSchemaMetadata("cf-value")).id, id);
assert.equal((await client.getSchemaMetadata("cf-value", 1)).version, 1);
assert.equal((await client.getAllSubjects()).includes("cf-value"), true);
assert.equal(await client.testSubjectCompatibility("cf-value",
  { schema: '"int"', schemaType: "AVRO" }), false);
assert.equal(await client.updateCompatibility("cf-value", Compatibility.FULL), "FULL");
assert.equal(await client.getCompatibility("cf-value"), "FULL");
assert.equal(await client.updateDefaultCompatibility(Compatibility.BACKWARD), "BACKWARD");
assert.equal(await client.getDefaultCompatibility(), "BACKWARD");

const rules = { domainRules: [{ name: "checkNote", kind: "CONDITION", mode: "WRITE", type: "CEL",
  expr: "message.note != ''" }] };
await client.register("ruled-value", { schema: order, schemaType: "AVRO", ruleSet: rules,
  metadata: { properties: { owner: "shop" } } });
const latest = await client.getLatestSchemaMetadata("ruled-value");
assert.equal(latest.ruleSet.domainRules[0].expr, "message.note != ''");
assert.equal((await client.getLatestWithMetadata("ruled-value", { owner: "shop" })).version, 1);

const avroWriter = new AvroSerializer(client, SerdeType.VALUE, { useLatestVersion: true });
const avroReader = new AvroDeserializer(client, SerdeType.VALUE, {});
const record = { id: 1, note: "x" };
const found = await avroReader.deserialize("cf", await avroWriter.serialize("cf", record));
assert.equal(found.note, "x");

const json = JSON.stringify({ type: "object", properties: { id: { type: "integer" } } });
await client.register("cj-value", { schema: json, schemaType: "JSON" });
const jsonWriter = new JsonSerializer(client, SerdeType.VALUE,
  { useLatestVersion: true, validate: true });
const jsonReader = new JsonDeserializer(client, SerdeType.VALUE, {});
assert.deepEqual(await jsonReader.deserialize("cj", await jsonWriter.serialize("cj", { id: 3 })),
  { id: 3 });
await assert.rejects(jsonWriter.serialize("cj", { id: "three" }));

assert.deepEqual(await client.deleteSubject("cj-value"), [1]);
assert.deepEqual(await client.deleteSubject("cj-value", true), [1]);
console.log("all passed");
process.exit(0);
