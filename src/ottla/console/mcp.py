"""The JSON API as tools of the Model Context Protocol: one JSON-RPC message per line.

Tools follow the table of paths: those that only read, and on request those that change something.
Results are bounded; a longer one is cut with a note.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ottla.client.cluster import NoBroker, Refused
from ottla.console.endpoints import Call, Context, Done, Endpoint, Rejected, User
from ottla.console.failures import message_of
from ottla.console.openapi import body_schema, operation_id
from ottla.console.routes import ROUTES
from ottla.operations.rows import Plain, Row
from ottla.protocol.faults import Fault

PROTOCOL: Final = "2025-06-18"
PROTOCOLS: Final = ("2024-11-05", "2025-03-26", PROTOCOL)
RESULT_CHARACTERS_MAX: Final = 60_000
LINE_BYTES_MAX: Final = 4 << 20
_LEFT_OUT: Final = ("/api", "/openapi", "/topics/{topic}/download", "/topics/{topic}/tail")
_PARSE_ERROR, _INVALID, _NO_METHOD, _BAD_PARAMETERS = -32700, -32600, -32601, -32602


def tools_of(*, may_change: bool) -> dict[str, Endpoint]:
    """Return the endpoints that are tools, by name. Pure."""
    return {
        operation_id(endpoint): endpoint
        for endpoint in ROUTES
        if endpoint.path not in _LEFT_OUT and (may_change or not endpoint.is_change)
    }


def tool_row(name: str, endpoint: Endpoint) -> Row:
    """Return a tool as it is listed. Pure."""
    schema = body_schema(endpoint)
    names = re.findall(r"\{(\w+)\}", endpoint.path)
    properties = schema["properties"]
    required = schema["required"]
    assert isinstance(properties, Mapping)
    assert isinstance(required, list)
    in_path: dict[str, Plain] = {name: {"type": "string"} for name in names}
    return {
        "name": name,
        "description": endpoint.summary,
        "inputSchema": {
            "type": "object",
            "properties": {**in_path, **properties},
            "required": [*names, *required],
        },
        "annotations": {"readOnlyHint": not endpoint.is_change},
    }


class McpServer:
    """Answers the messages of one client."""

    def __init__(self, user: User, context: Context, *, may_change: bool = False) -> None:
        self._user = user
        self._context = context
        self._tools = tools_of(may_change=may_change)

    async def answer(self, line: bytes) -> bytes | None:
        """Return the reply to a message; None to a notification."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _error(None, _PARSE_ERROR, "not JSON")
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _error(None, _INVALID, "not a request")
        if "id" not in message:
            return None
        return await self._reply(message["id"], message["method"], message.get("params") or {})

    async def _reply(self, number: object, method: str, parameters: Any) -> bytes:  # noqa: ANN401
        if not isinstance(parameters, dict):
            return _error(number, _BAD_PARAMETERS, "params must be an object")
        match method:
            case "initialize":
                return _result(number, _greeting(parameters))
            case "ping":
                return _result(number, {})
            case "tools/list":
                rows = [tool_row(name, endpoint) for name, endpoint in self._tools.items()]
                return _result(number, {"tools": rows})
            case "tools/call":
                return await self._call(number, parameters)
        return _error(number, _NO_METHOD, "unknown method")

    async def _call(self, number: object, parameters: dict[str, Any]) -> bytes:
        endpoint = self._tools.get(str(parameters.get("name")))
        values = parameters.get("arguments") or {}
        if endpoint is None or not isinstance(values, dict):
            return _error(number, _BAD_PARAMETERS, "unknown tool")
        names = {
            name: str(values.pop(name, "")) for name in re.findall(r"\{(\w+)\}", endpoint.path)
        }
        try:
            result = await endpoint.handler(Call(self._user, self._context, names, values))
        except Rejected as rejected:
            return _result(number, _content(rejected.message, is_error=True))
        except (Refused, NoBroker, Fault, OSError) as error:
            return _result(number, _content(message_of(error), is_error=True))
        if isinstance(result, Done):
            return _result(number, _content(result.message))
        return _result(number, _content(bounded(msgspec.json.encode(result).decode())))


def bounded(text: str) -> str:
    """Return a result that is not longer than an assistant can use. Pure."""
    if len(text) <= RESULT_CHARACTERS_MAX:
        return text
    note = "… cut; ask for less with filter, size or limit"
    return text[:RESULT_CHARACTERS_MAX] + note


def _greeting(parameters: Mapping[str, Any]) -> Row:
    version = parameters.get("protocolVersion")
    return {
        "protocolVersion": version if version in PROTOCOLS else PROTOCOL,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "ottla", "version": "1"},
    }


def _content(text: str, *, is_error: bool = False) -> Row:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _result(number: object, result: Row) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "result": result})


def _error(number: object, code: int, text: str) -> bytes:
    error = {"code": code, "message": text}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "error": error})
