"""Pages from templates. Every value is escaped; the files are read once."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

import jinja2

from ottla.console.segments import path_of
from ottla.operations.escaping import escape
from ottla.operations.sizes import human

STATIC_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


def time_text(millis: int | None) -> str:
    """Return a time in UTC, to the millisecond; empty without one."""
    if millis is None or not 0 <= millis < 253_402_300_800_000:
        return ""
    moment = datetime.fromtimestamp(millis / 1000, UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def visible(value: object) -> str:
    """Return text whose control characters and bidirectional overrides can be seen."""
    return escape(str(value), keep="\n\t")


def number_text(value: object) -> str:
    """Return a number with separators; a dash for None."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash for eyes
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def size_text(size: float | None) -> str:
    """Return a number of bytes in a suitable unit; a dash for None."""
    return number_text(None) if size is None else human(size)


def query_with(values: dict[str, Any], **changes: object) -> str:
    """Return a query of the same values, some of them changed; empty ones are left out."""
    merged = {**values, **changes}
    kept = {name: value for name, value in merged.items() if value not in (None, "", False)}
    return "?" + urlencode(kept) if kept else "?"


def pretty(value: object) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ottla.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., str]] = {
        "bytes": size_text,
        "time": time_text,
        "visible": visible,
        "number": number_text,
        "pretty": pretty,
    }
    environment.filters |= filters
    environment.globals |= {"path_of": path_of, "query_with": query_with}
    return environment


def render(template: str, **values: Any) -> str:  # noqa: ANN401 - whatever a template names
    """Return a page."""
    return _environment().get_template(template).render(**values)


@cache
def static_files() -> dict[str, bytes]:
    """Return the files below ``/static``, by name."""
    folder = files("ottla.console") / "static"
    return {
        entry.name: entry.read_bytes()
        for entry in folder.iterdir()
        if entry.name.rpartition(".")[2] in STATIC_TYPES
    }
