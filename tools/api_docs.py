"""Writes docs/apis.md from the API surface: ``python -m tools.api_docs``."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.api.surface import constructors
from ottla.api.surface.constructors import Constructors
from ottla.api.surface.row import Api, Handler
from ottla.api.surface.table import SURFACE, UNSUPPORTED
from ottla.protocol.api_keys import APIS
from ottla.protocol.messages import response_class
from ottla.server.api_versions import ApiVersions

PAGE = Path(__file__).parents[1] / "docs" / "apis.md"
INTRODUCTION = """# APIs

Written by `make docs` from `src/ottla/api/surface/table.py`, the one table that ApiVersions,
dispatch and forwarding are derived from. *Versions* are those served; a version marked unstable is
served only with `unstable.api.versions.enable`. *Quota* is what Kafka counts a request against;
`throttle_time_ms` says whether the reply can report a delay. *Permissions* are those that a client
needs where an authorizer is configured ([security.md](security.md#authorization)).

"""
HEADER = (
    "| Key | API | Versions | Broker listener | Controller listener | Forwarded "
    "| Permissions | Quota | `throttle_time_ms` | Notes |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
)


def page() -> str:
    """Return the whole page."""
    rows = "".join(_line(SURFACE[key]) for key in sorted(SURFACE))
    reasons = "".join(
        f"- {key.title} ({key:d}): {reason}\n" for key, reason in sorted(UNSUPPORTED.items())
    )
    missing = reasons or "None: every API of the protocol is served.\n"
    return f"{INTRODUCTION}{HEADER}{rows}\n## Not served\n\n{missing}"


def _line(row: Api) -> str:
    first, last = row.versions or APIS[row.key].versions
    versions = f"{first}" if first == last else f"{first}-{last}"
    if row.unstable_from is not None:
        versions += f" (unstable from {row.unstable_from})"
    if row.newest_at is not None:
        versions += " ({} at metadata.version {})".format(*row.newest_at)
    throttled = "throttle_time_ms" in response_class(row.key).__struct_fields__
    cells = (
        f"{row.key:d}",
        row.key.title,
        versions,
        _handler(row.broker),
        _handler(row.controller),
        "" if row.forwarding is None else "yes",
        "; ".join(_permissions(row)),
        row.throttle.value,
        "yes" if throttled else "no",
        "; ".join(_notes(row)),
    )
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def _handler(handler: Handler | None) -> str:
    if handler is None:
        return ""
    function = function_of(handler)
    module, name = function.__module__.removeprefix("ottla."), function.__qualname__
    return f"`{module}` {name}"


def function_of(handler: Handler) -> Any:  # noqa: ANN401 - of any signature
    """Return the method that serves a row, unbound, or the function that decides it.

    Raises:
        AttributeError: the class has no such method.
    """
    if handler.decision is not None:
        return handler.decision
    if handler.method.construct is Constructors.api_versions:
        return ApiVersions.handle
    name = handler.method.construct.__annotations__["return"]
    owner = name if isinstance(name, type) else getattr(import_module(_modules()[name]), name)
    return handler.method.bind(owner)


def _modules() -> dict[str, str]:
    """Return where each handler class is imported from; the constructors import none of them."""
    tree = ast.parse(inspect.getsource(constructors))
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _permissions(row: Api) -> Iterator[str]:
    for listener, rule in (("", row.authorization), ("controller: ", row.controller_authorization)):
        for check in () if rule is None else rule.checks:
            needed = " or ".join(
                f"{each.operation.name} on {each.resource_type.name}" for each in check.permissions
            )
            yield f"{listener}{needed}" + (f" ({check.when})" if check.when else "")


def _notes(row: Api) -> Iterator[str]:
    if not row.is_advertised:
        yield "not advertised"
    if row.feature is not None:
        yield f"hidden while `{row.feature}` is 0"
    if row.broker is not None and row.broker.waits_until_unfenced:
        yield "held until the broker is unfenced"
    if row.broker is not None and row.broker.method.fast_path is not None:
        yield "has a fast path"


if __name__ == "__main__":
    PAGE.write_text(page())
