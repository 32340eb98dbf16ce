"""The outside world of one node, all of it in one place."""

import socket
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from ottla.protocol.faults import StorageFailed
from ottla.runtime.allocator import release_free_memory
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.group_commit import GroupCommit
from ottla.runtime.network import TcpNetwork, TcpSettings
from ottla.runtime.ports import Address, Clock, Committer, Disk, Network, Random, Worker
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.worker import InlineWorker, ThreadWorker

Bind = Callable[[Address], Awaitable[socket.socket]]


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is given. ``bind`` is None where ports are known before they are bound."""

    disk: Disk
    clock: Clock
    random: Random
    network: Network
    committer: Callable[[str], Committer]
    bind: Bind | None = None
    worker: Worker = InlineWorker()
    release_memory: Callable[[], Awaitable[None]] | None = None
    """Gives free memory back to the operating system; None where there is nothing to give."""
    sockets: dict[str, socket.socket] = msgspec.field(default_factory=dict)
    """Sockets that somebody else has bound, by listener name; the node takes them over."""


def system_ports(
    tcp: TcpSettings | None = None, sockets: dict[str, socket.socket] | None = None
) -> NodePorts:
    """Return the machine's own; ``sockets`` are bound already, by listener name."""
    network = TcpNetwork(tcp)
    return NodePorts(
        disk=RealDisk(),
        clock=SystemClock(),
        random=SystemRandom(),
        network=network,
        committer=lambda directory: GroupCommit(directory, _failed),
        bind=network.bind,
        worker=ThreadWorker("worker"),
        release_memory=partial(ThreadWorker("memory").run, release_free_memory),
        sockets=sockets or {},
    )


def _failed(error: Exception) -> None:
    """A failed sync ends whoever waits for it with `StorageFailed`; nothing more to do here."""
    assert isinstance(error, Exception | StorageFailed)
