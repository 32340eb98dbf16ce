"""The share coordinator of a broker.

Every method answers for this broker alone. A share partition whose shard is not here raises
`NotCoordinator`, one still being loaded `CoordinatorLoading`.
"""

import msgspec

from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.share_state.machine import ShareStateMachine
from ottla.coordinators.share_state.rules import (
    StateResult,
    StateWrite,
    decide_delete,
    decide_initialize,
    decide_read,
    decide_summary,
    decide_topics_deleted,
    decide_write,
)
from ottla.coordinators.share_state.state import ShareKey
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode


class ShareCoordinator(msgspec.Struct, frozen=True):
    """All share partitions whose state is stored here."""

    runtime: CoordinatorRuntime[ShareStateMachine]

    name: str = "share-coordinator"

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> ErrorCode:
        """Initialize a share partition, or reset it."""
        code: ErrorCode = await self.runtime.write(
            key.coordinator_key(),
            lambda machine, now: decide_initialize(machine, key, state_epoch, start_offset, now),
        )
        return code

    async def read(self, key: ShareKey, leader_epoch: int) -> StateResult:
        """Return the state to a new leader."""
        found: StateResult = await self.runtime.write(
            key.coordinator_key(), lambda machine, now: decide_read(machine, key, leader_epoch, now)
        )
        return found

    async def write(self, key: ShareKey, write: StateWrite) -> ErrorCode:
        """Store a change."""
        code: ErrorCode = await self.runtime.write(
            key.coordinator_key(), lambda machine, now: decide_write(machine, key, write, now)
        )
        return code

    async def delete(self, key: ShareKey) -> ErrorCode:
        """Delete the state of a share partition."""
        code: ErrorCode = await self.runtime.write(
            key.coordinator_key(), lambda machine, now: decide_delete(machine, key)
        )
        return code

    async def summary(self, key: ShareKey) -> StateResult:
        """Return the summary of a share partition's state."""
        found: StateResult = await self.runtime.write(
            key.coordinator_key(), lambda machine, now: decide_summary(machine, key)
        )
        return found

    # -- the image -------------------------------------------------------------

    def on_image(self, delta: Delta, image: Image) -> None:
        """Delete share partitions of deleted topics; the timer for idle ones does the rest."""
        deleted = frozenset(topic.id for topic in delta.deleted_topics())
        if deleted:
            self.runtime.write_to_all(lambda machine, now: decide_topics_deleted(machine, deleted))
