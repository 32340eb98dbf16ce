"""Schemas: subjects, versions, differences, checks and registration, by the registry's REST."""

import difflib
import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from ottla.console.endpoints import Call, Done, Rejected, Result
from ottla.console.handlers.topics import list_query
from ottla.console.paging import select
from ottla.console.segments import path_of
from ottla.formats.registry_client import RegistryFailed, UnknownSchema, registry_for
from ottla.operations.rows import Row

KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
SUBJECTS_MAX: Final = 50_000


async def _ask(call: Call, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401 - JSON
    """Send a request to the registry. Raises `Rejected` with the registry's message."""
    settings = call.user.registry
    if settings is None:
        raise Rejected(404, "No schema registry is configured.")
    registry = registry_for(settings)
    asking: Callable[[], Any] = lambda: registry.ask(method, path, body)  # noqa: E731
    try:
        return await call.context.worker.run(asking)
    except UnknownSchema as error:
        raise Rejected(404, str(error)) from error
    except (RegistryFailed, ValueError) as error:
        raise Rejected(502, str(error)) from error


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


async def subjects(call: Call) -> Row:
    """Return a page of the list of subjects."""
    if call.user.registry is None:
        return {"has_registry": False, "subjects": [], "paging": {}}
    names = list(await _ask(call, "GET", "/subjects"))[:SUBJECTS_MAX]
    page, paging = select(names, list_query(call), str, {"subject": str})
    return {"has_registry": True, "subjects": page, "paging": paging}


async def subject(call: Call) -> Row:
    """Return one subject: versions, the text of one, and how it differs from the one before."""
    name = call.names["subject"]
    versions: list[int] = await _ask(call, "GET", _path("subjects", name, "versions"))
    number = call.number("version", versions[-1], low=1)
    schema = await _ask(call, "GET", _path("subjects", name, "versions", str(number)))
    text = schema_text(schema)
    base = call.number("base", 0) or max((each for each in versions if each < number), default=0)
    before = ""
    if base:
        before = schema_text(
            await _ask(call, "GET", _path("subjects", name, "versions", str(base)))
        )
    return {
        "subject": name,
        "versions": versions,
        "version": number,
        "id": schema["id"],
        "type": schema.get("schemaType", "AVRO"),
        "text": text,
        "references": schema.get("references", []),
        "base": base or None,
        "difference": difference(before, text) if base else [],
        "compatibility": await _compatibility(call, name),
    }


async def _compatibility(call: Call, name: str) -> str:
    path = _path("config", name) + "?defaultToGlobal=true"
    try:
        return str((await _ask(call, "GET", path))["compatibilityLevel"])
    except (Rejected, KeyError):
        return ""


def schema_text(schema: dict[str, Any]) -> str:
    """Return the text of a schema; JSON is indented. Pure."""
    text = str(schema.get("schema", ""))
    if schema.get("schemaType") == "PROTOBUF":
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def difference(before: str, after: str) -> list[Row]:
    """Return the lines of a difference: their kind (same, added, removed) and text. Pure."""
    kinds = {" ": "same", "+": "added", "-": "removed"}
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [{"kind": kinds[line[0]], "text": line[2:]} for line in lines if line[0] in kinds]


def _body(call: Call) -> dict[str, str]:
    kind = call.one_of("type", KINDS)
    body = {"schema": call.raw("schema") or ""}
    return body if kind == "AVRO" else {**body, "schemaType": kind}


async def check(call: Call) -> Result:
    """Check whether a schema is compatible; with ``execute``, register it."""
    name = call.names["subject"]
    body = _body(call)
    if call.flag("execute"):
        reply = await _ask(call, "POST", _path("subjects", name, "versions"), body)
        number = int(reply["id"])
        return Done(
            f"Registered for {name} with id {number}.", path_of("/schemas", name), {"id": number}
        )
    path = _path("compatibility", "subjects", name, "versions") + "?verbose=true"
    try:
        reply = await _ask(call, "POST", path, body)
    except Rejected as rejected:
        if rejected.status != 404:
            raise
        reply = {"is_compatible": True, "messages": ["The subject is new."]}
    return {
        "subject": name,
        "type": call.one_of("type", KINDS),
        "schema": body["schema"],
        "is_compatible": bool(reply.get("is_compatible")),
        "messages": list(reply.get("messages") or []),
    }
