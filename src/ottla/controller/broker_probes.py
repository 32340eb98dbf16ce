"""The rules of probing: when a suspected broker is fenced before its session expires. Pure.

A probe dials the broker's inter-broker listener and closes the connection at once:

    refused     no process listens there: evidence
    answered    the kernel completed the handshake: a process listens, however slow it is
    unanswered  time-out, no route, name not resolved, any other error: no evidence

A broker is gone after two refusals in a row, some time apart, without a heartbeat since the first.
Refusals count only from an address that has answered this controller before: otherwise a firewall
that rejects connections, or an address that is valid only on the broker's own network, would look
like a stopped process. While a broker is suspected it is probed again and again, at growing
intervals: a stopping process closes its connections before its listener, or after it.
"""

import enum
from typing import Final

import msgspec

from ottla.controller.active_controller import Moment
from ottla.controller.broker_liveness import Liveness, Suspicion
from ottla.controller.brokers import decide_fence
from ottla.controller.decision import Decision
from ottla.controller.decision_settings import DecisionSettings

# A process that restarts its listener refuses connections for a moment; one that is gone goes on.
REFUSALS: Final = 2
PAUSE_MS_MAX: Final = 1_000


class ProbeOutcome(enum.Enum):
    """What dialling an address showed."""

    ANSWERED = "answered"
    REFUSED = "refused"
    UNANSWERED = "unanswered"


class ProbeSettings(msgspec.Struct, frozen=True):
    """``ottla.liveness.probe.*``: how long a probe may take, and the pause before the second."""

    timeout_ms: int = 1_000
    interval_ms: int = 50


class Probing(msgspec.Struct):
    """The probes of one suspected broker so far."""

    settings: ProbeSettings
    refusals: int = 0
    """How many of the last probes were refused, in a row."""

    pause_ms: int = 0
    """How long to wait before the next probe."""

    def record(self, outcome: ProbeOutcome) -> bool:
        """Record a probe; return whether the broker is gone.

        The pause doubles with every probe that proves nothing; the second of two refusals comes
        after the shortest one.
        """
        if outcome is ProbeOutcome.REFUSED:
            self.refusals += 1
            self.pause_ms = self.settings.interval_ms
            return self.refusals >= REFUSALS
        self.refusals = 0
        self.pause_ms = min(max(self.settings.interval_ms, 2 * self.pause_ms), PAUSE_MS_MAX)
        return False


def decide_gone(
    moment: Moment, suspicion: Suspicion, liveness: Liveness, settings: DecisionSettings
) -> Decision[None]:
    """Fence a broker whose process is gone, unless it has sent a heartbeat or registered since.

    Its session ends with the decision, so a new incarnation can register at once.
    """
    if not liveness.is_suspected(suspicion, moment.now):
        return Decision([], None)
    liveness.fence(suspicion.broker_id)
    return decide_fence(moment.image, suspicion.broker_id, suspicion.epoch, settings)
