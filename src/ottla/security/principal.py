"""Principals: who a connection belongs to.

A principal is written ``type:name``; the type of every authenticated user is ``User``.
"""

from typing import Final, NamedTuple

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection on a listener without authentication."""


class Principal(NamedTuple):
    """A type, in practice ``User``, and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Read ``type:name``; the name may contain colons."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


class CertificateRefused(ValueError):
    """A client certificate that stands for no principal: the connection must be closed."""
