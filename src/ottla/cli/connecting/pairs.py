"""Options of the form ``key=value``."""

from collections.abc import Sequence

import typer


def parse_pairs(items: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse ``key=value`` items; a malformed one is a usage error. The last value of a key wins."""
    found: dict[str, str] = {}
    for item in items or ():
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"{item!r} must be key=value", param_hint=option)
        found[key.strip()] = value
    return found
