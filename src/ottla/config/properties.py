r"""The sources of raw settings: a properties file, the environment, overrides.

The file is in the format of Java's Properties:

    # or ! at the start of a line      a comment
    key = value   key: value   key value   the first of = : or blank ends the key
    key = one, \                       an odd number of backslashes at the end continues
          two                          the line; the blanks that follow are dropped
    \t \n \r \f \uXXXX                 escapes; any other escaped character is itself
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

_LINE = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile("[0-9a-fA-F]{4}")

ENVIRONMENT_PREFIX = "KAFKA_"
# Names with the prefix that configure a JVM, its logging or an image, not a broker.
ENVIRONMENT_EXCLUDED = frozenset(
    {
        "KAFKA_CFG_PATH",
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)


class Setting(msgspec.Struct, frozen=True):
    """A raw value and its source, as an operator would name it."""

    key: str
    value: str
    origin: str
    is_reference: bool = False
    """Whether the value came from a provider, and so must not be shown in an error."""


class BadProperties(Exception):
    """A file or override that cannot be parsed as settings."""


def from_text(text: str) -> list[Setting]:
    """Parse a properties file, in order; a key may occur twice. Raises `BadProperties`."""
    settings = []
    for number, line in _logical_lines(text):
        key, value = _split(line)
        origin = f"line {number}"
        settings.append(Setting(_unescape(key, origin), _unescape(value, origin), origin))
    return settings


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    pending, started = "", 0
    for number, natural in enumerate(_LINE.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        # Inside a continued line neither a blank line nor a comment is special.
        if not started and (not line or line[0] in "#!"):
            continue
        started = started or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        if pending or line:
            yield started, pending + line
        pending, started = "", 0
    if pending:
        yield started, pending


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str, origin: str) -> str:
    if "\\" not in text:
        return text
    parts, position = [], 0
    while (found := text.find("\\", position)) >= 0:
        parts.append(text[position:found])
        escaped = text[found + 1 : found + 2]
        position = found + 2
        if escaped == "u":
            digits = text[position : position + 4]
            if not _UNICODE.fullmatch(digits):
                raise BadProperties(f"{origin}: \\u must be followed by four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    joined = "".join([*parts, text[position:]])
    # Java writes characters beyond the basic plane as two escapes; they are one character here.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def from_environment(environment: Mapping[str, str]) -> list[Setting]:
    """Read the ``KAFKA_*`` variables as Kafka's image does, sorted by name.

    ``KAFKA_LOG_DIRS`` is ``log.dirs``; two underscores are one, three are a dash.
    """
    settings = []
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in ENVIRONMENT_EXCLUDED:
            settings.append(Setting(key_of_variable(name), environment[name], name))
    return settings


def key_of_variable(name: str) -> str:
    """Convert the name of a variable to that of a key."""
    dotted = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def from_overrides(overrides: Iterable[str]) -> list[Setting]:
    """Parse ``key=value`` arguments. Raises `BadProperties`."""
    settings = []
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise BadProperties(f"override {override!r} must be key=value")
        settings.append(Setting(key.strip(), value, "override"))
    return settings
