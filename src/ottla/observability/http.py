"""GET and HEAD over HTTP/1.1, for scrapers and probes. Pure.

    GET /metrics HTTP/1.1 CRLF  header: value CRLF ...  CRLF

`parse` parses the complete head of a request; `response` builds the reply. A request with a body is
rejected and its connection closed, so that the body cannot be parsed as another request.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

HEAD_BYTES_MAX: Final = 8192
END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}

_CHALLENGE: Final = 'WWW-Authenticate: Basic realm="metrics", Bearer\r\n'


class Get(msgspec.Struct, frozen=True):
    """A valid request. ``is_head``: a HEAD request, answered without a body.

    ``authorization`` is the header of that name as it was sent; empty without one.
    """

    path: str
    keeps_alive: bool
    is_head: bool = False
    authorization: bytes = b""


class BadRequest(msgspec.Struct, frozen=True):
    """An invalid request and the status of its response; its connection is closed."""

    status: int


class Page(msgspec.Struct, frozen=True):
    """The page at a path."""

    status: int
    content_type: str
    body: bytes


class SlicedPage(msgspec.Struct, frozen=True):
    """A page whose body is made piece by piece, with other work in between."""

    content_type: str
    pieces: Iterator[bytes]


def parse(head: bytes) -> Get | BadRequest:
    """Parse a head without its final empty line."""
    lines = head.split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        return BadRequest(400)
    method, target, version = words
    if method not in (b"GET", b"HEAD"):
        return BadRequest(405)
    headers: dict[bytes, bytes] = {}
    authorization = b""
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            return BadRequest(400)
        if name.lower() == b"authorization":
            authorization = value.strip()
        headers[name.lower()] = value.strip().lower()
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        return BadRequest(400)
    if not target.startswith(b"/") or not target.isascii():
        return BadRequest(400)
    connection = headers.get(b"connection", b"keep-alive" if version == b"HTTP/1.1" else b"close")
    path = target.partition(b"?")[0].decode("ascii")
    return Get(path, connection == b"keep-alive", method == b"HEAD", authorization)


def response(page: Page, *, keeps_alive: bool, is_head: bool = False) -> bytes:
    """Return a whole response."""
    head = response_head(page.status, page.content_type, len(page.body), keeps_alive=keeps_alive)
    return head + (b"" if is_head else page.body)


def response_head(status: int, content_type: str, size: int, *, keeps_alive: bool) -> bytes:
    """Return a response up to its body of ``size`` bytes."""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {size}\r\n"
        f"Connection: {'keep-alive' if keeps_alive else 'close'}\r\n"
        f"{_CHALLENGE if status == 401 else ''}"
        "X-Content-Type-Options: nosniff\r\n\r\n"
    )
    return head.encode("ascii")


def plain(status: int, text: str) -> Page:
    """Return a page of one line."""
    return Page(status, "text/plain; charset=utf-8", f"{text}\n".encode())
