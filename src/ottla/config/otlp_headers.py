"""The headers and URLs of OTLP exports. Messages never contain a value: it may be secret."""

import re
from typing import Final
from urllib.parse import unquote, urlsplit

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")
# The client sets these itself.
_RESERVED: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host"}
)


class BadOtlpSetting(ValueError):
    """A URL or a list of headers that cannot be used."""


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``name=value,...`` with percent-encoded values, as OpenTelemetry does.

    Raises:
        BadOtlpSetting: an item is no pair, or its name or value cannot be sent.
    """
    found = []
    for item in filter(None, map(str.strip, text.split(","))):
        name, equals, value = item.partition("=")
        name, value = name.strip(), unquote(value.strip())
        if not equals or not _NAME.fullmatch(name):
            raise BadOtlpSetting("must be name=value,... with names of HTTP headers")
        if not _VALUE.fullmatch(value):
            raise BadOtlpSetting(f"header {name} must have a value of printable ASCII characters")
        if name.lower() in _RESERVED:
            raise BadOtlpSetting(f"header {name} must not be set")
        found.append((name, value))
    return tuple(found)


def check_otlp_url(url: str) -> None:
    """Raise `BadOtlpSetting` for anything but an http or https URL without credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadOtlpSetting("must be a URL: http://host:4318") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadOtlpSetting("must be an http or https URL, such as http://host:4318")
    if parts.username is not None or parts.query or parts.fragment:
        raise BadOtlpSetting("must be a URL without credentials, query and fragment")
