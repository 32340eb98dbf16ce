"""Delegation tokens (KIP-48, KIP-373): which callers may manage and describe them.

The active controller creates, renews and expires tokens (`ottla.controller.tokens`); a broker
refuses what it does not forward, and describes tokens from its image. As in Kafka a request is
refused on a connection whose client is unknown (PLAINTEXT, or TLS without a certificate), and on
one that was authenticated with a token: a token must not be able to prolong itself.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED     on such a connection
    DELEGATION_TOKEN_AUTH_DISABLED           without ``delegation.token.secret.key``
    DELEGATION_TOKEN_AUTHORIZATION_FAILED    for another owner without CREATE_TOKENS on that user
    DELEGATION_TOKEN_OWNER_MISMATCH          from the controller: neither owner nor renewer
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.cluster.controller_decisions import TokenSettings, allows_token_requests
from ottla.api.cluster.envelope import Forwarder
from ottla.api.groups.group_access import May
from ottla.api.surface.replies import Handled, Reply, Work
from ottla.api.surface.routes import Caller
from ottla.controller import tokens
from ottla.controller.token_index import TokenIndex
from ottla.metadata.access import DelegationToken
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.runtime.ports import Clock
from ottla.security.principal import parse_principal

NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class TokenChanges(msgspec.Struct, frozen=True):
    """Create, renew and expire on a broker: decided by the active controller."""

    forwarder: Forwarder
    timeout_ms: int

    def on_create(
        self, caller: Caller, request: CreateDelegationTokenRequest, version: int
    ) -> Reply:
        """Create a token of the caller, or of another owner if the caller may."""
        if not allows_token_requests(caller):
            requester = parse_principal(caller.principal)
            return tokens.refuse_create(request, requester, NOT_ALLOWED)
        return Work(self.forwarder.forward_message(caller, request, self.timeout_ms))

    def on_renew(self, caller: Caller, request: RenewDelegationTokenRequest, version: int) -> Reply:
        """Renew a token."""
        if not allows_token_requests(caller):
            return tokens.refuse_renew(NOT_ALLOWED)
        return Work(self.forwarder.forward_message(caller, request, self.timeout_ms))

    def on_expire(
        self, caller: Caller, request: ExpireDelegationTokenRequest, version: int
    ) -> Reply:
        """Expire a token."""
        if not allows_token_requests(caller):
            return tokens.refuse_expire(NOT_ALLOWED)
        return Work(self.forwarder.forward_message(caller, request, self.timeout_ms))


class TokenDescriptions(msgspec.Struct, frozen=True):
    """Describe on any node, from its image.

    Owners and renewers see their tokens; ``may_describe`` (by token id) and ``may_describe_user``
    (by owner) decide about others.
    """

    image: Callable[[], Image]
    clock: Clock
    settings: TokenSettings
    may_describe: May
    may_describe_user: May

    def on_describe(
        self, caller: Caller, request: DescribeDelegationTokenRequest, version: int
    ) -> Handled:
        """Return the tokens that the caller may see."""
        if not allows_token_requests(caller):
            return DescribeDelegationTokenResponse(NOT_ALLOWED)

        def may_describe(token: DelegationToken) -> bool:
            by_id = self.may_describe(caller, token.token_id)
            return by_id or self.may_describe_user(caller, token.owner)

        held = self.settings
        context = tokens.TokenContext(
            parse_principal(caller.principal),
            self.clock.now(),
            held.secret,
            held.lifetime_ms_max,
            held.renewal_ms,
            TokenIndex(),
        )
        return tokens.describe_delegation_tokens(self.image(), request, context, may_describe)
