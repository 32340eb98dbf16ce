"""Small documents from an identity provider: one request, bounded in size and time.

Only ``https`` is allowed, ``http`` to this machine itself, and ``file`` where the caller says so.
Redirects are not followed: they would lead away from the host that was configured. Blocking; run it
on a worker thread.
"""

import http.client
import ipaddress
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Final
from urllib.parse import urlsplit

import msgspec

DOCUMENT_BYTES_MAX: Final = 1024 * 1024


class FetchFailed(OSError):
    """A document could not be had; the message names the host and never a secret."""


class BadUrl(ValueError):
    """A URL that may not be used here."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. With a body it is a POST. Headers and body may hold secrets."""

    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = 10.0

    def __repr__(self) -> str:
        return f"HttpRequest({urlsplit(self.url).hostname})"


def check_url(url: str, *, allows_file: bool = False) -> None:
    """Raise `BadUrl` for a scheme or host that is not allowed."""
    parts = urlsplit(url)
    if parts.scheme == "file" and allows_file and parts.path.startswith("/"):
        return
    if parts.username or parts.password:
        raise BadUrl("a URL must not contain credentials")
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and parts.hostname and _is_loopback(parts.hostname):
        return
    allowed = "https, or http to this machine" + (", or file" if allows_file else "")
    raise BadUrl(f"the URL must be {allowed}")


def fetch(request: HttpRequest, tls: ssl.SSLContext | None, *, allows_file: bool = False) -> bytes:
    """Return a document.

    Raises:
        BadUrl: the URL is not allowed. FetchFailed: it could not be had, or is too long.
    """
    check_url(request.url, allows_file=allows_file)
    parts = urlsplit(request.url)
    try:
        if parts.scheme == "file":
            with open(parts.path, "rb") as file:
                return _read(file)
        asked = urllib.request.Request(  # noqa: S310 - the scheme was checked
            request.url, data=request.body, headers=dict(request.headers)
        )
        opener = urllib.request.build_opener(
            _NoRedirect(), urllib.request.HTTPSHandler(context=tls), urllib.request.ProxyHandler({})
        )
        with opener.open(asked, timeout=request.timeout_s) as reply:
            return _read(reply)
    except urllib.error.HTTPError as error:
        raise FetchFailed(f"{parts.hostname} answered {error.code}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchFailed(f"{parts.hostname or parts.path}: {error}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _read(source: IO[bytes]) -> bytes:
    data = source.read(DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise FetchFailed(f"the document is longer than {DOCUMENT_BYTES_MAX} bytes")
    return data


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
