"""Which requests the console serves, by their headers, and the headers of its replies. Pure.

A page of another site must not act for a user of the console. Browsers say in ``Sec-Fetch-Site``
and ``Origin`` where a request comes from; a program that sends neither has no cookies of a user.
A foreign name that resolves to this address (DNS rebinding) is rejected by the ``Host`` header.
"""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

SECURITY_HEADERS: Final = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
)


def is_loopback(host: str) -> bool:
    """Say whether a listener with this host is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the host of a Host header, without the port and in lower case."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_host_served(header: str, hosts: Collection[str]) -> bool:
    """Say whether the Host header names this console."""
    return host_of(header) in hosts


def foreign_origin(method: str, headers: Mapping[str, str]) -> str | None:
    """Return why a request comes from another site; None if it does not, or changes nothing."""
    if method in SAFE_METHODS:
        return None
    site = headers.get("sec-fetch-site")
    if site is not None:
        return None if site in ("same-origin", "none") else f"Sec-Fetch-Site is {site}"
    origin = headers.get("origin")
    if origin is None:
        return None
    if urlsplit(origin).netloc.lower() == headers.get("host", "").lower():
        return None
    return "Origin is another site"


def is_local_path(path: str) -> bool:
    """Say whether a path to redirect to is one of the console, and not of another site."""
    return path.startswith("/") and not path.startswith(("//", "/\\")) and "\n" not in path
