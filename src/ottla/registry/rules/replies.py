"""The JSON of schemas in replies. Members that are empty are left out."""

from typing import Any, TypeAlias

import msgspec

from ottla.registry.rules.entities import (
    AVRO,
    Entity,
    RegisterRequest,
    StoredSchema,
    SubjectConfig,
)

Json: TypeAlias = Any


def schema_reply(schema: StoredSchema, *, text: str | None = None) -> Json:
    """Return a version as GET /subjects/S/versions/V does; ``text`` replaces its schema."""
    return {"subject": schema.subject, **registered_reply(schema, text=text)}


def registered_reply(schema: StoredSchema, *, text: str | None = None) -> Json:
    """Return a version as a registration does."""
    reply: dict[str, Json] = {"version": schema.version, "id": schema.id}
    return {**reply, **content_reply(schema, text=text)}


def content_reply(schema: StoredSchema, *, text: str | None = None) -> Json:
    """Return the content of a schema as GET /schemas/ids/ID does."""
    reply: dict[str, Json] = {"guid": schema.guid, "schemaType": schema.schema_type or AVRO}
    if schema.references:
        reply["references"] = builtins(schema.references)
    for name, member in (("metadata", schema.metadata), ("ruleSet", schema.rule_set)):
        if member is not None:
            reply[name] = builtins(member)
    reply["schema"] = schema.schema if text is None else text
    if schema.ts is not None:
        reply["ts"] = schema.ts
    if schema.deleted:
        reply["deleted"] = True
    return reply


def own_members(reply: Json, body: RegisterRequest) -> Json:
    """Return the reply of a registration for a client that may write and not read.

    Text, metadata and rules may be those of an earlier version, where the request has none.
    """
    names = {"id", "version", "guid", "schemaType", "ts"}
    names |= {"schema"} if (body.schema or "").strip() else set()
    return {name: value for name, value in reply.items() if name in names}


def config_reply(config: SubjectConfig) -> Json:
    """Return settings as GET /config does."""
    members = builtins(config)
    members.pop("subject", None)
    return members


def config_update_reply(config: SubjectConfig) -> Json:
    """Return settings as PUT /config does: it calls the level by another name."""
    members = config_reply(config)
    level = members.pop("compatibilityLevel", None)
    return members if level is None else {**members, "compatibility": level}


def builtins(value: Entity | list[Any]) -> Json:
    """Return JSON's types."""
    return msgspec.to_builtins(value)
