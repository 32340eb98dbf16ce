"""Write `ottla.protocol.messages` from kio's entities: names, types and versions, no prose.

    python -m tools.generate_messages [--check]

kio has one class per message and version; we want one class per message. The fields of all
versions are merged in an order that agrees with the wire order of each. Defaults are Kafka's,
durations and times are plain milliseconds again and carry Kafka's names. What a newer release of
Kafka adds is declared in `tools.kafka_4_4`.
"""

import argparse
import dataclasses
import re
import subprocess
import sys
import tempfile
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from tools.kafka_4_4 import NEW_APIS, RELEASES, UNSTATED, Addition, Release

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ottla" / "protocol" / "messages"
HAND_WRITTEN = {"__init__.py"}

# Schemas that belong to no API, by module. Headers and internal records are declared by hand.
OTHERS = {"consumer_protocol": ("consumer_protocol_subscription", "consumer_protocol_assignment")}

# Names that differ between kio and Kafka.
RENAMED = {"id_": "id"}
MILLIS = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
# Fields that kio converts to times without removing a suffix from their names.
UNSUFFIXED = {"DescribedDelegationToken"}
ALIASES = {**MILLIS, "error_code": "int16"}

# Arrays of structs whose default is null: kio states no default for these.
NULL_BY_DEFAULT = {
    "ListPartitionReassignmentsRequest": {"topics"},
    "ConsumerGroupHeartbeatRequest": {"topic_partitions"},
    "StreamsGroupHeartbeatRequest": {
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "client_tags",
        "task_offsets",
        "task_end_offsets",
    },
    "StreamsGroupHeartbeatResponse": {
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "partitions_by_user_endpoint",
    },
    "Topology": {"subtopologies"},
}

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Buffer",
    "uuid": "Uuid",
}
IMPLICIT_DEFAULTS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": 'b""',
    "uuid": "ZERO_UUID",
}

PLAIN_DEFAULTS = {"bool": bool, "float64": float, "string": str}

HEADING = '''"""{title}: the messages of api key {key}, versions {low}-{high}.

Written by `tools.generate_messages`; change that, not this.
"""
'''
OTHER_HEADING = '''"""{title}: what members of a classic group tell each other.

Written by `tools.generate_messages`; change that, not this.
"""
'''


@dataclasses.dataclass
class FieldModel:
    """A field over all versions of its struct."""

    name: str
    kind: str  # a primitive's name, or that of a struct class
    is_struct: bool
    is_array: bool
    default: object = UNSTATED
    versions: list[int] = dataclasses.field(default_factory=list)
    nullable: list[int] = dataclasses.field(default_factory=list)
    tagged: list[int] = dataclasses.field(default_factory=list)
    tag: int | None = None


@dataclasses.dataclass
class StructModel:
    """A message or a nested struct over all versions."""

    name: str
    orders: list[list[str]] = dataclasses.field(default_factory=list)
    fields: dict[str, FieldModel] = dataclasses.field(default_factory=dict)
    versions: list[int] = dataclasses.field(default_factory=list)
    flexible: list[int] = dataclasses.field(default_factory=list)
    api_key: int | None = None

    def ordered(self) -> list[FieldModel]:
        """Return the fields in one order that agrees with that of every version."""
        pending = dict.fromkeys(name for order in self.orders for name in order)
        result: list[FieldModel] = []
        while pending:
            done = {field.name for field in result}
            first = next(name for name in pending if self._may_follow(name, done))
            result.append(self.fields[first])
            del pending[first]
        return result

    def _may_follow(self, name: str, done: set[str]) -> bool:
        return all(
            set(order[: order.index(name)]) <= done for order in self.orders if name in order
        )


def wire_name(owner: str, field: "dataclasses.Field[object]") -> str:
    """Return Kafka's name of a field, in snake case."""
    is_time = field.metadata.get("kafka_type") in MILLIS and owner not in UNSUFFIXED
    name = RENAMED.get(field.name, field.name)
    return f"{name}_ms" if is_time and not name.endswith("_ms") else name


def unwrap(annotation: object) -> tuple[object, bool, bool]:
    """Return (element type, is array, is nullable) of kio's annotation."""
    nullable = is_array = False
    if isinstance(annotation, types.UnionType):
        nullable = True
        (annotation,) = [a for a in typing.get_args(annotation) if a is not types.NoneType]
    if typing.get_origin(annotation) is tuple:
        is_array = True
        annotation = unwrap(typing.get_args(annotation)[0])[0]
    return annotation, is_array, nullable


def plain(value: object) -> object:
    """Return a default of kio's as the number or string on the wire."""
    total_seconds = getattr(value, "total_seconds", None)
    if total_seconds is not None:
        return round(total_seconds() * 1000)
    return getattr(value, "value", value)


def add_field(struct: StructModel, entity: type, field: "dataclasses.Field[object]") -> None:
    """Merge one version of a field."""
    version: int = entity.__version__  # type: ignore[attr-defined]
    element, is_array, nullable = unwrap(field.type)
    is_struct = dataclasses.is_dataclass(element)
    kind = field.metadata.get("kafka_type", getattr(element, "__name__", ""))
    is_time = kind in MILLIS
    kind = ALIASES.get(kind, kind)
    name = wire_name(entity.__name__, field)
    known = struct.fields.setdefault(name, FieldModel(name, kind, is_struct, is_array))
    assert (known.kind, known.is_array) == (kind, is_array), (struct.name, name)
    known.versions.append(version)
    # kio's None for a UUID or a time is a value of ours: all zeros, or -1.
    if nullable and (is_array or not (kind == "uuid" or is_time)):
        known.nullable.append(version)
    if "tag" in field.metadata:
        known.tagged.append(version)
        known.tag = field.metadata["tag"]
    # The default of a struct is the struct with all defaults.
    if field.default is None or (field.default is not dataclasses.MISSING and not is_struct):
        none = -1 if is_time else None
        value = none if field.default is None else plain(field.default)
        assert known.default in (UNSTATED, value), (struct.name, name)
        known.default = value
    if known.nullable and name in NULL_BY_DEFAULT.get(struct.name, ()):
        known.default = None


def add_entity(structs: dict[str, StructModel], entity: type) -> None:
    """Merge one version of a message and its nested structs, which come first in ``structs``."""
    inner = [unwrap(field.type)[0] for field in dataclasses.fields(entity)]
    for element in inner:
        if dataclasses.is_dataclass(element):
            add_entity(structs, element)  # type: ignore[arg-type]
    struct = structs.setdefault(entity.__name__, StructModel(entity.__name__))
    version: int = entity.__version__  # type: ignore[attr-defined]
    if version in struct.versions:
        return
    struct.versions.append(version)
    if entity.__flexible__:  # type: ignore[attr-defined]
        struct.flexible.append(version)
    for field in dataclasses.fields(entity):
        add_field(struct, entity, field)
    struct.orders.append([wire_name(entity.__name__, f) for f in dataclasses.fields(entity)])


def inner_first(
    structs: dict[str, StructModel], name: str, seen: set[str] | None = None
) -> Iterator[tuple[str, StructModel]]:
    """Yield the nested structs, then the struct itself, each once."""
    seen = set() if seen is None else seen
    if name in seen:
        return
    seen.add(name)
    for field in structs[name].ordered():
        if field.is_struct:
            yield from inner_first(structs, field.kind, seen)
    yield name, structs[name]


def added_field(addition: Addition, version: int) -> FieldModel:
    """Return the model of a field that a release adds."""
    kind = addition.kind.strip("[]")
    is_struct, is_array = kind[0].isupper(), addition.kind.startswith("[")
    field = FieldModel(addition.name, kind, is_struct, is_array, versions=[version])
    field.default = addition.default
    if addition.is_nullable:
        field.nullable.append(version)
    return field


def extend_struct(struct: StructModel, release: Release) -> None:
    """Add the version of a release to a struct that earlier versions have."""
    version, last = release.version, max(struct.versions)
    for old, new in release.renamed.get(struct.name, {}).items():
        struct.fields[new] = dataclasses.replace(struct.fields.pop(old), name=new)
        struct.orders = [[new if name == old else name for name in o] for o in struct.orders]
    removed = release.removed.get(struct.name, ())
    order = [name for name in struct.orders[-1] if name not in removed]
    for field in (struct.fields[name] for name in order):
        for versions in (field.versions, field.nullable, field.tagged):
            if last in versions:
                versions.append(version)
    for addition in release.added.get(struct.name, ()):
        struct.fields[addition.name] = added_field(addition, version)
        place = len(order) if addition.before is None else order.index(addition.before)
        order.insert(place, addition.name)
    struct.orders.append(order)
    struct.versions.append(version)
    struct.flexible.append(version)


def new_structs(
    declared: dict[str, tuple[Addition, ...]], version: int
) -> Iterator[tuple[str, StructModel]]:
    """Yield the models of structs that only one version has."""
    for name, additions in declared.items():
        fields = {each.name: added_field(each, version) for each in additions}
        yield name, StructModel(name, [list(fields)], fields, [version], [version])


def extend(structs: dict[str, StructModel], release: Release | None) -> None:
    """Add what a release has to the structs of a message."""
    if release is None:
        return
    for struct in list(structs.values()):
        extend_struct(struct, release)
    new = {name: rows for name, rows in release.added.items() if name not in structs}
    structs |= dict(new_structs(new, release.version))


def merge(schema: str, entity_type: EntityType) -> dict[str, StructModel]:
    """Return the structs of one message, the message itself last."""
    structs: dict[str, StructModel] = {}
    for _, paths in sorted(schema_name_map[schema].items()):
        entity = resolve_name(paths[entity_type])  # type: ignore[index]
        add_entity(structs, entity)
        name = entity.__name__
        structs[name].api_key = getattr(entity, "__api_key__", None)
    extend(structs, RELEASES.get(schema))
    return dict(inner_first(structs, name))


def rename_shared(models: list[tuple[str, dict[str, StructModel]]]) -> None:
    """Prefix nested structs whose name two messages of one module use differently."""
    seen = [name for _, structs in models for name in structs]
    for role, structs in models:
        for name in [n for n in structs if seen.count(n) > 1]:
            structs[name].name = f"{role}{name}"
        for struct in structs.values():
            for field in struct.fields.values():
                if field.is_struct:
                    field.kind = structs[field.kind].name


def span(versions: Iterable[int]) -> str:
    """Render a contiguous range of versions."""
    ordered = sorted(set(versions))
    assert ordered == list(range(ordered[0], ordered[-1] + 1)), ordered
    return f"({ordered[0]}, {ordered[-1]})"


def annotation(field: FieldModel) -> str:
    """Render the Python type of a field."""
    base = field.kind if field.is_struct else PYTHON_TYPES.get(field.kind, "int")
    whole = f"list[{base}]" if field.is_array else base
    return f"{whole} | None" if field.nullable else whole


def default(field: FieldModel) -> str:
    """Render the default of a field: Kafka's, or the one that Kafka assumes if none is stated."""
    if field.nullable and (field.default is None or field.kind == "records"):
        return "None"
    if field.is_array:
        return "field(default_factory=list)"
    if field.is_struct:
        return f"field(default_factory={field.kind})"
    if field.default is UNSTATED or field.default is None:
        return IMPLICIT_DEFAULTS.get(field.kind, "0")
    return repr(PLAIN_DEFAULTS.get(field.kind, int)(field.default))


def declaration(field: FieldModel) -> str:
    """Render the schema entry of a field."""
    inner = field.kind if field.is_struct else field.kind.upper()
    if field.is_array:
        inner = f"array_of({inner})"
    elif field.is_struct:
        inner = f"struct_of({inner})"
    options = [f'"{field.name}"', inner, span(field.versions)]
    if field.nullable:
        options.append(f"nullable={span(field.nullable)}")
    if field.tag is not None:
        options.append(f"tag={field.tag}, tagged={span(field.tagged)}")
    return f"Field({', '.join(options)})"


def render_struct(struct: StructModel, title: str | None) -> Iterator[str]:
    """Render a class; ``title`` only for a message."""
    fields = struct.ordered()
    first_flexible = min(struct.flexible) if struct.flexible else None
    versions = f"{min(struct.versions)}-{max(struct.versions)}"
    if title is None:
        doc = f"Part of the message, in versions {versions}."
    else:
        since = "never flexible" if first_flexible is None else f"flexible from {first_flexible}"
        doc = f"{title}, versions {versions}, {since}."
    yield f"class {struct.name}(Message):"
    yield f'    """{doc}"""\n'
    for field in fields:
        yield f"    {field.name}: {annotation(field)} = {default(field)}"
    yield "    SCHEMA: ClassVar[Schema] = Schema("
    if title is not None:
        yield f"        versions={span(struct.versions)},"
        yield f"        flexible={first_flexible},"
        yield f"        api_key={struct.api_key},"
    yield f"        fields=({', '.join(map(declaration, fields))}{',' if fields else ''}),"
    yield "    )\n\n"


def imports(body: str) -> str:
    """Render the imports that the classes of a module use."""
    schema = [
        *("BOOL", "BYTES", "FLOAT64", "INT8", "INT16", "INT32", "INT64", "RECORDS", "STRING"),
        *("UINT16", "UINT32", "UUID", "Field", "Message", "Schema", "array_of", "struct_of"),
    ]
    words = set(re.findall(r"\w+", body))
    lines = ["from typing import ClassVar\n"]
    if "field(default_factory" in body:
        lines.append("from msgspec import field\n")
    lines.append(f"from ottla.protocol.schema import {', '.join(n for n in schema if n in words)}")
    ours = [name for name in ("ZERO_UUID", "Buffer", "Uuid") if name in words]
    if ours:
        lines.append(f"from ottla.protocol.types import {', '.join(ours)}")
    return "\n".join(lines) + "\n\n"


def camel(name: str) -> str:
    """Return Kafka's name of an API from that of its module."""
    return "".join(word.capitalize() for word in name.split("_"))


def render_module(heading: str, models: list[tuple[str, dict[str, StructModel]]]) -> str:
    """Render a module of messages with the title of each."""
    lines: list[str] = []
    for title, structs in models:
        *nested, message = structs.values()
        for struct in nested:
            lines += render_struct(struct, None)
        lines += render_struct(message, title)
    body = "\n".join(lines)
    return heading + imports(body) + body


def api_module(key: int, schema: str) -> str:
    """Render the module of an API."""
    models = [("Request", merge(schema, EntityType.request))]
    models.append(("Response", merge(schema, EntityType.response)))
    return render_api(key, schema, models)


def render_api(key: int, schema: str, models: list[tuple[str, dict[str, StructModel]]]) -> str:
    """Render the module of an API from the models of its request and its response."""
    rename_shared(models)
    name = camel(schema)
    versions = list(models[0][1].values())[-1].versions
    heading = HEADING.format(title=name, key=key, low=min(versions), high=max(versions))
    return render_module(heading, [(f"{name} {role.lower()}", m) for role, m in models])


def new_api_module(key: int) -> str:
    """Render the module of an API that kio does not have."""
    schema, request, response = NEW_APIS[key]
    models = []
    for role, declared in (("Request", request), ("Response", response)):
        structs = dict(new_structs(declared, 0))
        structs[f"{camel(schema)}{role}"].api_key = key
        models.append((role, dict(inner_first(structs, f"{camel(schema)}{role}"))))
    return render_api(key, schema, models)


def other_module(schemas: tuple[str, ...]) -> str:
    """Render a module of schemas that belong to no API."""
    models = [(camel(s.split("_")[-1]), merge(s, EntityType.data)) for s in schemas]
    rename_shared(models)
    titled = [(f"Consumer protocol {role.lower()}", structs) for role, structs in models]
    return render_module(OTHER_HEADING.format(title="Consumer protocol"), titled)


def modules() -> dict[str, str]:
    """Return every module by file name, formatted."""
    texts = {f"{schema}.py": api_module(key, schema) for key, schema in api_key_map.items()}
    texts |= {f"{NEW_APIS[key][0]}.py": new_api_module(key) for key in NEW_APIS}
    texts |= {f"{name}.py": other_module(schemas) for name, schemas in OTHERS.items()}
    return formatted(dict(sorted(texts.items())))


def formatted(texts: dict[str, str]) -> dict[str, str]:
    """Return sources as `ruff format` writes them."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts.items():
            Path(scratch, name).write_text(text)
        command = [ruff, "format", "-q", "--config", str(ROOT / "pyproject.toml"), scratch]
        subprocess.run(command, check=True)  # noqa: S603
        return {name: Path(scratch, name).read_text() for name in texts}


def differences(texts: dict[str, str]) -> list[str]:
    """Return the names of files that are missing, outdated or no longer generated."""
    there = {path.name for path in PACKAGE.glob("*.py")} - HAND_WRITTEN
    stale = sorted(there - texts.keys())
    return stale + [
        name
        for name, text in texts.items()
        if name not in there or (PACKAGE / name).read_text() != text
    ]


def main() -> int:
    """Write the modules; with ``--check``, print those that are not current instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    texts = modules()
    changed = differences(texts)
    if arguments.check:
        print("\n".join(changed) or "current")
        return 1 if changed else 0
    PACKAGE.mkdir(exist_ok=True)
    for name in changed:
        if name in texts:
            (PACKAGE / name).write_text(texts[name])
        else:
            (PACKAGE / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
