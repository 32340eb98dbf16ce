"""The quorum as its controller uses it, with its appends counted."""

from collections.abc import Sequence

import msgspec

from ottla.node.controller.quorum import NodeQuorum
from ottla.observability.quorum_meter import QuorumMeter
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.types import LeaderEpoch, Offset
from ottla.runtime.ports import Clock


class MeteredQuorum(msgspec.Struct, frozen=True):
    """`Quorum` of the controller: counts batches and when they were appended."""

    quorum: NodeQuorum
    meter: QuorumMeter
    clock: Clock

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        """Append records as the leader; return the offset of the first. Raises as the quorum."""
        now = self.clock.monotonic()
        base = await self.quorum.propose(records, epoch)
        self.meter.appended(base + len(records) - 1, len(records), now)
        return base

    def end_offset(self) -> Offset:
        """Return the offset of the next record."""
        return self.quorum.end_offset()

    def resign(self, epoch: LeaderEpoch) -> None:
        """Give up leadership of ``epoch``."""
        self.quorum.resign(epoch)
