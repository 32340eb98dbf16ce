"""The periodic tasks of the active controller: fence brokers, rebalance leaders, expire tokens.

Each run of a task is one decision. Pure apart from the registry of broker sessions, which lasts as
long as one leadership.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.controller.active_controller import Moment
from ottla.controller.broker_liveness import Liveness
from ottla.controller.brokers import decide_fence
from ottla.controller.decision import Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.rebalance import decide_rebalance

# Kafka checks for expired sessions as often.
TICK_MS: Final = 1_000
NOTHING: Final[Decision[None]] = Decision([], None)


class FenceExpiredBrokers(msgspec.Struct, frozen=True):
    """Fences brokers whose session expired: every second, and again at once while there are more.

    When this node becomes active, every broker of the image counts as just seen: one that only ever
    contacted the previous leader must be able to time out here. Each is also suspected;
    ``on_suspicions`` has them probed.
    """

    liveness: Liveness
    settings: DecisionSettings
    on_suspicions: Callable[[], None] = lambda: None
    name: str = "fence-expired-brokers"
    interval_ms: int = TICK_MS

    def begin(self, moment: Moment) -> None:
        """Start a session for every broker of the image."""
        self.liveness.seed(moment.image, moment.now)
        self.on_suspicions()

    def decide(self, moment: Moment) -> Decision[None]:
        """Fence one broker; the next one is fenced in the next round, based on this one.

        The effect on a partition depends on which brokers were fenced before.
        """
        self.liveness.look(moment.now, self.interval_ms)
        self.liveness.tick(moment.now)
        brokers = moment.image.cluster.brokers
        for broker_id in sorted(brokers):
            broker = brokers[broker_id]
            if not broker.fenced and not self.liveness.has_session(
                broker_id, broker.epoch, moment.now
            ):
                self.liveness.fence(broker_id)
                return decide_fence(moment.image, broker_id, broker.epoch, self.settings)
        return NOTHING


class Rebalance(msgspec.Struct, frozen=True):
    """Moves leadership back to preferred replicas if too many have another leader (KIP-460)."""

    interval_ms: int
    imbalance_percent_max: int
    settings: DecisionSettings
    name: str = "rebalance"

    def begin(self, moment: Moment) -> None:
        """Do nothing: this task keeps no state."""

    def decide(self, moment: Moment) -> Decision[None]:
        """Elect some preferred leaders."""
        return decide_rebalance(moment.state, self.imbalance_percent_max, self.settings)


class RemoveExpiredTokens(msgspec.Struct, frozen=True):
    """Removes expired delegation tokens."""

    interval_ms: int
    name: str = "remove-expired-tokens"

    def begin(self, moment: Moment) -> None:
        """Do nothing: this task keeps no state."""

    def decide(self, moment: Moment) -> Decision[None]:
        """Remove some expired tokens."""
        from ottla.controller import tokens  # first needed an hour after the start

        return tokens.decide_sweep_delegation_tokens(moment.image, moment.expiry)
