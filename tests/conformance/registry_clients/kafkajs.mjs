// @kafkajs/confluent-schema-registry: registers, encodes and decodes in all three languages.
import assert from "node:assert";
import registryModule from "@kafkajs/confluent-schema-registry";

const { SchemaRegistry, SchemaType, COMPATIBILITY } = registryModule;
const registry = new SchemaRegistry({ host: process.argv[2] });

const avro = { type: "record", name: "Order", namespace: "shop",
  fields: [{ name: "id", type: "int" }, { name: "note", type: "string", default: "" }] };
const { id } = await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(avro) },
  { compatibility: COMPATIBILITY.FULL });
assert.equal(await registry.getRegistryId("shop.Order", "latest"), id);
assert.equal(await registry.getLatestSchemaId("shop.Order"), id);
assert.equal(await registry.getRegistryIdBySchema("shop.Order",
  { type: SchemaType.AVRO, schema: JSON.stringify(avro) }), id);
const bytes = await registry.encode(id, { id: 7, note: "x" });
assert.deepEqual({ ...(await registry.decode(bytes)) }, { id: 7, note: "x" });

const json = { title: "Order", type: "object", properties: { id: { type: "integer" } },
  required: ["id"] };
const second = await registry.register({ type: SchemaType.JSON, schema: JSON.stringify(json) },
  { subject: "js-json" });
assert.deepEqual(await registry.decode(await registry.encode(second.id, { id: 8 })), { id: 8 });
await assert.rejects(registry.encode(second.id, { id: "eight" }));

const address = 'syntax = "proto3"; package shop; message Address { string city = 1; }';
await registry.register({ type: SchemaType.PROTOBUF, schema: address }, { subject: "address" });
const customer = 'syntax = "proto3"; package shop; import "address.proto"; ' +
  "message Customer { string name = 1; Address address = 2; }";
const third = await registry.register({ type: SchemaType.PROTOBUF, schema: customer,
  references: [{ name: "address.proto", subject: "address", version: 1 }] },
{ subject: "customer" });
const decoded = await registry.decode(
  await registry.encode(third.id, { name: "Ada", address: { city: "Paris" } }));
assert.equal(decoded.name, "Ada");
assert.equal(decoded.address.city, "Paris");

const bad = { ...avro, fields: [{ name: "other", type: "int" }] };
await assert.rejects(registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(bad) },
  { compatibility: COMPATIBILITY.FULL }), /incompatible/i);
console.log("all passed");
