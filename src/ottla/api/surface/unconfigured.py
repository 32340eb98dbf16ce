"""SASL on a listener that does not have it.

Apache Kafka serves SaslHandshake and SaslAuthenticate all the same and answers ILLEGAL_SASL_STATE;
closing the connection instead would look like a network failure to a client.
"""

import msgspec

from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class SaslHandlers(msgspec.Struct, frozen=True):
    """SASL on a listener that has none."""

    def on_handshake(
        self, caller: Caller, request: SaslHandshakeRequest, version: int
    ) -> SaslHandshakeResponse:
        """Reject the handshake."""
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def on_authenticate(
        self, caller: Caller, request: SaslAuthenticateRequest, version: int
    ) -> SaslAuthenticateResponse:
        """Reject the authentication."""
        text = f"listener {caller.listener} does not authenticate clients"
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)
