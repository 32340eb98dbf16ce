"""Paths of the REST API: split, unquoted, and with the context of ``/contexts/NAME/...`` applied.

A segment is split off before it is unquoted: a subject may contain a slash, as ``%2F``.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec

from ottla.registry.rules.subjects import normalise_context

PATH_LENGTH_MAX: Final = 32 * 1024
_SUBJECT_PARENTS: Final = ("subjects",)
_SETTINGS: Final = ("config", "mode")

Query: TypeAlias = Mapping[str, Sequence[str]]


class Target(msgspec.Struct, frozen=True):
    """The segments of a path, and its query."""

    segments: tuple[str, ...]
    query: Query

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter's first value."""
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        """Return whether a parameter is true."""
        return self.text(name).strip().lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return a number; the default for what is none."""
        text = self.text(name).strip()
        try:
            return int(text) if text.isascii() and 0 < len(text) < 12 else default
        except ValueError:
            return default


def parse_target(path: str, query: str) -> Target:
    """Parse a raw path and query.

    Raises:
        BadContext: the name of the context is none.
    """
    segments = [unquote(part) for part in path.split("/") if part]
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=1000):
        values.setdefault(name, []).append(value)
    if len(segments) > 1 and segments[0] == "contexts":
        return _in_context(segments, values)
    return Target(tuple(segments), values)


def _in_context(segments: list[str], query: dict[str, list[str]]) -> Target:
    prefix = normalise_context(segments[1])
    rest = segments[2:]
    if not rest:
        return Target(("contexts", prefix), query)

    def qualified(subject: str) -> str:
        return subject if subject.startswith((":.", ":*:")) else prefix + subject

    if rest[0] in _SETTINGS:
        name = qualified(rest[1]) if len(rest) > 1 else prefix
        rest = [rest[0], name, *rest[2:]] if name else rest
    for index in range(1, len(rest)):
        if rest[index - 1] in _SUBJECT_PARENTS:
            rest[index] = qualified(rest[index])
            break
    if rest[:2] == ["schemas", "ids"]:
        query["subject"] = [qualified((query.get("subject") or [""])[0])]
    elif rest in (["schemas"], ["subjects"]):
        query["subjectPrefix"] = [qualified(text) for text in query.get("subjectPrefix") or [""]]
    return Target(tuple(rest), query)
