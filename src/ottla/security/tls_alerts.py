"""The alert of a failed TLS handshake, which tells a client why it was refused.

OpenSSL writes an alert, but the event loops close the socket without sending it. `ServerContext`
keeps the alert with the exception that the loop raises, so that its caller can send it: a Kafka
client that receives an alert reports an authentication error instead of trying again.
"""

import ssl
from typing import Final

ALERT_BYTES_MAX: Final = 1024
_ATTRIBUTE: Final = "ottla_alert"


class _ServerObject(ssl.SSLObject):
    """A TLS connection that keeps what OpenSSL had to say when its handshake failed."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Continue the handshake; see `alert_of` for the exception."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            setattr(error, _ATTRIBUTE, self.outgoing.read(ALERT_BYTES_MAX))
            raise


class ServerContext(ssl.SSLContext):
    """The TLS context of a listener."""

    sslobject_class = _ServerObject

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
        return made


def alert_of(error: BaseException) -> bytes:
    """Return what is still to be sent after a failed handshake; empty where there is nothing."""
    found = getattr(error, _ATTRIBUTE, b"")
    return found if isinstance(found, bytes) else b""
