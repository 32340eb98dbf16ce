"""Load the lazy modules of a node once it serves, one at a time with pauses in between.

The start imports what the first clients need. The rest would be imported by the first request that
needs it, which would block the event loop for dozens of modules. So they are imported in advance:
one module at a time, packages with few imports first, and more slowly while the loop is busy, as
when a follower has to catch up.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

PACKAGES: Final = (
    "ottla.protocol.messages",
    "ottla.protocol.internal",
    "ottla.security.sasl",
    "ottla.raft",
    "ottla.controller",
    "ottla.coordinators",
    "ottla.coordinators.groups.consumer.assignors",
    "ottla.coordinators.groups.offsets",
    "ottla.coordinators.groups.epoch_group",
    "ottla.coordinators.groups.classic",
    "ottla.coordinators.groups.consumer",
    "ottla.coordinators.groups.streams",
    "ottla.coordinators.groups.share",
    "ottla.coordinators.groups",
    "ottla.coordinators.transactions",
    "ottla.coordinators.share_state",
    "ottla.sharing",
    "ottla.api.security",
    "ottla.api.surface",
    "ottla.api.partitions",
    "ottla.api.produce",
    "ottla.api.fetch",
    "ottla.api.groups",
    "ottla.api.share",
    "ottla.api.transactions",
    "ottla.api.cluster",
    "ottla.node.metrics",
    "ottla.node.security",
    "ottla.node.controller",
    "ottla.node.broker",
    "ottla.node",
)
# Loaded at the start of a node that has a TLS or SASL listener. With the libraries behind them they
# would cost every other node 13 MB.
FOR_SECURE_NODES: Final = frozenset(
    {
        "ottla.node.security.node_security",
        "ottla.node.security.oauth",
        "ottla.node.security.tls_reload",
    }
)
# Loaded at the start of a node that exports metrics or traces: it needs an HTTP client.
FOR_EXPORTING_NODES: Final = frozenset({"ottla.node.metrics.otlp"})
# Loaded at the start of a node that serves a schema registry: it needs the extra `registry`.
FOR_REGISTRY_NODES: Final = frozenset({"ottla.node.broker.registry"})
# Most modules take less than a millisecond, so the loop is free most of the time.
PAUSE_S: Final = 0.002
PAUSE_S_MAX: Final = 0.02
# The next pause grows by this many times the delay of the last one: the delay is the load.
_LATE_TIMES: Final = 8


async def warm(packages: Iterable[str] = PACKAGES) -> None:
    """Load every module of ``packages`` that is not loaded yet."""
    loop, pause_s = asyncio.get_running_loop(), PAUSE_S
    for name in _modules(packages):
        if name not in sys.modules:
            import_module(name)
            began = loop.time()
            await asyncio.sleep(pause_s)
            pause_s = decide_pause_s(loop.time() - began - pause_s)


def decide_pause_s(late_s: float) -> float:
    """Decide the next pause by how late the last one ended."""
    return min(PAUSE_S + _LATE_TIMES * max(0.0, late_s), PAUSE_S_MAX)


def _modules(packages: Iterable[str]) -> Iterator[str]:
    from pkgutil import iter_modules

    for package in packages:
        for found in iter_modules(import_module(package).__path__, f"{package}."):
            if found.name not in FOR_SECURE_NODES | FOR_EXPORTING_NODES | FOR_REGISTRY_NODES:
                yield found.name
