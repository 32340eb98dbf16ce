"""Loads what a node put off at its start, once it serves: in slices, with pauses between them.

A start loads what its first clients need. The rest would be loaded by the first request that needs
it, and that request, with all others on the loop, would wait for dozens of modules. So they are
loaded while nobody waits: a module per slice, packages whose modules know few others first, and
ever slower the more there is to do, as for a follower that has to catch up.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Final

PACKAGES: Final = (
    "ottla.protocol.messages",
    "ottla.protocol.internal",
    "ottla.security",
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
    "ottla.api",
    "ottla.node",
)
# Most modules take less than a millisecond: the loop is left to others for most of the time.
PAUSE_S: Final = 0.002
PAUSE_S_MAX: Final = 0.02
# How much longer the next pause is than the last one was late: what the loop is late, others use.
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
    """Decide for how long to leave the loop to others, by how late the last pause ended."""
    return min(PAUSE_S + _LATE_TIMES * max(0.0, late_s), PAUSE_S_MAX)


def _modules(packages: Iterable[str]) -> Iterator[str]:
    from pkgutil import iter_modules

    for package in packages:
        for found in iter_modules(import_module(package).__path__, f"{package}."):
            yield found.name
