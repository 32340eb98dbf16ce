"""Common parts of simulated clients of coordinators: lookup and retries."""

import asyncio
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schema import Message
from simulation.cluster_client import EXPECTED, REQUEST_TIMEOUT_MS, ClusterClient
from simulation.coordinator_watch import CoordinatorWatch
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports

FOR_GROUP: Final = 0
FOR_TRANSACTION: Final = 1
PAUSE_S: Final = 0.04

# Another broker coordinates, or this one does not do so yet.
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
AGAIN: Final = EXPECTED | MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}


class CoordinatorClient(ClusterClient):
    """A client of coordinators."""

    watch: CoordinatorWatch

    def __init__(self, name: str, ports: Ports, watch: CoordinatorWatch, nodes: int) -> None:
        super().__init__(name, ports, watch, nodes)
        self._coordinators: dict[tuple[int, str], int] = {}

    def now(self) -> float:
        """Return the time in seconds, from a clock that never jumps."""
        return asyncio.get_running_loop().time()

    async def rest(self) -> None:
        """Wait a moment before the next attempt."""
        await asyncio.sleep(PAUSE_S * (0.5 + self.ports.random.fraction()))

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Message,
        *,
        version: int | None = None,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> Message | None:
        """Return the coordinator's response; None if there was none, or there is no coordinator."""
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            node_id = await self._find(kind, key)
        if node_id is None:
            return None
        response = await self.ask(node_id, request, version=version, timeout_ms=timeout_ms)
        if response is None:
            self._coordinators.pop((kind, key), None)
        return response

    async def _find(self, kind: int, key: str) -> int | None:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        response = await self.ask(self.anybody(), request)
        if not isinstance(response, FindCoordinatorResponse):
            return None
        found = response.coordinators[0]
        if found.error_code:
            self.check(ErrorCode(found.error_code), AGAIN, "FindCoordinator")
            return None
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def moved(self, kind: int, key: str, error: ErrorCode) -> None:
        """Look up the coordinator again, if this error says so."""
        if error in MOVED:
            self._coordinators.pop((kind, key), None)

    def check(self, error: ErrorCode, expected: frozenset[ErrorCode], what: str) -> None:
        """Accept an expected error.

        Raises:
            InvariantBroken: the error must not happen here.
        """
        self.watch.refused += 1
        if error not in expected:
            raise InvariantBroken(f"{self.name} was rejected without reason: {what} {error.name}")
