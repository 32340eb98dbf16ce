"""Comparison of objects and arrays: properties, items, and what else may be present.

The content model of an object is open (any other property is accepted), closed (none is), or
partially open (``patternProperties``, or a schema of additional properties). Removing a property is
harmless if the reader's model accepts it; adding one is harmless if no writer could have written
something else under its name.
"""

from typing import TYPE_CHECKING

from ottla.schemas.json_schema.keywords import Keywords
from ottla.schemas.json_schema.patterns import matches
from ottla.schemas.json_text import Json
from ottla.schemas.nested_calls import Call

if TYPE_CHECKING:
    from ottla.schemas.json_schema.compatibility import Comparison, Finding, Findings


class _Unknown:
    """A pattern that RE2 cannot run: it may or may not cover a property."""


_UNKNOWN = _Unknown()


def compare_objects(ctx: "Comparison", writer: Keywords, reader: Keywords) -> Call["Findings"]:
    """Compare what two schemas say about objects."""
    findings = _required(ctx, writer, reader)
    for name in dict.fromkeys([*writer.properties, *reader.properties]):
        ctx.count_step()
        if name not in reader.properties:
            findings += yield _removed_property(ctx, writer, reader, name)
        elif name not in writer.properties:
            findings += yield _added_property(ctx, writer, reader, name)
        else:
            path = "properties", name
            findings += yield ctx.compare(writer.properties[name], reader.properties[name], *path)
    findings += yield _dependencies(ctx, writer, reader)
    findings += yield _additional(ctx, writer.additional, reader.additional, "Properties")
    findings += yield _unevaluated(ctx, writer.unevaluated, reader.unevaluated, "Properties")
    findings += ctx.limits(writer, reader, "maxProperties", "minProperties")
    return findings


def _required(ctx: "Comparison", writer: Keywords, reader: Keywords) -> list["Finding"]:
    findings: list[Finding] = []
    for name in writer.properties:
        if name not in reader.properties or (name in writer.required) is (name in reader.required):
            continue
        if name in writer.required:
            rule = "REQUIRED_ATTRIBUTE_REMOVED"
        elif _has_default(reader.properties[name]):
            rule = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
        else:
            rule = "REQUIRED_ATTRIBUTE_ADDED"
        findings += ctx.finding(rule, "required", name)
    return findings


def _removed_property(
    ctx: "Comparison", writer: Keywords, reader: Keywords, name: str
) -> Call["Findings"]:
    path = "properties", name
    if _is_open(ctx, reader, is_writer=False):
        return ctx.finding("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", *path)
    cover = _cover(ctx, reader, name, is_writer=False)
    schema = writer.properties[name]
    if cover is None:
        is_false = ctx.shape(schema, is_writer=True).kind == "false"
        kind = "PROPERTY_WITH_FALSE" if is_false else "PROPERTY"
        return ctx.finding(f"{kind}_REMOVED_FROM_CLOSED_CONTENT_MODEL", *path)
    rule = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    if isinstance(cover, _Unknown):
        return ctx.finding(rule, *path)
    findings = yield ctx.compare(schema, cover, *path)
    return [*findings, *ctx.finding(rule, *path)] if findings else []


def _added_property(
    ctx: "Comparison", writer: Keywords, reader: Keywords, name: str
) -> Call["Findings"]:
    path = "properties", name
    schema = reader.properties[name]
    is_open = _is_open(ctx, writer, is_writer=True)
    if is_open and ctx.shape(schema, is_writer=False).kind == "empty":
        return ctx.finding("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", *path)
    findings: list[Finding] = []
    if not is_open:
        cover = _cover(ctx, writer, name, is_writer=True)
        rule = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        if isinstance(cover, _Unknown):
            findings += ctx.finding(rule, *path)
        elif cover is not None:
            findings += yield ctx.compare(cover, schema, *path)
            findings += ctx.finding(rule, *path) if findings else []
    if name not in reader.required:
        kind = "OPTIONAL_PROPERTY"
    elif _has_default(schema):
        kind = "REQUIRED_PROPERTY_WITH_DEFAULT"
    else:
        kind = "REQUIRED_PROPERTY"
    model = "OPEN" if is_open else "UNOPEN"
    return [*findings, *ctx.finding(f"{kind}_ADDED_TO_{model}_CONTENT_MODEL", *path)]


def _has_default(schema: Json) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _is_open(ctx: "Comparison", keywords: Keywords, *, is_writer: bool) -> bool:
    if keywords.additional is not True or keywords.pattern_properties:
        return False
    if keywords.unevaluated is None:
        return True
    return ctx.shape(keywords.unevaluated, is_writer=is_writer).kind == "empty"


def _cover(ctx: "Comparison", keywords: Keywords, name: str, *, is_writer: bool) -> Json | _Unknown:
    """Return the schema of a property that is not listed; None if there is none."""
    for pattern, schema in keywords.pattern_properties.items():
        ctx.count_step()
        match matches(pattern, name):
            case None:
                return _UNKNOWN
            case True:
                return schema
    return _rest(ctx, keywords, is_writer=is_writer)


def _rest(ctx: "Comparison", keywords: Keywords, *, is_writer: bool) -> Json:
    """Return the schema of additional or unevaluated properties or items, if it says something."""
    if not isinstance(keywords.additional, bool):
        return keywords.additional
    if keywords.additional and keywords.unevaluated is not None:
        kind = ctx.shape(keywords.unevaluated, is_writer=is_writer).kind
        if kind not in ("false", "empty"):
            return keywords.unevaluated
    return None


def _dependencies(ctx: "Comparison", writer: Keywords, reader: Keywords) -> Call["Findings"]:
    findings: list[Finding] = []
    for name in dict.fromkeys([*writer.dependencies, *reader.dependencies]):
        old, new = writer.dependencies.get(name), reader.dependencies.get(name)
        if old == new:
            continue
        if new is None or old is None:
            change = "REMOVED" if new is None else "ADDED"
        elif new >= old:
            change = "EXTENDED"
        else:
            change = "NARROWED" if old >= new else "CHANGED"
        findings += ctx.finding(f"DEPENDENCY_ARRAY_{change}", "dependencies", name)
    for name in dict.fromkeys([*writer.dependency_schemas, *reader.dependency_schemas]):
        path = "dependencies", name
        if name not in reader.dependency_schemas:
            findings += ctx.finding("DEPENDENCY_SCHEMA_REMOVED", *path)
        elif name not in writer.dependency_schemas:
            findings += ctx.finding("DEPENDENCY_SCHEMA_ADDED", *path)
        else:
            old_schema = writer.dependency_schemas[name]
            findings += yield ctx.compare(old_schema, reader.dependency_schemas[name], *path)
    return findings


def _additional(ctx: "Comparison", writer: Json, reader: Json, noun: str) -> Call["Findings"]:
    prefix, path = f"ADDITIONAL_{noun.upper()}", f"additional{noun}"
    if (writer is False) is not (reader is False):
        return ctx.finding(f"{prefix}_{'ADDED' if writer is False else 'REMOVED'}", path)
    if isinstance(writer, bool) and isinstance(reader, bool):
        return []
    if isinstance(writer, bool):
        return ctx.finding(f"{prefix}_NARROWED", path)
    if isinstance(reader, bool):
        return ctx.finding(f"{prefix}_EXTENDED", path)
    return (yield ctx.compare(writer, reader, path))  # type: ignore[no-any-return]


def _unevaluated(ctx: "Comparison", writer: Json, reader: Json, noun: str) -> Call["Findings"]:
    prefix, path = f"UNEVALUATED_{noun.upper()}", f"unevaluated{noun}"
    if writer is None and reader is None:
        return []
    old = None if writer is None else ctx.shape(writer, is_writer=True).kind
    new = None if reader is None else ctx.shape(reader, is_writer=False).kind
    if (old == "false") is not (new == "false"):
        return ctx.finding(f"{prefix}_{'ADDED' if old == 'false' else 'REMOVED'}", path)
    if old is None or (old == "empty" and new not in (None, "empty")):
        return ctx.finding(f"{prefix}_NARROWED", path)
    if new is None or (new == "empty" and old != "empty"):
        return ctx.finding(f"{prefix}_EXTENDED", path)
    return (yield ctx.compare(writer, reader, path))  # type: ignore[no-any-return]


def compare_arrays(ctx: "Comparison", writer: Keywords, reader: Keywords) -> Call["Findings"]:
    """Compare what two schemas say about arrays."""
    findings: list[Finding] = []
    findings += yield ctx.compare(writer.all_items, reader.all_items, "items")
    for index in range(max(len(writer.items), len(reader.items))):
        ctx.count_step()
        if index >= len(reader.items):
            findings += yield _removed_item(ctx, writer, reader, index)
        elif index >= len(writer.items):
            findings += yield _added_item(ctx, writer, reader, index)
        else:
            path = "items", str(index)
            findings += yield ctx.compare(writer.items[index], reader.items[index], *path)
    findings += yield _additional(ctx, writer.additional, reader.additional, "Items")
    findings += yield _unevaluated(ctx, writer.unevaluated, reader.unevaluated, "Items")
    findings += ctx.limits(writer, reader, "maxItems", "minItems")
    if writer.is_unique is not reader.is_unique:
        change = "UNIQUE_ITEMS_REMOVED" if writer.is_unique else "UNIQUE_ITEMS_ADDED"
        findings += ctx.finding(change, "uniqueItems")
    findings += ctx.limits(writer, reader, "maxContains", "minContains")
    return findings


def _removed_item(
    ctx: "Comparison", writer: Keywords, reader: Keywords, index: int
) -> Call["Findings"]:
    path = "items", str(index)
    if _is_open(ctx, reader, is_writer=False):
        return ctx.finding("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", *path)
    schema, cover = writer.items[index], _rest(ctx, reader, is_writer=False)
    if cover is None:
        is_false = ctx.shape(schema, is_writer=True).kind == "false"
        kind = "ITEM_WITH_FALSE" if is_false else "ITEM"
        return ctx.finding(f"{kind}_REMOVED_FROM_CLOSED_CONTENT_MODEL", *path)
    findings = yield ctx.compare(schema, cover, *path)
    rule = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*findings, *ctx.finding(rule, *path)] if findings else []


def _added_item(
    ctx: "Comparison", writer: Keywords, reader: Keywords, index: int
) -> Call["Findings"]:
    path = "items", str(index)
    schema = reader.items[index]
    if _is_open(ctx, writer, is_writer=True):
        is_empty = ctx.shape(schema, is_writer=False).kind == "empty"
        kind = "ITEM_WITH_EMPTY_SCHEMA" if is_empty else "ITEM"
        return ctx.finding(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL", *path)
    cover = _rest(ctx, writer, is_writer=True)
    if cover is None:
        return ctx.finding("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", *path)
    findings = yield ctx.compare(cover, schema, *path)
    rule = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return [*findings, *ctx.finding(rule, *path)] if findings else []
