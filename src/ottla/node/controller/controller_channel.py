"""The connection from this node to the active controller.

One connection to one controller, opened when needed, closed when it fails or when the controller
answers that it is not active. A request is retried until it is answered or times out; it may then
have been served more than once, or once without a response, as with any client.
Requests for which that matters carry an id: see `ottla.controller.decide_once`. The others are
requests of this node itself, and serving one twice is harmless: registrations and directory
assignments are idempotent, AlterPartition names the partition epoch that it changes, and an unused
block of producer ids is lost.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ottla.client.connection import Connection, Options
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, RequestTimedOut
from ottla.protocol.schema import Message
from ottla.raft.core.view import QuorumView
from ottla.runtime.ports import Address, Network

log = logging.getLogger(__name__)

# At start, the own controller is about to become active; after that, retries slow down.
RETRY_MS_MIN: Final = 5
RETRY_MS_MAX: Final = 50
CONNECT_MS_MAX: Final = 2_000
_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})


def client_id(node_id: int) -> str:
    """Return the client id of a node's requests to the active controller."""
    return f"ottla-node-{node_id}"


class LeaderView(Protocol):
    """Returns the address of the leader of the quorum."""

    def __call__(self) -> Address | None:
        """Return the controller listener of the leader; None while no leader is known."""
        ...


def leader_address(
    view: QuorumView, image: Image, listener: str, static: Callable[[int], Address | None]
) -> Address | None:
    """Return the leader's address: from the voters, else from its registration, else ``static``."""
    if view.leader_id is None:
        return None
    voter = view.voters.get(view.leader_id)
    endpoint = None if voter is None else voter.endpoint(listener)
    if endpoint is not None:
        return Address(endpoint.host, endpoint.port)
    registered = image.cluster.controllers.get(view.leader_id)
    at = None if registered is None else registered.listeners.get(listener)
    return static(view.leader_id) if at is None else Address(at.host, at.port)


class _Line(msgspec.Struct):
    address: Address
    connection: Connection


class ControllerChannel:
    """Sends requests to the active controller, many at a time over one connection."""

    def __init__(
        self, network: Network, leader: LeaderView, client_id: str, options: Options | None = None
    ) -> None:
        self._network = network
        self._leader = leader
        self._client_id = client_id
        self._options = options or Options(connect_timeout_ms=CONNECT_MS_MAX)
        self._line: _Line | None = None
        self._opening = asyncio.Lock()

    async def ask(
        self, request: Message, timeout_ms: int, resend: Message | None = None
    ) -> Message:
        """Return the response of the active controller.

        ``resend`` is sent instead once an earlier attempt may have reached a controller.

        Raises:
            RequestTimedOut: none was found, or none answered, in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        reason = "no active controller is known"
        retry_ms = RETRY_MS_MIN
        while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
            try:
                async with asyncio.timeout(left_ms / 1000):
                    line = await self._connect()
                    if line is not None:
                        attempt, request = request, resend or request
                        response: Message = await line.connection.send(attempt, timeout_ms=left_ms)
                        if getattr(response, "error_code", 0) not in _MOVED:
                            return response
                        reason = f"{line.address} is not the active controller"
            except (OSError, Fault) as error:
                reason = str(error)
                self._drop()
            await asyncio.sleep(min(retry_ms, max(1, left_ms)) / 1000)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
        raise RequestTimedOut(f"active controller: {reason}")

    async def _connect(self) -> _Line | None:
        """Return a connection to the current leader; one to an older leader is closed."""
        async with self._opening:
            address = self._leader()
            line = self._line
            if line is not None and (line.address != address or not line.connection.is_open):
                self._line = None
                await line.connection.close()
            if address is not None and self._line is None:
                connection = await Connection.open(
                    self._network, address, client_id=self._client_id, options=self._options
                )
                self._line = _Line(address, connection)
            return self._line

    def _drop(self) -> None:
        """Forget a closed connection, so that the next attempt looks for the leader again."""
        line = self._line
        if line is not None and not line.connection.is_open:
            self._line = None

    async def close(self) -> None:
        """Close the connection."""
        line, self._line = self._line, None
        if line is not None:
            await line.connection.close()
