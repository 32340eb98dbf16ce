"""Options of the form ``key=value``."""

from collections.abc import Sequence

import typer


def parse_pairs(items: Sequence[str] | None, option: str) -> dict[str, str]:
    """Read ``key=value`` items; a wrong one is an error of usage. The last of a key counts."""
    found: dict[str, str] = {}
    for item in items or ():
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"{item!r} must be key=value", param_hint=option)
        found[key.strip()] = value
    return found
