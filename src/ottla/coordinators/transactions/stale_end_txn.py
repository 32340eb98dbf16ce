"""Tells an end that arrives too late from one that is meant, for clients before version 2. Pure.

Before transaction version 2 all transactions of a producer share its epoch. An EndTxn that was
held up on the way, and repeated meanwhile over another connection, would end whatever transaction
the producer has begun since: half of it committed, or the wrong one aborted.

A client speaks to its coordinator over one connection at a time, and once it has moved on to
another it leaves nothing behind but what is late. So the connections of a producer are remembered
in the order in which they spoke, and an end over one that was left is answered
CONCURRENT_TRANSACTIONS. Nobody hears the answer to a late request. A client that does speak over
several connections asks again, and then is believed: the connection has proved to be alive.
"""

from typing import Final, NamedTuple

CONNECTIONS_MAX: Final = 8
"""How many connections that were left are remembered of one producer."""

IDS_MAX: Final = 100_000
"""How many transactional ids are remembered; then the one that was heard first is forgotten."""


class Client(NamedTuple):
    """Who asks: its transaction version and, where that matters, the connection it asks over."""

    version: int
    connection: str = ""


class ProducerConnections(NamedTuple):
    """The connections of one producer id and epoch: the one it uses, and those it has left."""

    producer: tuple[int, int]
    current: str
    left: tuple[str, ...] = ()

    def now(self, connection: str) -> "ProducerConnections":
        """Return what is known once a connection has spoken."""
        if connection == self.current:
            return self
        left = (*self.without(connection).left, self.current)
        return ProducerConnections(self.producer, connection, left[-CONNECTIONS_MAX:])

    def without(self, connection: str) -> "ProducerConnections":
        """Return what is known if a connection was not left after all."""
        return self._replace(left=tuple(each for each in self.left if each != connection))


class StaleEndTxnDetector:
    """What is known of the connections of a broker's producers, for all of its shards.

    A shard that goes and comes back finds it again, because the connections are still there. A
    coordinator elsewhere, or after a restart, is reached over connections of its own: what is late
    here never gets there.
    """

    def __init__(self) -> None:
        self._speaking: dict[str, ProducerConnections] = {}

    def heard(self, transactional_id: str, producer: tuple[int, int], client: Client) -> None:
        """Note that a producer has said something in its transaction."""
        if client.connection:
            known = self._speaking.get(transactional_id)
            if known is None and len(self._speaking) >= IDS_MAX:
                del self._speaking[next(iter(self._speaking))]
            if known is None or known.producer != producer:
                known = ProducerConnections(producer, client.connection)
            self._speaking[transactional_id] = known.now(client.connection)

    def is_late(self, transactional_id: str, producer: tuple[int, int], client: Client) -> bool:
        """Whether an end comes over a connection that its producer has left; said of it once."""
        known = self._speaking.get(transactional_id)
        if known is None or known.producer != producer or client.connection not in known.left:
            return False
        self._speaking[transactional_id] = known.without(client.connection)
        return True

    def forget(self, transactional_id: str) -> None:
        """Forget an id."""
        self._speaking.pop(transactional_id, None)
