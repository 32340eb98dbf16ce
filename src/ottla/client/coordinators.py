"""Asking whoever coordinates a group or a transaction.

A coordinator may move or still be reading its log; then it is looked for again, a bounded number
of times. What it answers to the request itself is the caller's business.
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

PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What a coordinator says that will be elsewhere, or ready, in a moment."""


class Coordinated(enum.IntEnum):
    """What there are coordinators of, by FindCoordinator's numbers."""

    GROUP = 0
    TRANSACTION = 1


async def find_coordinator(cluster: Cluster, kind: Coordinated, key: str) -> NodeId:
    """Return who coordinates a group or a transactional id.

    Raises:
        Refused: nobody does, again and again, or one may not know. NoBroker: nobody answers.
    """
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    for attempt in range(ATTEMPTS_MAX):
        response = await cluster.send_any(request, FindCoordinatorResponse)
        # Up to version 3 there is one answer, which stands in the reply itself.
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code not in PASSING:
            _check(found.error_code, key, found.error_message)
            if found.node_id not in cluster.nodes:
                await cluster.metadata([])
            return NodeId(found.node_id)
        if attempt + 1 < ATTEMPTS_MAX:
            await cluster.pause(attempt)
    raise Refused(found.error_code, key, found.error_message)


async def ask_coordinator(
    cluster: Cluster,
    kind: Coordinated,
    key: str,
    ask: Callable[[NodeId], Awaitable[T]],
) -> T:
    """Have ``ask`` ask the coordinator, and its successor where it has moved.

    ``ask`` raises `Refused`; with one of `PASSING` it is called again, with any other code that
    is raised. So is what it raises when nobody answers, after some attempts.
    """
    for attempt in range(ATTEMPTS_MAX):
        is_last = attempt + 1 == ATTEMPTS_MAX
        node_id = await find_coordinator(cluster, kind, key)
        try:
            return await ask(node_id)
        except Refused as refused:
            if is_last or refused.code not in PASSING:
                raise
        except (NoBroker, ConnectionLost, RequestTimedOut):
            if is_last:
                raise
        await cluster.pause(attempt)
    raise AssertionError("the last attempt returns or raises")


def _check(code: int, subject: str, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise Refused(code, subject, message)
