"""Configuration errors: all problems are reported at once."""

from collections.abc import Sequence

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One invalid setting. ``value`` is None if it is absent or must not be shown."""

    key: str
    value: str | None
    rule: str
    origin: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        origin = "" if self.origin is None else f" ({self.origin})"
        return f"{self.key}{value}{origin}: {self.rule}"


class ConfigError(Exception):
    """A configuration that a node cannot run with; it contains every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class ConfigWarning(msgspec.Struct, frozen=True):
    """A setting that is accepted but does not do what its author may expect."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"
