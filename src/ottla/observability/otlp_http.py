"""Posts exports to an OTLP collector over HTTP. Blocking: run it on a worker thread.

    POST /v1/metrics   content-type: application/x-protobuf

A collector answers 200, or 429, 502, 503 or 504 if the same export may be sent again, perhaps with
Retry-After; every other answer is final. Redirects are not followed and proxies are not used.
"""

import gzip
import http.client
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

ANSWER_BYTES_MAX: Final = 64 * 1024
RETRY_AFTER_S_MAX: Final = 300.0
_RETRYABLE: Final = frozenset({429, 502, 503, 504})
# The fastest level: metrics are text that repeats itself.
_GZIP_LEVEL: Final = 1


class Delivered(msgspec.Struct, frozen=True):
    """The collector has accepted an export."""


class Failed(msgspec.Struct, frozen=True):
    """An export was not accepted. ``retry_after_s`` is what the collector asks for, if it does."""

    reason: str
    is_retryable: bool
    retry_after_s: float | None = None


Outcome = Delivered | Failed


class HttpTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where exports go. ``headers`` may be secret."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 10.0
    compresses: bool = True
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    """Makes a context for each export, so that changed certificates are used."""

    def __repr__(self) -> str:
        return f"HttpTarget({self.url})"


def post(target: HttpTarget, body: bytes) -> Outcome:
    """Send one export; never raises for a failure of the network or the collector."""
    headers = {"Content-Type": "application/x-protobuf", "User-Agent": "ottla"}
    headers |= dict(target.headers)
    if target.compresses:
        body = gzip.compress(body, _GZIP_LEVEL)
        headers["Content-Encoding"] = "gzip"
    try:
        connection = _connection(target)
    except (OSError, ValueError) as error:  # certificates that cannot be read
        return Failed(f"{type(error).__name__}: {error}", is_retryable=True)
    try:
        connection.request("POST", urlsplit(target.url).path or "/", body, headers)
        answer = connection.getresponse()
        answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        return Failed(f"{type(error).__name__}: {error}", is_retryable=True)
    finally:
        connection.close()
    return outcome_of(answer.status, answer.getheader("Retry-After"))


def outcome_of(status: int, retry_after: str | None) -> Outcome:
    """Return what an answer means."""
    if 200 <= status < 300:
        return Delivered()
    return Failed(f"the collector answered {status}", status in _RETRYABLE, _seconds(retry_after))


def _seconds(text: str | None) -> float | None:
    """Return the seconds of Retry-After, bounded; None if it is missing or a date."""
    if text is None or not text.strip().isdecimal():
        return None
    return min(float(text), RETRY_AFTER_S_MAX)


def _connection(target: HttpTarget) -> http.client.HTTPConnection:
    parts = urlsplit(target.url)
    assert parts.hostname is not None, "URLs are checked with the settings"
    if parts.scheme == "https":
        context = target.tls()
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=target.timeout_s, context=context
        )
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=target.timeout_s)
