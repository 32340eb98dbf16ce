"""How failures of the cluster are answered over HTTP. Pure."""

from typing import Final

from ottla.client.failures import NoBroker, Refused
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.security.sasl.credentials import LoginFailed

_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)


def status_of(error: BaseException) -> int:
    """Return the HTTP status of a failure."""
    if isinstance(error, Refused):
        if error.code in _FORBIDDEN:
            return 403
        return 404 if error.code in _MISSING else 400
    if isinstance(error, LoginFailed):
        return 401
    if isinstance(error, TimeoutError | RequestTimedOut):
        return 504
    return 502


def message_of(error: BaseException) -> str:
    """Return what to say about a failure."""
    if isinstance(error, Refused):
        return f"The broker refuses: {error}."
    if isinstance(error, LoginFailed):
        return "The brokers refuse this user and password."
    if isinstance(error, NoBroker):
        return f"No broker answers: {error}."
    return f"The cluster does not answer: {str(error) or type(error).__name__}."
