"""Probes suspected brokers, so that one whose process is gone is fenced at once.

The rules are in `ottla.controller.broker_probes`. Every controller, active or not, also dials each
unfenced broker once: only from an address that has answered is a refusal evidence. A broker has at
most one task here, which first waits until its address has answered and then, on the active
controller, probes it while it is suspected.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

import msgspec

from ottla.controller.active_controller import Decide, Moment
from ottla.controller.broker_liveness import Liveness, Suspicion
from ottla.controller.broker_probes import ProbeOutcome, ProbeSettings, Probing, decide_gone
from ottla.controller.decision import Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.faults import NotController, RequestTimedOut
from ottla.runtime.ports import Address, Clock, Network

log = logging.getLogger(__name__)

# Probes in progress at once: a new controller of a large cluster suspects every broker.
PROBES_MAX: Final = 32
# The pause between attempts to reach a broker that has never answered: doubled up to the maximum.
CONFIRM_MS_MIN: Final = 100
CONFIRM_MS_MAX: Final = 30_000


class DecidingController(Protocol):
    """The part of the controller that fencing needs."""

    async def submit(self, decide: Decide[Any]) -> Any:  # noqa: ANN401 - the decision's own reply
        """Decide, write, and return the reply once it is committed and applied."""
        ...


class ProbeCounts(msgspec.Struct):
    """The probes of suspected brokers by outcome, and the brokers fenced because of them.

    ``unproven`` counts suspicions of brokers whose address has never answered this controller.
    """

    answered: int = 0
    refused: int = 0
    unanswered: int = 0
    unproven: int = 0
    fenced: int = 0


class ProbeParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the service. ``address_of`` returns where a broker of an image is dialled.

    ``listeners`` are the names of the controller listeners. ``node_id`` is never probed: if that
    process were gone, so would be the one that asks.
    """

    node_id: int
    controller: DecidingController
    liveness: Liveness
    decisions: DecisionSettings
    network: Network
    clock: Clock
    address_of: Callable[[Image, int], Address | None]
    listeners: Collection[str]
    settings: ProbeSettings = ProbeSettings()
    wake: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when a new leadership has suspected every broker."""


class BrokerProbes(msgspec.Struct, eq=False):
    """`Service` and `Publisher`: see the module."""

    parts: ProbeParts
    counts: ProbeCounts = msgspec.field(default_factory=ProbeCounts)
    name: str = "broker-probes"
    _image: Image = EMPTY
    _answered: dict[int, Address] = msgspec.field(default_factory=dict)
    """The address of each broker that has answered this process."""
    _busy: set[int] = msgspec.field(default_factory=set)
    _room: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(PROBES_MAX))

    # -- notifications -------------------------------------------------------------

    def on_image(self, delta: Delta, image: Image) -> None:
        """Dial brokers that registered or were unfenced."""
        self._image = image
        if delta.brokers:
            for broker_id in [id for id in self._answered if id not in image.cluster.brokers]:
                del self._answered[broker_id]
            self.parts.wake.set()

    def on_connection_closed(self, listener: str, peer: Address) -> None:
        """Probe the broker whose heartbeats came over a connection that has closed."""
        if listener in self.parts.listeners and self.parts.liveness.connection_closed(
            (listener, peer)
        ):
            self.parts.wake.set()

    # -- the service ---------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Probe until cancelled."""
        ready()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self.parts.wake.clear()
                for suspicion in self.parts.liveness.suspicions():
                    self._begin(tasks, suspicion.broker_id)
                for broker in self._image.cluster.unfenced():
                    if self._answered.get(broker.id) != self._address(broker.id):
                        self._begin(tasks, broker.id)
                await self.parts.wake.wait()

    def _begin(self, tasks: asyncio.TaskGroup, broker_id: int) -> None:
        if broker_id != self.parts.node_id and broker_id not in self._busy:
            self._busy.add(broker_id)
            tasks.create_task(self._watch(broker_id), name=f"probe broker {broker_id}")

    def _address(self, broker_id: int) -> Address | None:
        return self.parts.address_of(self._image, broker_id)

    async def _watch(self, broker_id: int) -> None:
        """Confirm the address of a broker, then probe it while it is suspected."""
        try:
            await self._confirm(broker_id)
            while (suspicion := self._suspicion(broker_id)) is not None:
                await self._probe(suspicion)
        finally:
            self._busy.discard(broker_id)

    def _suspicion(self, broker_id: int) -> Suspicion | None:
        """Return the current suspicion of a broker."""
        live, now = self.parts.liveness, self.parts.clock.monotonic()
        return next(
            (
                each
                for each in live.suspicions()
                if each.broker_id == broker_id and live.is_suspected(each, now)
            ),
            None,
        )

    async def _confirm(self, broker_id: int) -> None:
        """Dial an unfenced broker until its address has answered once."""
        pause_ms = CONFIRM_MS_MIN
        while (address := self._address(broker_id)) is not None:
            if address == self._answered.get(broker_id):
                return
            if not self._image.cluster.is_unfenced(broker_id):
                return
            if await self._dial(address) is ProbeOutcome.ANSWERED:
                self._answered[broker_id] = address
                return
            self.counts.unproven += self._suspicion(broker_id) is not None
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, CONFIRM_MS_MAX)

    async def _probe(self, suspicion: Suspicion) -> None:
        """Probe a broker until it is disproved, proved to be gone, or its session has expired."""
        parts, broker_id = self.parts, suspicion.broker_id
        probing = Probing(parts.settings)
        while parts.liveness.is_suspected(suspicion, parts.clock.monotonic()):
            address = self._address(broker_id)
            if address is None or address != self._answered.get(broker_id):
                return parts.liveness.acquit(suspicion)
            outcome = await self._dial(address)
            self._count(outcome)
            if probing.record(outcome):
                log.warning(
                    "broker's process is gone, fencing it broker=%d address=%s", broker_id, address
                )
                return await self._fence(suspicion)
            await asyncio.sleep(probing.pause_ms / 1000)

    async def _fence(self, suspicion: Suspicion) -> None:
        parts = self.parts

        def decide(moment: Moment) -> Decision[None]:
            decision = decide_gone(moment, suspicion, parts.liveness, parts.decisions)
            self.counts.fenced += bool(decision.records)
            return decision

        try:
            await parts.controller.submit(decide)
        except NotController as error:
            log.info("broker not fenced broker=%d reason=%s", suspicion.broker_id, error)
            parts.liveness.acquit(suspicion)
        except RequestTimedOut as error:
            log.info("fencing postponed broker=%d reason=%s", suspicion.broker_id, error)
            await asyncio.sleep(parts.settings.interval_ms / 1000)

    async def _dial(self, address: Address) -> ProbeOutcome:
        """Dial an address and close the connection. Nothing is sent, so TLS makes no difference."""
        async with self._room:
            try:
                async with asyncio.timeout(self.parts.settings.timeout_ms / 1000):
                    transport, _ = await self.parts.network.dial(address, asyncio.Protocol)
            except ConnectionRefusedError:
                return ProbeOutcome.REFUSED
            except OSError:
                return ProbeOutcome.UNANSWERED
            transport.close()
            return ProbeOutcome.ANSWERED

    def _count(self, outcome: ProbeOutcome) -> None:
        counts = self.counts
        setattr(counts, outcome.value, getattr(counts, outcome.value) + 1)
