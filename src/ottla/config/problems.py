"""Configuration errors: all problems are reported at once."""

from collections.abc import Sequence
from typing import Final

import msgspec

TEXT_LENGTH_MAX: Final = 1000


class Problem(msgspec.Struct, frozen=True):
    """One invalid setting. ``value`` is None if it is absent or must not be shown."""

    key: str
    value: str | None
    rule: str
    origin: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"={_short(self.value)}"
        origin = "" if self.origin is None else f" ({self.origin})"
        return f"{_short(self.key)}{value}{origin}: {_short(self.rule)}"

    def in_words_of_kafka(self) -> str:
        """Return the text of Kafka's ConfigException, which its clients show."""
        value = "" if self.value is None else f" {_short(self.value)}"
        rule = _short(self.rule)
        return f"Invalid value{value} for configuration {_short(self.key)}: {rule}"


def _short(text: str) -> str:
    """Return a text that fits in a message: replies and lines of the log have limits."""
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]}..."


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
