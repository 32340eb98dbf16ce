"""Service: deletes the redundant part of ``__share_group_state``.

The topic is not compacted: compaction would keep the newest update without those before it. Instead
everything before the oldest needed snapshot is deleted, if committed. Snapshots of idle share
partitions are rewritten from time to time (`machine.py`), so that one of them does not hold back
all others.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.share_state.machine import ShareStateMachine, redundant_below
from ottla.protocol.faults import Fault
from ottla.protocol.types import Offset

log = logging.getLogger(__name__)


class ShareStatePruning(msgspec.Struct, frozen=True):
    """``delete_below`` deletes records of a partition led here; returns whether there were any.

    ``interval_ms``: ``share.coordinator.state.topic.prune.interval.ms``.
    """

    runtime: CoordinatorRuntime[ShareStateMachine]
    delete_below: Callable[[int, Offset], bool]
    interval_ms: int

    name: str = "share-state-pruning"

    async def run(self, ready: Callable[[], None]) -> None:
        """Prune every shard in turn, until cancelled."""
        ready()
        while True:
            await asyncio.sleep(self.interval_ms / 1000)
            self.prune()

    def prune(self) -> None:
        """Delete what no shard needs any more; a failed deletion is retried next time."""
        for index, shard in list(self.runtime.active()):
            states = shard.committed()
            assert isinstance(states, Mapping)
            # Without any state the whole log is redundant, unless something is not committed yet.
            is_newest = states is shard.machine.view()
            below = redundant_below(states, shard.end if is_newest else Offset(0))
            try:
                if below > 0 and self.delete_below(index, below):
                    log.info("share state pruned shard=%s below=%d", shard.name, below)
            except Fault as fault:
                log.info("share state not pruned shard=%s reason=%s", shard.name, fault)
