"""Running a command against a cluster: connect, do, and say what went wrong in one line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from ottla.cli.settings_file import fail
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster, NoBroker, Refused
from ottla.config.addresses import BadAddress, parse_host_port
from ottla.protocol.faults import Fault
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom

T = TypeVar("T")


def parse_bootstrap(text: str) -> list[Address]:
    """Read ``host:port,...``; a wrong one is an error of usage."""
    try:
        found = [parse_host_port(each.strip()) for each in text.split(",") if each.strip()]
    except BadAddress as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from error
    if not found:
        raise typer.BadParameter("must name a broker: host:port", param_hint="--bootstrap")
    return [Address(each.host, each.port) for each in found]


def client_ports() -> ClientPorts:
    """Return the real network, clock and randomness."""
    return ClientPorts(TcpNetwork(), SystemClock(), SystemRandom())


def with_cluster(bootstrap: str, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Do ``work`` with a cluster and return what it returns; exit 1 where that fails."""
    addresses = parse_bootstrap(bootstrap)

    async def main() -> T:
        options = ClientOptions(client_id="ottla-cli")
        async with await Cluster.open(client_ports(), addresses, options) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(main())
    except BrokenPipeError:
        raise  # stdout's: whoever reads our answer has gone, the cluster is fine
    except NoBroker as error:
        fail(f"{error}; start one with `ottla up`, or say where it is with --bootstrap")
    except (Refused, Fault, OSError) as error:
        fail(str(error) or type(error).__name__)
