"""The JSON API, described from the table of paths."""

import re
from collections.abc import Sequence

from ottla.console.endpoints import Endpoint
from ottla.console.segments import API
from ottla.operations.rows import Plain, Row


def api_rows(endpoints: Sequence[Endpoint]) -> Row:
    """Return the paths of the API. Pure."""
    return {
        "paths": [
            {
                "method": endpoint.method,
                "path": API + endpoint.path,
                "summary": endpoint.summary,
                "parameters": [
                    {"name": one.name, "help": one.help, "is_required": one.is_required}
                    for one in endpoint.parameters
                ],
            }
            for endpoint in endpoints
        ]
    }


def openapi_document(endpoints: Sequence[Endpoint]) -> Row:
    """Return an OpenAPI document of endpoints. Pure."""
    paths: dict[str, dict[str, Plain]] = {}
    for endpoint in endpoints:
        path = API + endpoint.path.rstrip("/")
        paths.setdefault(path or "/", {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ottla console", "version": "1"},
        "paths": paths,
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"basic": []}, {}],
    }


def _operation(endpoint: Endpoint) -> Row:
    names = re.findall(r"\{(\w+)\}", endpoint.path)
    in_path: list[Row] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    operation: dict[str, Plain] = {
        "summary": endpoint.summary,
        "operationId": operation_id(endpoint),
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "default": {"description": "An object with `error` and `status`."},
        },
    }
    if endpoint.is_change:
        operation["parameters"] = in_path
        operation["requestBody"] = {
            "content": {"application/json": {"schema": body_schema(endpoint)}}
        }
    else:
        operation["parameters"] = in_path + [
            {
                "name": one.name,
                "in": "query",
                "description": one.help,
                "required": one.is_required,
                "schema": _schema(one.choices),
            }
            for one in endpoint.parameters
        ]
    return operation


def body_schema(endpoint: Endpoint) -> dict[str, Plain]:
    """Return the JSON Schema of the values of an endpoint."""
    return {
        "type": "object",
        "properties": {
            one.name: {"description": one.help, **_schema(one.choices)}
            for one in endpoint.parameters
        },
        "required": [one.name for one in endpoint.parameters if one.is_required],
    }


def _schema(choices: tuple[str, ...]) -> dict[str, Plain]:
    schema: dict[str, Plain] = {"type": "string"}
    if choices:
        schema["enum"] = list(choices)
    return schema


def operation_id(endpoint: Endpoint) -> str:
    """Return a name of an endpoint for programs: get_topic, post_topics_delete."""
    parts = [part for part in endpoint.path.split("/") if part and not part.startswith("{")]
    is_one = endpoint.path.endswith("}") and endpoint.method == "GET"
    words = ["get" if endpoint.method == "GET" else "change", *(parts or ["overview"])]
    return "_".join(words) + ("_one" if is_one else "")
