"""One connection to each broker that a coordinator sends requests to, opened when needed."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from ottla.client.connection import Connection, send_over
from ottla.protocol.faults import RequestTimedOut, UnsupportedVersion
from ottla.protocol.schema import Message

Dial: TypeAlias = Callable[[int], Awaitable[Connection]]
"""Opens a connection to a broker; raises OSError, RequestTimedOut, UnsupportedVersion."""

UNREACHABLE: Final = (OSError, RequestTimedOut, UnsupportedVersion)
"""What `BrokerLinks.ask` may raise: it is unknown whether the request was processed."""


class BrokerLinks:
    """Connections by broker id, shared by all callers. A service."""

    name = "broker-links"

    def __init__(self, dial: Dial, timeout_ms: int) -> None:
        self._dial = dial
        self._timeout_ms = timeout_ms
        self._open: dict[int, Connection] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def ask(self, broker: int, request: Message) -> Message:
        """Send a request in the highest version both brokers support and return the reply.

        Raises:
            OSError, RequestTimedOut, UnsupportedVersion: see `UNREACHABLE`.
        """
        return await send_over(partial(self._connection, broker), request, self._timeout_ms)

    async def _connection(self, broker: int) -> Connection:
        async with self._opening.setdefault(broker, asyncio.Lock()):
            found = self._open.get(broker)
            if found is None or not found.is_open:
                found = self._open[broker] = await self._dial(broker)
            return found

    async def run(self, ready: Callable[[], None]) -> None:
        """Keep the connections until cancelled, then close them."""
        ready()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for connection in self._open.values():
                await connection.close()
            self._open.clear()
