"""Addresses in the forms that configuration uses.

host:port                   the port after the last colon
[2001:db8::1]:9092          an IPv6 address in brackets, which are not part of it
EXTERNAL://host:port        a listener; an empty host means every interface
3@host:port                 a voter of the quorum
"""

import enum
import re

import msgspec

from ottla.protocol.types import NodeId

_HOST_PORT = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.%\w-]+)\]|(?P<host>[0-9a-zA-Z\-%._:]*)):"
    r"(?P<port>[0-9]{1,9})\Z"
)
_LISTENER_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")
PORT_MAX = 65535
VOTER_ID_MAX = 2**31 - 1


class BadAddress(Exception):
    """A text that is not an address of the expected form; the message says what was expected."""


class SecurityProtocol(enum.Enum):
    """The security protocol of a listener; the number is the one Kafka stores."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class HostPort(msgspec.Struct, frozen=True):
    """A listener address. An IPv6 host has no brackets; an empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HttpAddress(msgspec.Struct, frozen=True):
    """The address of an HTTP listener."""

    address: HostPort
    is_tls: bool


class Voter(msgspec.Struct, frozen=True):
    """A voter of a static quorum and the address of its controller listener."""

    id: NodeId
    address: HostPort


class ListenerAddress(msgspec.Struct, frozen=True):
    """A listener's name, in upper case, and its address."""

    name: str
    address: HostPort


def parse_http_url(text: str) -> HttpAddress:
    """Parse ``http://host:port``; an empty host means all interfaces. Raises `BadAddress`."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise BadAddress(f"{text!r} must be http://host:port or https://host:port")
    address = parse_host_port(rest.removesuffix("/"), may_lack_host=True)
    return HttpAddress(address, scheme.lower() == "https")


def parse_host_port(text: str, *, may_lack_host: bool = False) -> HostPort:
    """Parse ``host:port``. Raises `BadAddress`."""
    found = _HOST_PORT.match(text)
    if found is None or int(found["port"]) > PORT_MAX:
        raise BadAddress(f"{text!r} must be host:port with a port up to {PORT_MAX}")
    host = found["six"] or found["host"] or ""
    if not host and not may_lack_host:
        raise BadAddress(f"{text!r} must name a host")
    return HostPort(host, int(found["port"]))


def parse_listener(text: str) -> ListenerAddress:
    """Parse ``NAME://host:port``. Raises `BadAddress`."""
    name, separator, rest = text.partition("://")
    if not separator or not _LISTENER_NAME.match(name):
        raise BadAddress(f"{text!r} must be NAME://host:port")
    return ListenerAddress(name.upper(), parse_host_port(rest, may_lack_host=True))


def parse_voter(text: str) -> Voter:
    """Parse ``id@host:port``. Raises `BadAddress`."""
    number, separator, rest = text.partition("@")
    if not separator or not re.fullmatch("[0-9]{1,10}", number) or int(number) > VOTER_ID_MAX:
        raise BadAddress(f"{text!r} must be id@host:port with an id that is not negative")
    return Voter(NodeId(int(number)), parse_host_port(rest))


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Parse ``NAME:PROTOCOL,...``; names are converted to upper case. Raises `BadAddress`."""
    found: dict[str, SecurityProtocol] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip() for part in item.rpartition(":"))
        if not name or protocol.upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise BadAddress(f"{item!r} must be NAME:PROTOCOL with a protocol of {known}")
        if name.upper() in found:
            raise BadAddress(f"{name!r} must have one protocol only")
        found[name.upper()] = SecurityProtocol[protocol.upper()]
    return found


def parse_host_counts(text: str) -> list[tuple[str, int]]:
    """Parse ``host:count,...``; an IPv6 address may be in brackets.

    Raises:
        BadAddress: it is not of this form.
    """
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not (count.isascii() and count.isdecimal() and len(count) <= 10):
            raise BadAddress(f"must be host:count, not {item!r}")
        found.append((host.strip().removeprefix("[").removesuffix("]"), int(count)))
    return found
