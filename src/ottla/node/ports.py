"""The ports of one node: disk, clock, randomness, network, threads."""

import socket
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from ottla.protocol.faults import StorageFailed
from ottla.runtime.allocator import release_free_memory
from ottla.runtime.clock import SystemClock, stopwatch, thread_cpu_s
from ottla.runtime.disk import RealDisk
from ottla.runtime.group_commit import GroupCommit
from ottla.runtime.machine_memory import machine_memory_bytes
from ottla.runtime.network import TcpNetwork, TcpSettings
from ottla.runtime.ports import Address, Clock, Committer, Disk, Network, Random, Worker
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.worker import InlineWorker, ThreadWorker
from ottla.server.throttling import no_stopwatch

Bind = Callable[[Address], Awaitable[socket.socket]]


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of a node. ``bind`` is None where the configured ports are the real ones."""

    disk: Disk
    clock: Clock
    random: Random
    network: Network
    committer: Callable[[str], Committer]
    bind: Bind | None = None
    worker: Worker = InlineWorker()
    release_memory: Callable[[], Awaitable[None]] | None = None
    """Returns free memory to the operating system; None where there is nothing to do."""
    memory_bytes: int | None = None
    """The memory of the machine or container; None leaves anonymous clients without a bound."""
    stopwatch: Callable[[], float] = no_stopwatch
    """Measures request time; the default measures none, so that a simulation is deterministic."""
    thread_cpu_s: Callable[[], float] = no_stopwatch
    """The CPU time of the event loop's thread; the default measures none, for the same reason."""
    sockets: dict[str, socket.socket] = msgspec.field(default_factory=dict)
    """Sockets that the caller has bound, by listener name; the node closes them."""


def system_ports(
    tcp: TcpSettings | None = None, sockets: dict[str, socket.socket] | None = None
) -> NodePorts:
    """Return the real ports of this machine; ``sockets`` are already bound, by listener name."""
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
        memory_bytes=machine_memory_bytes(),
        stopwatch=stopwatch,
        thread_cpu_s=thread_cpu_s,
        sockets=sockets or {},
    )


def _failed(error: Exception) -> None:
    """Do nothing: every waiter for a failed sync gets `StorageFailed`."""
    assert isinstance(error, Exception | StorageFailed)
