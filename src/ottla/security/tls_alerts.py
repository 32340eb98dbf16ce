"""Handshakes of listeners: the validity of client certificates, and the alert of a failure.

OpenSSL writes an alert, but the event loops close the socket without sending it. `ServerContext`
keeps the alert with the exception that the loop raises, so that its caller can send it: a Kafka
client that receives an alert reports an authentication error instead of trying again.

OpenSSL verifies a client's certificate when a session begins, and not again when it is resumed. So
the validity of the certificate is checked after every handshake. Trust needs no second look: other
trusted certificates mean another context, and a session is resumed only by the context that began
it.
"""

import ssl
from typing import Final

from ottla.protocol.types import Millis
from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Clock

ALERT_BYTES_MAX: Final = 1024
_ATTRIBUTE: Final = "ottla_alert"


class _ServerObject(ssl.SSLObject):
    """A TLS connection that keeps what OpenSSL had to say when its handshake failed."""

    outgoing: ssl.MemoryBIO
    clock: Clock

    def do_handshake(self) -> None:
        """Continue the handshake; see `alert_of` for the exception."""
        try:
            super().do_handshake()
            _check_validity(self.getpeercert(binary_form=True), self.clock.now())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            setattr(error, _ATTRIBUTE, self.outgoing.read(ALERT_BYTES_MAX))
            raise


class ServerContext(ssl.SSLContext):
    """The TLS context of a listener."""

    sslobject_class = _ServerObject
    clock: Clock = SystemClock()
    """Says whether certificates of clients are valid; OpenSSL goes by the system's."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return a connection over two buffers, as the event loops call for."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _ServerObject)
        made.outgoing = outgoing
        made.clock = self.clock
        return made


def _check_validity(certificate: bytes | None, now: Millis) -> None:
    """Raise `ssl.SSLCertVerificationError` unless a peer's certificate in DER is valid now."""
    if certificate is None:
        return
    # Loaded by now: the context has certificates of its own.
    from cryptography import x509

    from ottla.security.certificates import validity_of

    try:
        validity = validity_of(x509.load_der_x509_certificate(certificate))
    except ValueError as error:
        reason = f"the client's certificate cannot be read: {error}"
        raise ssl.SSLCertVerificationError(reason) from error
    if (against := validity.reason_against(now)) is not None:
        raise ssl.SSLCertVerificationError(f"the client's certificate {against}")


def alert_of(error: BaseException) -> bytes:
    """Return what is still to be sent after a failed handshake; empty where there is nothing."""
    found = getattr(error, _ATTRIBUTE, b"")
    return found if isinstance(found, bytes) else b""
