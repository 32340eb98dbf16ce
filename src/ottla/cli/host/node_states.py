"""What a node writes to its standard output for its supervisor, one JSON object per line.

{"state": "ready", "node": 1, "clients": "127.0.0.1:9092", ...}    it serves
{"state": "settled"}      its replicas are in sync, see `ottla.node.broker.settled`
{"state": "unsettled"}    they no longer are
"""

import asyncio
import enum
import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ottla.metadata.image import Image
from ottla.node.broker.settled import is_settled

_LOOK_S: Final = 0.5


class NodeState(enum.Enum):
    """The states that a node reports."""

    READY = "ready"
    SETTLED = "settled"
    UNSETTLED = "unsettled"


class StateLine(msgspec.Struct, frozen=True):
    """One line. ``node`` and the addresses are in the line of a node that is ready."""

    state: NodeState
    node: int = -1
    clients: str | None = None
    controller: str | None = None
    metrics: str | None = None

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the node by their names."""
        found = {"clients": self.clients, "controller": self.controller, "metrics": self.metrics}
        return {name: at for name, at in found.items() if at is not None}


def ready_line(node_id: int, addresses: Mapping[str, str]) -> str:
    """Return the line of a node that serves."""
    return json.dumps({"state": NodeState.READY.value, "node": node_id, **addresses}) + "\n"


def parse_line(line: bytes) -> StateLine | None:
    """Return what a line says, None if it is something else."""
    try:
        return msgspec.json.decode(line, type=StateLine)
    except msgspec.DecodeError:
        return None


async def report_settled(
    image: Callable[[], Image], broker_id: int, write: Callable[[str], None]
) -> None:
    """Write a line whenever the broker becomes settled or unsettled, until cancelled.

    An image is examined once, so a cluster at rest costs nothing.
    """
    last: Image | None = None
    was_settled = False
    while True:
        newest = image()
        if newest is not last:
            last = newest
            if is_settled(newest, broker_id) != was_settled:
                was_settled = not was_settled
                state = NodeState.SETTLED if was_settled else NodeState.UNSETTLED
                write(json.dumps({"state": state.value}) + "\n")
        await asyncio.sleep(_LOOK_S)
