"""Rules that a parsed value must satisfy beyond its type.

`broken_by` returns what a rule expected, in Kafka's words where it has such a rule, or None if the
value is valid; ``str(rule)`` is the one line that ``docs/config.md`` shows.
"""

import re
from typing import Final, Protocol

import msgspec

from ottla.config.addresses import BadAddress, parse_host_port, parse_http_url, parse_voter
from ottla.config.values import Value

SUBJECT_NAME_STRATEGIES: Final = (
    "TopicNameStrategy",
    "RecordNameStrategy",
    "TopicRecordNameStrategy",
)
SUBJECT_NAME_PACKAGE: Final = "io.confluent.kafka.serializers.subject"
LOG_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


class Rule(Protocol):
    """A condition on a value. ``str(rule)`` completes the sentence "must be ..."."""

    def broken_by(self, value: Value) -> str | None:
        """Return what was expected if ``value`` breaks the rule, else None."""


class Range(msgspec.Struct, frozen=True):
    """A number within bounds, both included. NaN passes, as in Kafka."""

    low: int | float
    high: int | float | None = None
    also: int | None = None

    def broken_by(self, value: Value) -> str | None:
        """Compare with both bounds."""
        assert isinstance(value, int | float)
        also = "" if self.also is None else f", or {self.also}"
        if value == self.also:
            return None
        if value < self.low:
            return f"Value must be at least {self.low}{also}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}{also}"
        return None

    def __str__(self) -> str:
        also = "" if self.also is None else f", or {self.also}"
        if self.high is None:
            return f"at least {self.low}{also}"
        return f"between {self.low} and {self.high}{also}"


class OneOf(msgspec.Struct, frozen=True):
    """A string from a fixed set."""

    allowed: tuple[str, ...]
    any_case: bool = False

    def broken_by(self, value: Value) -> str | None:
        """Look the value up, ignoring case if Kafka does."""
        assert isinstance(value, str)
        if value in self.allowed:
            return None
        if self.any_case and value.upper() in {item.upper() for item in self.allowed}:
            return None
        any_case = " (case insensitive)" if self.any_case else ""
        return f"String must be one of{any_case}: {', '.join(self.allowed)}"

    def __str__(self) -> str:
        return "one of " + ", ".join(self.allowed) + (", ignoring case" if self.any_case else "")


class ListOf(msgspec.Struct, frozen=True):
    """A list without empty items; optionally from a fixed set, optionally not empty."""

    allowed: tuple[str, ...] = ()
    may_be_empty: bool = True

    def broken_by(self, value: Value) -> str | None:
        """Check every item; the first invalid one is reported."""
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            return "must not be empty"
        for item in value:
            if not item:
                return "must not have an empty item"
            if self.allowed and item not in self.allowed:
                return f"item {item!r} must be one of {', '.join(self.allowed)}"
        return None

    def __str__(self) -> str:
        items = "items from" + ", ".join(self.allowed) if self.allowed else "items not empty"
        return items + ("" if self.may_be_empty else ", at least one")


class NonEmpty(msgspec.Struct, frozen=True):
    """A string that is not empty."""

    def broken_by(self, value: Value) -> str | None:
        """Reject the empty string."""
        return None if value else "must not be empty"

    def __str__(self) -> str:
        return "not empty"


class Pairs(msgspec.Struct, frozen=True):
    """A list of ``name=value``."""

    def broken_by(self, value: Value) -> str | None:
        """Look for a name before the first equals sign of each item."""
        assert isinstance(value, tuple)
        return None if all(item.find("=") > 0 for item in value) else f"must be {self}"

    def __str__(self) -> str:
        return "name=value,..."


class ThrottledReplicas(msgspec.Struct, frozen=True):
    """``*`` alone, or any number of ``partition:broker``."""

    def broken_by(self, value: Value) -> str | None:
        """Match each item."""
        assert isinstance(value, tuple)
        if value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value):
            return None
        return f"must be {self}"

    def __str__(self) -> str:
        return "* or partition:broker,..."


class SubjectNames(msgspec.Struct, frozen=True):
    """The name of one of Confluent's subject name strategies, with or without its package."""

    def broken_by(self, value: Value) -> str | None:
        """Match the name of the class."""
        assert isinstance(value, str)
        package, _, name = value.rpartition(".")
        if name in SUBJECT_NAME_STRATEGIES and package in ("", SUBJECT_NAME_PACKAGE):
            return None
        return f"must be {self}"

    def __str__(self) -> str:
        return ", ".join(SUBJECT_NAME_STRATEGIES)


class OffsetReset(msgspec.Struct, frozen=True):
    """``latest``, ``earliest``, or ``by_duration:`` and an ISO 8601 duration, not negative."""

    def broken_by(self, value: Value) -> str | None:
        """Match the words, else the duration."""
        assert isinstance(value, str)
        if value in ("latest", "earliest"):
            return None
        word, _, duration = value.partition(":")
        if word == "by_duration" and duration_ms(duration) is not None:
            return None
        return f"must be {self}"

    def __str__(self) -> str:
        return "latest, earliest or by_duration:PnDTnHnMn.nS"


_DURATION = re.compile(
    r"P(?:(?P<d>\+?[0-9]{1,12})D)?"
    r"(?P<t>T(?:(?P<h>\+?[0-9]{1,12})H)?(?:(?P<m>\+?[0-9]{1,12})M)?"
    r"(?:(?P<s>\+?[0-9]{1,12})(?:[.,](?P<f>[0-9]{0,9}))?S)?)?\Z",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int | None:
    """Parse ``PnDTnHnMn.nS`` as milliseconds, rounded down; None if it is not such a duration."""
    found = _DURATION.match(text)
    if found is None or text[-1:] in "PTpt":
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in "dhms")
    millis = int((found["f"] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + millis


class Voters(msgspec.Struct, frozen=True):
    """Any number of ``id@host:port``."""

    def broken_by(self, value: Value) -> str | None:
        """Parse each item."""
        assert isinstance(value, tuple)
        for item in value:
            try:
                parse_voter(item)
            except BadAddress as error:
                return str(error)
        return None

    def __str__(self) -> str:
        return "id@host:port,..."


class HostPorts(msgspec.Struct, frozen=True):
    """Any number of ``host:port``; exactly one if the value is a string."""

    def broken_by(self, value: Value) -> str | None:
        """Parse each item."""
        entries = value if isinstance(value, tuple) else (str(value),)
        for item in entries:
            try:
                parse_host_port(item)
            except BadAddress as error:
                return str(error)
        return None

    def __str__(self) -> str:
        return "host:port"


class HttpUrl(msgspec.Struct, frozen=True):
    """``http://host:port`` or ``https://host:port``."""

    def broken_by(self, value: Value) -> str | None:
        """Parse it."""
        try:
            parse_http_url(str(value))
        except BadAddress as error:
            return str(error)
        return None

    def __str__(self) -> str:
        return "http://host:port or https://host:port"


CLIENT_SELECTORS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class ClientMatch(msgspec.Struct, frozen=True):
    """Any number of ``selector=regular expression`` over a client's properties.

    As in Kafka, the expression is not empty and contains no ``=``.
    """

    def broken_by(self, value: Value) -> str | None:
        """Check each selector's name and that its expression compiles."""
        assert isinstance(value, tuple)
        for item in value:
            selector, _, expression = (part.strip() for part in item.partition("="))
            expression = expression.rstrip("=")
            if not expression or "=" in expression or selector not in CLIENT_SELECTORS:
                return (
                    f"item {item!r} must be selector=expression, selector {_any(CLIENT_SELECTORS)}"
                )
            try:
                re.compile(expression)
            except re.error as error:
                return f"item {item!r} must have a regular expression: {error}"
        return None

    def __str__(self) -> str:
        return f"selector=expression,... with selector {_any(CLIENT_SELECTORS)}"


class LoggerLevels(msgspec.Struct, frozen=True):
    """Any number of ``logger=LEVEL``, with Kafka's names of levels."""

    def broken_by(self, value: Value) -> str | None:
        """Check that each item names a logger and a level."""
        assert isinstance(value, tuple)
        for item in value:
            name, _, level = (part.strip() for part in item.partition("="))
            if not name or level.upper() not in LOG_LEVELS:
                return f"item {item!r} must be logger=LEVEL, LEVEL {_any(LOG_LEVELS)}"
        return None

    def __str__(self) -> str:
        return f"logger=LEVEL,... with LEVEL {_any(LOG_LEVELS)}"


def _any(words: tuple[str, ...]) -> str:
    return "one of " + ", ".join(words)


def at_least(low: int | float) -> Range:
    """Bound a number from below."""
    return Range(low)


def between(low: int | float, high: int | float) -> Range:
    """Bound a number from both sides."""
    return Range(low, high)


def one_of(*allowed: str) -> OneOf:
    """Allow only these strings."""
    return OneOf(allowed)


def any_case_of(*allowed: str) -> OneOf:
    """Allow only these strings, ignoring case."""
    return OneOf(allowed, any_case=True)


def items(*allowed: str) -> ListOf:
    """Allow only these items in a list; without arguments, any that are not empty."""
    return ListOf(allowed)


def some_items(*allowed: str) -> ListOf:
    """As `items`, with at least one of them."""
    return ListOf(allowed, may_be_empty=False)
