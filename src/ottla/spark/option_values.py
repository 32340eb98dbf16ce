"""Reads the options that Spark passes, one by one. Pure.

Names are case-insensitive, as in Spark. Every failure is an `OptionError` with the option, the
accepted values and the actual value; unknown names are rejected with a suggestion.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from ottla.formats.registry_client import PREFIX, BadRegistrySettings, RegistrySettings
from ottla.protocol.types import TopicPartition
from ottla.spark.stream_offsets import Partition

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "seconds": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
_DURATION: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)\Z")
_UNSUPPORTED: Final = {
    "auto.offset.reset": "use startingOffsets: Spark keeps the position, not a consumer group",
    "enable.auto.commit": "Spark keeps the position; use groupId to show the lag",
    "interceptor.classes": "Java classes cannot be used here",
    "key.deserializer": "keys are bytes; decode them with DataFrame operations",
    "value.deserializer": "values are bytes; decode them with DataFrame operations",
    "key.serializer": "keys are bytes or strings; encode them with DataFrame operations",
    "value.serializer": "values are bytes or strings; encode them with DataFrame operations",
    "transactional.id": "the sink creates its own; use delivery=exactly-once",
}
_PREFIXES: Final = ("kafka.", PREFIX)
_T = TypeVar("_T")
_Numbers: TypeAlias = dict[str, dict[Partition, int]]


class OptionError(ValueError):
    """An invalid option; the message names it and gives the reason."""


class OptionValues:
    """The options of a source or sink, read by their names in any case."""

    def __init__(
        self, options: Mapping[str, str], names: Iterable[str], silent: Iterable[str] = ()
    ) -> None:
        self._names = list(names)
        self._values = {key.lower(): value.strip() for key, value in options.items()}
        known = {each.lower() for each in (*self._names, *silent)}
        for key in options:
            if key.lower() not in known and not key.lower().startswith(_PREFIXES):
                raise OptionError(f"unknown option {key!r}{self._hint(key)}")

    def _hint(self, key: str) -> str:
        names = {each.lower(): each for each in (*self._names, "kafka.bootstrap.servers")}
        near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.5)
        return f"; did you mean {names[near[0]]!r}?" if near else ""

    def registry(self) -> RegistrySettings | None:
        """Return the settings of a schema registry. Raises OptionError."""
        try:
            return RegistrySettings.parse(self._values)
        except BadRegistrySettings as error:
            raise OptionError(str(error)) from error

    def has(self, name: str) -> bool:
        """Return whether an option is set."""
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """Return a value unchanged; None if it is not set."""
        value = self._values.get(name.lower())
        if value == "":
            raise OptionError(f"option {name!r} is empty")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name!r} must be true or false, not {value!r}")
        return value.lower() == "true"

    def whole(self, name: str, least: int, most: int = 2**63 - 1) -> int | None:
        """Return an integer within bounds."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch("-?[0-9]{1,19}", value) or not least <= int(value) <= most:
            upto = "" if most == 2**63 - 1 else f" and at most {most}"
            raise OptionError(
                f"option {name!r} must be an integer of at least {least}{upto}, not {value!r}"
            )
        return int(value)

    def one_of(self, name: str, kind: type[_T], default: _T) -> _T:
        """Return a member of an enum, by its value."""
        value = self.text(name)
        if value is None:
            return default
        members = {str(each.value): each for each in kind}  # type: ignore[attr-defined]
        if value.lower() not in members:
            raise OptionError(f"option {name!r} must be {' or '.join(members)}, not {value!r}")
        found: _T = members[value.lower()]
        return found

    def duration(self, name: str, default: int) -> int:
        """Return milliseconds from ``15m`` or ``10 seconds``; a bare number is milliseconds."""
        value = self.text(name)
        if value is None:
            return default
        ms = duration_ms(value, bare=True)
        if ms is None:
            raise OptionError(
                f"option {name!r} must be a duration such as 30s or 15m, not {value!r}"
            )
        return ms

    def by_partition(self, name: str, example: str) -> dict[TopicPartition, int]:
        """Return a number per partition, from ``{"topic": {"0": 1}}``."""
        value = self.text(name) or ""
        try:
            nested = msgspec.json.decode(value, type=_Numbers)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise OptionError(
                f"option {name!r} must be {example}, not {value!r} ({error})"
            ) from error
        found = {
            TopicPartition(topic, number): each
            for topic, theirs in nested.items()
            for number, each in theirs.items()
        }
        if not found:
            raise OptionError(f"option {name!r} names no partition")
        return found

    def properties(self, known: Iterable[str]) -> dict[str, str]:
        """Return Kafka's own settings, without their prefix."""
        names = sorted(known)
        found: dict[str, str] = {}
        for key, value in self._values.items():
            name = key.removeprefix("kafka.")
            if name == key:
                continue
            if name in _UNSUPPORTED:
                raise OptionError(f"option {key!r} is not supported: {_UNSUPPORTED[name]}")
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
                hint = f"; did you mean 'kafka.{near[0]}'?" if near else ""
                raise OptionError(f"unknown option {key!r}{hint}")
            found[name] = value
        return found


def duration_ms(text: str, *, bare: bool) -> int | None:
    """Return milliseconds; None if it is not a duration. ``bare`` allows a number without unit."""
    found = _DURATION.match(text.strip().lower())
    if found is None:
        return None
    unit = found[2] or ("ms" if bare else "")
    return int(found[1]) * _UNIT_MS[unit] if unit in _UNIT_MS else None
