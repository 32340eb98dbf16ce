"""Runs unclean recovery: polls live replicas for their logs, elects the most complete one.

Partitions that lost every complete replica have no leader in the newest state: that state is the
queue, with each partition in it once. A failover does not wait for recovery; an image with a
leaderless partition wakes this service, and so does a timer, since a topic may allow unclean
election later. A client that requested an election waits for its own result (`find`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from ottla.controller.active_controller import Decide, Moment
from ottla.controller.decision import ControllerState, Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.unclean_recovery import (
    LeaderlessPartition,
    LogState,
    Recovery,
    decide_recoveries,
    leaderless_among,
    partitions_to_recover,
    poll_batches,
    polls_by_broker,
    recoveries,
)
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.topics import LeaderRecoveryState
from ottla.protocol.faults import NotController, RequestTimedOut
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import PartitionChangeRecord
from ottla.protocol.types import TopicIdPartition

log = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""The pause between two attempts while no replica answers."""

Ask = Callable[
    [int, Sequence[LeaderlessPartition]], Awaitable[dict[TopicIdPartition, LogState] | None]
]


class RecoveringController(Protocol):
    """The part of the controller that recovery needs."""

    @property
    def newest(self) -> ControllerState | None:
        """The newest state; None while this node is not active."""
        ...

    async def submit(self, decide: Decide[Any]) -> Any:  # noqa: ANN401 - the decision's own reply
        """Decide, write, and return the reply once it is committed and applied."""
        ...


class UncleanRecovery(msgspec.Struct, eq=False):
    """`Service` and `Publisher`. ``ask`` gets the log ends of one broker; see `LogPolls`."""

    controller: RecoveringController
    ask: Ask
    settings: DecisionSettings
    interval_ms: int
    name: str = "unclean-recovery"
    elected: int = 0
    """How many partitions got an incomplete leader, since the start."""
    _wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def on_image(self, delta: Delta, image: Image) -> None:
        """Wake up if a partition lost its leader, or if one without a leader may get one."""
        is_more_possible = bool(delta.brokers or delta.configs)
        if is_more_possible or any(
            change.new is not None and not change.new.has_leader()
            for _, change in delta.partitions()
        ):
            self._wake.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Recover partitions while this node is the active controller."""
        ready()
        while True:
            self._wake.clear()
            is_left = await self._round()
            try:
                async with asyncio.timeout((RETRY_MS if is_left else self.interval_ms) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _round(self) -> bool:
        """Recover the partitions of the newest state; return whether to try again soon."""
        state = self.controller.newest
        leaderless = [] if state is None else partitions_to_recover(state, self.settings)
        for portion in poll_batches(leaderless):
            await self._recover(portion)
        return bool(leaderless)

    async def _recover(self, leaderless: Sequence[LeaderlessPartition]) -> None:
        found = recoveries(leaderless, await self._answers(leaderless))

        def decide(moment: Moment) -> Decision[None]:
            decision = decide_recoveries(moment.image, found, self.settings)
            self.note(moment.image, decision.records)
            return decision

        try:
            await self.controller.submit(decide)
        except (NotController, RequestTimedOut) as error:
            log.info("unclean recovery postponed reason=%s", error)

    def note(self, image: Image, records: Iterable[Versioned]) -> None:
        """Count and log the elections of incomplete leaders among ``records``."""
        for record in records:
            change = record.message
            if not isinstance(change, PartitionChangeRecord) or not _is_unclean(image, change):
                continue
            self.elected += 1
            topic = image.topics.by_id[change.topic_id].name
            log.warning("unclean leader election, records may be lost partition=%s-%d leader=%d",
                        topic, change.partition_id, change.leader)  # fmt: skip

    async def find(
        self, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, Recovery]:
        """Poll the replicas of leaderless partitions; return whom to elect for each."""
        state = self.controller.newest
        if state is None:
            return {}
        found: dict[TopicIdPartition, Recovery] = {}
        for portion in poll_batches(leaderless_among(state.image, partitions, self.settings)):
            found.update(recoveries(portion, await self._answers(portion)))
        return found

    async def _answers(
        self, leaderless: Sequence[LeaderlessPartition]
    ) -> dict[int, dict[TopicIdPartition, LogState]]:
        answers: dict[int, dict[TopicIdPartition, LogState]] = {}

        async def ask(broker_id: int, of: list[LeaderlessPartition]) -> None:
            said = await self.ask(broker_id, of)
            if said is not None:
                answers[broker_id] = said

        async with asyncio.TaskGroup() as tasks:
            for broker_id, of in polls_by_broker(leaderless).items():
                tasks.create_task(ask(broker_id, of))
        return answers


def _is_unclean(image: Image, change: PartitionChangeRecord) -> bool:
    """Return whether a change elects an incomplete leader: it is recovering, or was already."""
    before = image.topics.by_id[change.topic_id].partitions[change.partition_id]
    recovering = LeaderRecoveryState.RECOVERING
    return change.leader >= 0 and (
        change.leader_recovery_state == recovering or before.leader_recovery_state is recovering
    )
