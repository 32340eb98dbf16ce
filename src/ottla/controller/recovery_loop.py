"""Unclean recovery at work: asks live replicas for their logs, has the most complete one elected.

Partitions that lost every complete replica stand without a leader in the newest state: that is the
queue, each of them in it once. Whoever fails over does not wait; an image that shows a partition
without a leader wakes this, and so does time, since a topic may come to allow it later. Whoever
asked for an election by name waits for its own (`find`).
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
"""Between two attempts while nobody answers."""

Ask = Callable[
    [int, Sequence[LeaderlessPartition]], Awaitable[dict[TopicIdPartition, LogState] | None]
]


class RecoveringController(Protocol):
    """What recovery needs of the controller."""

    @property
    def newest(self) -> ControllerState | None:
        """The newest state; None while this node does not decide."""
        ...

    async def submit(self, decide: Decide[Any]) -> Any:  # noqa: ANN401 - the decision's own reply
        """Decide, write, and return the reply once it is committed and applied."""
        ...


class UncleanRecovery(msgspec.Struct, eq=False):
    """`Service` and `Publisher`. ``ask`` gets the logs' ends of one broker; see `LogPolls`."""

    controller: RecoveringController
    ask: Ask
    settings: DecisionSettings
    interval_ms: int
    name: str = "unclean-recovery"
    elected: int = 0
    """How many partitions were given an incomplete leader, since the start."""
    _wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def on_image(self, delta: Delta, image: Image) -> None:
        """Look soon, if a partition has no leader now, or one that has none may get one."""
        is_more_possible = bool(delta.brokers or delta.configs)
        if is_more_possible or any(
            change.new is not None and not change.new.has_leader()
            for _, change in delta.partitions()
        ):
            self._wake.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Recover whatever there is to recover, while this node is the active controller."""
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
        """Recover what stands in the newest state; say whether to look again soon."""
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
            log.info("unclean recovery put off reason=%s", error)

    def note(self, image: Image, records: Iterable[Versioned]) -> None:
        """Count the leaders that records make although they lack some, and tell operators."""
        for record in records:
            change = record.message
            if not isinstance(change, PartitionChangeRecord) or not _is_unclean(image, change):
                continue
            self.elected += 1
            topic = image.topics.by_id[change.topic_id].name
            log.warning("elected uncleanly: records may be lost partition=%s-%d leader=%d",
                        topic, change.partition_id, change.leader)  # fmt: skip

    async def find(
        self, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, Recovery]:
        """Ask the replicas of partitions without a leader; return whom to elect for each."""
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
    """Whether a change elects somebody who lacks records: it has to recover, or had to already."""
    before = image.topics.by_id[change.topic_id].partitions[change.partition_id]
    recovering = LeaderRecoveryState.RECOVERING
    return change.leader >= 0 and (
        change.leader_recovery_state == recovering or before.leader_recovery_state is recovering
    )
