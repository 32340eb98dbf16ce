"""Sends requests to the other replicas: one connection each, opened when first needed.

A failed connection is closed and opened again with the next request; the core decides when that is
(``controller.quorum.retry.backoff.ms``). The core waits for at most one request per peer; a few
that it no longer waits for may still be in flight, within their timeout.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ottla.client.connection import Connection, Options, send_over
from ottla.protocol.faults import Fault
from ottla.raft.core.messages import Reply, Request
from ottla.raft.core.voters import Endpoint
from ottla.runtime.ports import Address, Network

log = logging.getLogger(__name__)


class Peers(Protocol):
    """Sends requests to other replicas."""

    async def ask(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return the reply; None if there is none, for whatever other reason than a refusal.

        Raises:
            ConnectionRefusedError: no process listens at the peer's address.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class _Peer(msgspec.Struct):
    """One peer. The lock keeps two requests from opening two connections."""

    opening: asyncio.Lock
    connection: Connection | None = None
    is_down: bool = False


class WirePeers:
    """`Peers` over Kafka's protocol.

    ``options`` may differ per address (TLS names); peers log ``client_id``.
    """

    def __init__(
        self,
        network: Network,
        client_id: str,
        request_timeout_ms: int,
        options: Callable[[Address], Options] = lambda address: Options(),
    ) -> None:
        self._network = network
        self._client_id = client_id
        self._timeout_ms = request_timeout_ms
        self._options = options
        self._peers: dict[Address, _Peer] = {}
        self._is_closed = False

    async def ask(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Send a request and wait for its reply, up to the request timeout.

        Raises:
            ConnectionRefusedError: as `Peers.ask`.
        """
        from ottla.raft import rpc_codec  # a quorum with a single voter sends no requests

        address = Address(endpoint.host, endpoint.port)
        peer = self._peers.setdefault(address, _Peer(asyncio.Lock()))
        try:
            # Connecting or waiting may time out; a request that does closes the connection, so
            # that the next request reconnects to a peer that disappeared.
            connect = partial(self._connect, address, peer)
            message = rpc_codec.to_message(request)
            response = await send_over(connect, message, self._timeout_ms)
            reply = rpc_codec.to_reply(response, endpoint.listener)
        except ConnectionRefusedError as error:
            self._note_down(address, peer, error)
            raise
        except (OSError, Fault) as error:
            self._note_down(address, peer, error)
            return None
        peer.is_down = False
        return reply

    async def _connect(self, address: Address, peer: _Peer) -> Connection:
        async with peer.opening:
            if self._is_closed:
                raise ConnectionError("stopped")
            if peer.connection is None or not peer.connection.is_open:
                options = replace(
                    self._options(address), connect_timeout_ms=max(1, self._timeout_ms)
                )
                peer.connection = await Connection.open(
                    self._network, address, client_id=self._client_id, options=options
                )
            return peer.connection

    def _note_down(self, address: Address, peer: _Peer, error: Exception) -> None:
        """Log a failed peer once, not on each attempt."""
        level = logging.DEBUG if peer.is_down else logging.INFO
        log.log(level, "quorum peer does not answer peer=%s reason=%s", address, error)
        peer.is_down = True

    async def close(self) -> None:
        """Close all connections. No request may follow."""
        self._is_closed = True
        lines, self._peers = list(self._peers.values()), {}
        for peer in lines:
            if peer.connection is not None:
                await peer.connection.close()
