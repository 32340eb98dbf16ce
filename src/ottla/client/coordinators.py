"""Requests to the coordinator of a group or a transactional id.

A coordinator may move or still be loading its log; then it is looked up again, a bounded number of
times. The caller handles its other errors.
"""

import enum
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.client.cluster import ATTEMPTS_MAX, Cluster, NoBroker, Refused
from ottla.client.connection import ConnectionLost
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import NodeId

T = TypeVar("T")
Reply = TypeVar("Reply", bound=Message)

COORDINATOR_MOVED_OR_LOADING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a coordinator that is moving or loading: look it up and retry."""


class CoordinatorType(enum.IntEnum):
    """The types of coordinators in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


async def find_coordinator(cluster: Cluster, kind: CoordinatorType, key: str) -> NodeId:
    """Return the coordinator of a group or a transactional id.

    Raises:
        Refused: there is none after all retries, or access is denied. NoBroker: no broker
            responds.
    """
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    for attempt in range(ATTEMPTS_MAX):
        response = await cluster.send_any(request, FindCoordinatorResponse)
        # Up to version 3 the reply itself is the only answer.
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code not in COORDINATOR_MOVED_OR_LOADING:
            _check(found.error_code, key, found.error_message)
            if found.node_id not in cluster.nodes:
                await cluster.metadata([])
            return NodeId(found.node_id)
        if attempt + 1 < ATTEMPTS_MAX:
            await cluster.pause(attempt)
    raise Refused(found.error_code, key, found.error_message)


async def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorType,
    key: str,
    ask: Callable[[NodeId], Awaitable[T]],
) -> T:
    """Call ``ask`` with the coordinator, and again with its successor if it has moved.

    ``ask`` is called again if it raises `Refused` with one of `COORDINATOR_MOVED_OR_LOADING`, or if
    the coordinator does not respond, up to `ATTEMPTS_MAX` times. Other errors are raised.
    """
    for attempt in range(ATTEMPTS_MAX):
        is_last = attempt + 1 == ATTEMPTS_MAX
        node_id = await find_coordinator(cluster, kind, key)
        try:
            return await ask(node_id)
        except Refused as refused:
            if is_last or refused.code not in COORDINATOR_MOVED_OR_LOADING:
                raise
        except (NoBroker, ConnectionLost, RequestTimedOut):
            if is_last:
                raise
        await cluster.pause(attempt)
    raise AssertionError("the last attempt returns or raises")


def _check(code: int, subject: str, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise Refused(code, subject, message)
