"""Names in paths, and the path of a request. Pure.

A name is percent-encoded. Browsers resolve the segments ``.`` and ``..`` even if they are encoded,
and an empty one is lost, so these names get a ``~`` in front, as do names that begin with one. A
path that ends in ``.json`` asks for JSON; a name with that end has its dot encoded.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

API: Final = "/api/v1"
JSON: Final = ".json"
PATH_LENGTH_MAX: Final = 8_192


class Target(NamedTuple):
    """The path of a request: raw segments, and whether the reply is JSON."""

    segments: tuple[str, ...]
    is_json: bool
    is_api: bool


def encode_name(name: str) -> str:
    """Return a name as a segment of a path."""
    mark = "~" if name in ("", ".", "..") or name.startswith("~") else ""
    text = mark + quote(name, safe="")
    return text.removesuffix(JSON) + "%2Ejson" if text.endswith(JSON) else text


def decode_name(segment: str) -> str | None:
    """Return the name of a segment; None if it is not UTF-8."""
    try:
        name = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return None
    return name.removeprefix("~")


def parse_path(path: str) -> Target:
    """Split the raw path of a request."""
    is_api = path == API or path.startswith(f"{API}/")
    rest = path.removeprefix(API) if is_api else path
    is_json = is_api
    if not is_api and rest.endswith(JSON):
        rest, is_json = rest.removesuffix(JSON), True
    if rest == "/index":
        rest = "/"
    segments = tuple(part for part in rest.split("/") if part)
    return Target(segments, is_json, is_api)


def match(pattern: str, segments: tuple[str, ...]) -> Mapping[str, str] | None:
    """Return the names of a path that a pattern such as ``/topics/{topic}`` matches, or None."""
    parts = [part for part in pattern.split("/") if part]
    if len(parts) != len(segments):
        return None
    names: dict[str, str] = {}
    for part, segment in zip(parts, segments, strict=True):
        if not part.startswith("{"):
            if part != segment:
                return None
            continue
        name = decode_name(segment)
        if name is None:
            return None
        names[part[1:-1]] = name
    return names


def path_of(*parts: str) -> str:
    """Return a path: the first part as it is, the others as names and literal parts in turn.

    ``path_of("/topics", name, "messages")``
    """
    path = parts[0]
    for index, part in enumerate(parts[1:]):
        path += "/" + (encode_name(part) if index % 2 == 0 else part)
    return path
