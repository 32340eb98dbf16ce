"""Detects stale EndTxn requests of clients before transaction version 2. Pure.

Before transaction version 2 all transactions of a producer share its epoch. An EndTxn that was
delayed, and repeated meanwhile over another connection, would end the next transaction of the
producer: half of it committed, or the wrong one aborted.

A client uses one connection to its coordinator at a time; after it has switched to another, only
stale requests arrive on the old one. So the connections of a producer are remembered in the order
of use, and an EndTxn over an abandoned one is answered CONCURRENT_TRANSACTIONS. No client reads the
reply to a stale request. A client that does use several connections retries, and then is accepted:
the connection is evidently in use.
"""

from typing import Final, NamedTuple

CONNECTIONS_MAX: Final = 8
"""How many abandoned connections are remembered per producer."""

IDS_MAX: Final = 100_000
"""How many transactional ids are remembered; above that the oldest one is dropped."""


class Client(NamedTuple):
    """The transaction version of a client and, where it matters, its connection."""

    version: int
    connection: str = ""


class ProducerConnections(NamedTuple):
    """The connections of one producer id and epoch: the current one, and the abandoned ones."""

    producer: tuple[int, int]
    current: str
    left: tuple[str, ...] = ()

    def now(self, connection: str) -> "ProducerConnections":
        """Return the connections after a request over ``connection``."""
        if connection == self.current:
            return self
        left = (*self.without(connection).left, self.current)
        return ProducerConnections(self.producer, connection, left[-CONNECTIONS_MAX:])

    def without(self, connection: str) -> "ProducerConnections":
        """Return the connections if ``connection`` is in use after all."""
        return self._replace(left=tuple(each for each in self.left if each != connection))


class StaleEndTxnDetector:
    """The connections of all producers of a broker, shared by all shards.

    A shard that is unloaded and loaded again finds it unchanged, because the connections are still
    open. Another coordinator, or this one after a restart, has connections of its own: stale
    requests to this one never reach it.
    """

    def __init__(self) -> None:
        self._speaking: dict[str, ProducerConnections] = {}

    def request_received(
        self, transactional_id: str, producer: tuple[int, int], client: Client
    ) -> None:
        """Note that a producer has sent a request in its transaction."""
        if client.connection:
            known = self._speaking.get(transactional_id)
            if known is None and len(self._speaking) >= IDS_MAX:
                del self._speaking[next(iter(self._speaking))]
            if known is None or known.producer != producer:
                known = ProducerConnections(producer, client.connection)
            self._speaking[transactional_id] = known.now(client.connection)

    def is_late(self, transactional_id: str, producer: tuple[int, int], client: Client) -> bool:
        """Whether an EndTxn came over an abandoned connection; True only once per connection."""
        known = self._speaking.get(transactional_id)
        if known is None or known.producer != producer or client.connection not in known.left:
            return False
        self._speaking[transactional_id] = known.without(client.connection)
        return True

    def forget(self, transactional_id: str) -> None:
        """Remove an id."""
        self._speaking.pop(transactional_id, None)
