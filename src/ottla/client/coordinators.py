"""Requests to the coordinator of a group or a transactional id.

A coordinator may move or still be loading its log; then it is looked up again, a bounded number of
times. The caller handles its other errors.
"""

import enum
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.client.cluster import ATTEMPTS_MAX, Cluster
from ottla.client.failures import COORDINATOR_MOVED_OR_LOADING as COORDINATOR_MOVED_OR_LOADING
from ottla.client.failures import ConnectionLost, NoBroker, Refused
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.types import NodeId

T = TypeVar("T")


class CoordinatorType(enum.IntEnum):
    """The types of coordinators in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


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
        node_id = await cluster.coordinator_of(kind, key)
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
