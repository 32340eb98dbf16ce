"""Delegation tokens: create, renew, expire, describe, and remove expired ones (KIP-48).

A token is an id and a password. The password is the HMAC-SHA-512 of the id under a secret that all
nodes share; it is never stored (`ottla.controller.token_index`). Any client that logged in may
create tokens, so an owner has at most `TOKENS_PER_OWNER_MAX`; Kafka has no bound.

Times are in ms since 1970. A token is valid until ``expiration``, which renewal extends, and never
beyond ``max``, which is fixed at creation.
"""

from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from ottla.config.values import Password
from ottla.controller.decision import Decision
from ottla.controller.token_index import TokenIndex, token_hmac
from ottla.metadata.access import DelegationToken
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_security import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.protocol.types import Millis, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.security.principal import USER, Principal, parse_principal

LONG_MAX = (1 << 63) - 1
NO_TIME = -1
# As many as Kafka removes at a time; the next run removes the rest.
EXPIRED_MAX = 1000
TOKENS_PER_OWNER_MAX: Final = 1000
DESCRIBED_PER_STEP: Final = 64


class TokenContext(NamedTuple):
    """The requester, the time, and the settings of the cluster. Tokens are off without a secret."""

    requester: Principal
    now: Millis
    secret: Password | None
    lifetime_ms_max: int
    renewal_ms: int
    token_index: TokenIndex


# -- create --------------------------------------------------------------------------------------


def decide_create_delegation_token(
    image: Image, request: CreateDelegationTokenRequest, token_id: Uuid, context: TokenContext
) -> Decision[CreateDelegationTokenResponse]:
    """Create a token for the requester, or for the owner in the request.

    Whether the requester may do so is decided before. ``token_id`` is random.
    """
    if any(renewer.principal_type != USER for renewer in request.renewers):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
        return Decision([], refuse_create(request, context.requester, code))
    owner = owner_of(request, context.requester)
    reply = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=context.requester.type,
        token_requester_principal_name=context.requester.name,
    )
    reply.error_code = _disabled(image, context)
    if reply.error_code or context.secret is None:
        return Decision([], reply)
    if context.token_index.count_of(image, context.secret, str(owner)) >= TOKENS_PER_OWNER_MAX:
        code = ErrorCode.POLICY_VIOLATION
        return Decision([], refuse_create(request, context.requester, code))
    lifetime = context.lifetime_ms_max
    if request.max_lifetime_ms > 0:
        lifetime = min(lifetime, request.max_lifetime_ms)
    reply.token_id = uuid_text(token_id)
    reply.issue_timestamp_ms = context.now
    reply.max_timestamp_ms = _sum(context.now, lifetime)
    reply.expiry_timestamp_ms = min(reply.max_timestamp_ms, _sum(context.now, context.renewal_ms))
    reply.hmac = token_hmac(context.secret, reply.token_id)
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(context.requester),
        renewers=[str(Principal(r.principal_type, r.principal_name)) for r in request.renewers],
        issue_timestamp=context.now,
        max_timestamp=reply.max_timestamp_ms,
        expiration_timestamp=reply.expiry_timestamp_ms,
        token_id=reply.token_id,
    )
    return Decision([Versioned(record, 0)], reply)


def refuse_create(
    request: CreateDelegationTokenRequest, requester: Principal, code: ErrorCode
) -> CreateDelegationTokenResponse:
    """Return the error response to a creation, with the owner that the token would have had."""
    owner = owner_of(request, requester)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )


def refuse_renew(code: ErrorCode) -> RenewDelegationTokenResponse:
    """Return the error response to a renewal."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)


def refuse_expire(code: ErrorCode) -> ExpireDelegationTokenResponse:
    """Return the error response to an expiry request."""
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Return the owner of the token to create: the requester unless the request names one."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def restore_hmac(
    reply: CreateDelegationTokenResponse, context: TokenContext
) -> CreateDelegationTokenResponse:
    """Compute a token's password again; it is not stored with the reply."""
    if context.secret is not None and not reply.error_code:
        reply.hmac = token_hmac(context.secret, reply.token_id)
    return reply


def _disabled(image: Image, context: TokenContext) -> ErrorCode:
    if context.secret is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if not image.metadata_version().is_delegation_token_supported():
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _sum(now: int, duration: int) -> int:
    return min(LONG_MAX, now + duration)


# -- renew and expire ----------------------------------------------------------------------------


def decide_renew_delegation_token(
    image: Image, request: RenewDelegationTokenRequest, context: TokenContext
) -> Decision[RenewDelegationTokenResponse]:
    """Extend a token's validity, but not beyond its maximum time."""
    token = _token_in_request(image, request.hmac, context)
    if isinstance(token, DelegationToken) and is_expired(token, context.now):
        token = ErrorCode.DELEGATION_TOKEN_EXPIRED
    if isinstance(token, DelegationToken) and not _may_renew(token, context.requester):
        token = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if isinstance(token, ErrorCode):
        return Decision([], RenewDelegationTokenResponse(error_code=token))
    renewal = context.renewal_ms
    if request.renew_period_ms > 0:
        renewal = min(renewal, request.renew_period_ms)
    expiry = min(token.max_timestamp, _sum(context.now, renewal))
    reply = RenewDelegationTokenResponse(expiry_timestamp_ms=expiry)
    return Decision([_moved(token, expiry)], reply)


def decide_expire_delegation_token(
    image: Image, request: ExpireDelegationTokenRequest, context: TokenContext
) -> Decision[ExpireDelegationTokenResponse]:
    """Set a token's expiry time; a negative period expires it at once, even if already expired."""
    token = _token_in_request(image, request.hmac, context)
    if isinstance(token, DelegationToken) and not _may_renew(token, context.requester):
        token = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if isinstance(token, ErrorCode):
        return Decision([], ExpireDelegationTokenResponse(error_code=token))
    if request.expiry_time_period_ms < 0:
        reply = ExpireDelegationTokenResponse(expiry_timestamp_ms=context.now)
        return Decision([_removed(token)], reply)
    if is_expired(token, context.now):
        code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        return Decision([], ExpireDelegationTokenResponse(error_code=code))
    expiry = min(token.max_timestamp, _sum(context.now, request.expiry_time_period_ms))
    reply = ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry)
    return Decision([_moved(token, expiry)], reply)


def is_expired(token: DelegationToken, now: Millis) -> bool:
    """Return whether a token has expired."""
    return token.max_timestamp < now or token.expiration_timestamp < now


def _token_in_request(
    image: Image, password: bytes, context: TokenContext
) -> DelegationToken | ErrorCode:
    code = _disabled(image, context)
    if code or context.secret is None:
        return code
    token = context.token_index.find(image, context.secret, bytes(password))
    return ErrorCode.DELEGATION_TOKEN_NOT_FOUND if token is None else token


def _may_renew(token: DelegationToken, principal: Principal) -> bool:
    return str(principal) in (token.owner, *token.renewers)


def _moved(token: DelegationToken, expiry: int) -> Versioned:
    record = DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry,
        token_id=token.token_id,
    )
    return Versioned(record, 0)


def _removed(token: DelegationToken) -> Versioned:
    return Versioned(RemoveDelegationTokenRecord(token_id=token.token_id), 0)


def decide_sweep_delegation_tokens(image: Image, now: Millis) -> Decision[None]:
    """Remove expired tokens, a bounded number at a time."""
    ended = [t for t in image.delegation_tokens.values() if is_expired(t, now)]
    ended.sort(key=lambda token: token.token_id)
    return Decision([_removed(token) for token in ended[:EXPIRED_MAX]], None)


# -- describe ------------------------------------------------------------------------------------


def describe_delegation_tokens(
    image: Image,
    request: DescribeDelegationTokenRequest,
    context: TokenContext,
    may_describe: Callable[[DelegationToken], bool],
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    """Return tokens of the given owners, or of all, with their passwords; yield often.

    Owners and renewers see their tokens; ``may_describe`` decides about others, by ACLs.
    """
    if context.secret is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return DescribeDelegationTokenResponse(error_code=code)
    owners = None
    if request.owners is not None:
        owners = set[str]()
        for count, named in enumerate(request.owners):
            owners.add(str(Principal(named.principal_type, named.principal_name)))
            if not count % DESCRIBED_PER_STEP:
                yield
    tokens = []
    for place, token_id in enumerate(sorted(image.delegation_tokens)):
        if not place % DESCRIBED_PER_STEP:
            yield
        token = image.delegation_tokens[token_id]
        holders = {token.owner, *token.renewers}
        if owners is not None and not owners & holders:
            continue
        if str(context.requester) in holders or may_describe(token):
            tokens.append(_described(token, context.secret))
    return DescribeDelegationTokenResponse(tokens=tokens)


def _described(token: DelegationToken, secret: Password) -> DescribedDelegationToken:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(*parse_principal(text)) for text in token.renewers
        ],
    )
