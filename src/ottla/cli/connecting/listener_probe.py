"""Find out what an address speaks, after a connection to it has failed.

A client that speaks TLS to a listener without it, or the other way round, or Kafka to a web server,
sees a closed connection or silence. The probe asks in each language in turn and takes a few
seconds at most. Nothing secret is sent.
"""

import asyncio
import enum
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from ottla.client.connection import Options
from ottla.runtime.ports import Address

STEP_S_MAX: Final = 2.0
ADDRESSES_MAX: Final = 3
_REPLY_BYTES_MAX: Final = 4096
_CORRELATION_ID: Final = 0x4F74746C
_API_VERSIONS: Final = 18
_SASL_HANDSHAKE: Final = 17
_ILLEGAL_SASL_STATE: Final = 34
_HTTP_REQUEST: Final = b"GET / HTTP/1.0\r\n\r\n"
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")


class Speaks(enum.Enum):
    """The language of a listener."""

    KAFKA = "Kafka"
    TLS = "TLS"
    HTTP = "HTTP"
    UNKNOWN = "unknown"


class Listener(msgspec.Struct, frozen=True):
    """What was found at an address. ``mechanisms`` are those of SASL; None: it has no login."""

    speaks: Speaks
    mechanisms: tuple[str, ...] | None = None
    is_kafka: bool = False


# -- rules -------------------------------------------------------------------------


def classify(reply: bytes) -> Speaks:
    """Say what has answered a request of Kafka, by its first bytes."""
    if reply.startswith(b"HTTP/"):
        return Speaks.HTTP
    if reply.startswith(_TLS_RECORDS):
        return Speaks.TLS
    if len(reply) >= 8 and struct.unpack_from(">i", reply, 4)[0] == _CORRELATION_ID:
        return Speaks.KAFKA
    return Speaks.UNKNOWN


def mechanisms_of(reply: bytes) -> tuple[str, ...] | None:
    """Return the mechanisms in a reply to SaslHandshake; None if there is no login."""
    try:
        code, count = struct.unpack_from(">hi", reply, 8)
        if code == _ILLEGAL_SASL_STATE:
            return None
        names, at = [], 14
        for _ in range(count):
            (length,) = struct.unpack_from(">h", reply, at)
            names.append(reply[at + 2 : at + 2 + length].decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(names)


def explain(address: Address, listener: Listener, *, has_tls: bool, has_login: bool) -> str:
    """Return why a client does not get on with a listener; empty if nothing contradicts it."""
    if listener.speaks is Speaks.HTTP:
        return (
            f"{address} speaks HTTP, not Kafka: it may be the port of metrics or of a web server; "
            "set the port of a broker with --bootstrap"
        )
    is_tls = listener.speaks is Speaks.TLS
    login = "" if listener.mechanisms is None else "SASL_"
    right = f"security.protocol={login}{'SSL' if is_tls else 'PLAINTEXT'}"
    own = _login_settings(listener) if login else ""
    reasons = {
        f"requires TLS: set {right} and ssl.ca.location{own}": is_tls and not has_tls,
        f"does not use TLS: set {right}, or the port of a listener with TLS": (
            listener.speaks is Speaks.KAFKA and has_tls
        ),
        f"requires a login: set {right}{own}": bool(login) and not has_login,
        f"has no login: set {right}": listener.is_kafka and not login and has_login,
    }
    return next((f"{address} {text}" for text, is_true in reasons.items() if is_true), "")


def _login_settings(listener: Listener) -> str:
    names = " or ".join(listener.mechanisms or ())
    return f", sasl.mechanism ({names}), sasl.username and sasl.password"


# -- the probe ---------------------------------------------------------------------


async def explain_mismatch(addresses: Sequence[Address], options: Options) -> str:
    """Return what is wrong with the security settings for the addresses; empty if unknown."""
    for address in addresses[:ADDRESSES_MAX]:
        listener = await probe(address)
        text = explain(
            address,
            listener,
            has_tls=options.tls is not None,
            has_login=options.login is not None,
        )
        if text:
            return text
    return ""


async def probe(address: Address) -> Listener:
    """Say what an address speaks."""
    if not await _accepts(address):
        return Listener(Speaks.UNKNOWN)
    speaks = classify(await _ask(address, _request(_API_VERSIONS, 0, b"")))
    if speaks is Speaks.UNKNOWN:
        speaks = classify(await _ask(address, _HTTP_REQUEST))
    tls = None
    if speaks is Speaks.TLS or (speaks is Speaks.UNKNOWN and await _shakes_hands(address)):
        speaks, tls = Speaks.TLS, _any_certificate()
        inside = classify(await _ask(address, _request(_API_VERSIONS, 0, b""), tls))
    else:
        inside = speaks
    if inside is not Speaks.KAFKA:
        return Listener(speaks)
    handshake = _request(_SASL_HANDSHAKE, 1, struct.pack(">h1s", 1, b"?"))
    return Listener(speaks, mechanisms_of(await _ask(address, handshake, tls)), is_kafka=True)


def _any_certificate() -> ssl.SSLContext:
    """Return a context for a connection that nothing is sent over but the question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _request(key: int, version: int, body: bytes) -> bytes:
    """Return a request with header 1 and without a client id."""
    frame = struct.pack(">hhih", key, version, _CORRELATION_ID, -1) + body
    return struct.pack(">i", len(frame)) + frame


async def _accepts(address: Address) -> bool:
    """Say whether an address accepts connections at all."""
    with suppress(OSError, TimeoutError):
        async with _connected(address):
            return True
    return False


async def _shakes_hands(address: Address) -> bool:
    """Say whether an address takes part in a handshake of TLS, also if it ends that one."""
    try:
        async with _connected(address, _any_certificate()):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, EOFError, TimeoutError):
        return False


async def _ask(address: Address, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Send a request and return the first bytes of the reply; none if there is no reply."""
    with suppress(OSError, EOFError, TimeoutError):
        async with _connected(address, tls) as (reader, writer):
            writer.write(request)
            return await reader.read(_REPLY_BYTES_MAX)
    return b""


@asynccontextmanager
async def _connected(
    address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect for one step of the probe, at most `STEP_S_MAX` seconds with all that is done."""
    async with asyncio.timeout(STEP_S_MAX):
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(OSError, EOFError):
                await writer.wait_closed()
