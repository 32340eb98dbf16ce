"""Probes of brokers that may be gone: what fences one, and everything that must not."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from controller_cluster import ControllerCluster

from ottla.controller.active_controller import Decide, Moment
from ottla.controller.broker_liveness import Liveness
from ottla.controller.broker_probes import PAUSE_MS_MAX, ProbeOutcome, ProbeSettings, Probing
from ottla.controller.decision import ControllerState
from ottla.controller.probe_loop import BrokerProbes, ProbeParts
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.faults import NotController
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.ports import Address
from simulation.clock import SimClock
from simulation.loop import run_simulated

ANSWERED, REFUSED, UNANSWERED = ProbeOutcome.ANSWERED, ProbeOutcome.REFUSED, ProbeOutcome.UNANSWERED
SESSION_MS = 9_000
OWN = 1
PEER = Address("10.0.0.9", 4000)


# -- the rule --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "is_gone"),
    [
        ([REFUSED, REFUSED], True),
        ([REFUSED], False),
        ([REFUSED, ANSWERED, REFUSED], False),
        ([REFUSED, UNANSWERED, REFUSED], False),
        ([ANSWERED, UNANSWERED, REFUSED, REFUSED], True),
        ([UNANSWERED] * 20, False),
    ],
    ids=["two", "one", "answered between", "no answer between", "two at last", "never an answer"],
)
def test_broker_is_gone_after_two_refusals_in_a_row(
    outcomes: Sequence[ProbeOutcome], is_gone: bool
) -> None:
    probing = Probing(ProbeSettings())
    results = [probing.record(outcome) for outcome in outcomes]
    assert results[-1] is is_gone
    assert not any(results[:-1])


def test_pauses_grow_while_probes_prove_nothing_and_stay_bounded() -> None:
    probing = Probing(ProbeSettings(interval_ms=50))
    pauses = []
    for _ in range(8):
        probing.record(ANSWERED)
        pauses.append(probing.pause_ms)
    assert pauses == [50, 100, 200, 400, 800, PAUSE_MS_MAX, PAUSE_MS_MAX, PAUSE_MS_MAX]
    probing.record(REFUSED)
    assert probing.pause_ms == 50


# -- the service -----------------------------------------------------------------------------


class Transport:
    def close(self) -> None:
        pass


@dataclass
class World:
    """Two brokers, 0 and 1; the controller is node 1. ``port`` is called for every connection."""

    port: Callable[[], Awaitable[None]]
    cluster: ControllerCluster = field(default_factory=lambda: ControllerCluster(2))
    liveness: Liveness = field(default_factory=lambda: Liveness(SESSION_MS))
    clock: SimClock = field(default_factory=lambda: SimClock(asyncio.get_running_loop()))
    dialled: list[int] = field(default_factory=list)
    is_active: bool = True
    fenced_at: Millis | None = None

    def parts(self) -> ProbeParts:
        return ProbeParts(
            node_id=OWN,
            controller=self,
            liveness=self.liveness,
            decisions=self.cluster.settings,
            network=self,  # type: ignore[arg-type]
            clock=self.clock,
            address_of=lambda image, broker_id: Address("host", broker_id),
            listeners={"CONTROLLER"},
        )

    async def submit(self, decide: Decide[Any]) -> None:
        if not self.is_active:
            raise NotController("another node leads")
        now = self.clock.monotonic()
        state = ControllerState.of(self.cluster.image)
        moment = Moment(state, now, now, now, Offset(1), LeaderEpoch(1))
        if decide(moment).records:
            self.fenced_at = now

    async def dial(self, address: Address, connect: object) -> tuple[Transport, object]:
        self.dialled.append(address.port)
        await self.port()
        return Transport(), object()


def play(
    story: Callable[[World, BrokerProbes], Awaitable[None]], port: Callable[[], Awaitable[None]]
) -> None:
    """Run a story in virtual time, with the service beside it; brokers have just been unfenced."""

    async def main() -> None:
        world = World(port)
        probes = BrokerProbes(world.parts())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(probes.run(lambda: None))
            publish(probes, world.cluster.image)
            await asyncio.sleep(0.5)
            await story(world, probes)
            running.cancel()

    run_simulated(main())


def publish(probes: BrokerProbes, image: Image) -> None:
    probes.on_image(delta_between(EMPTY, image), image)


def beat(world: World) -> None:
    epoch = world.cluster.image.cluster.broker_epoch(0)
    connection = ("CONTROLLER", PEER)
    world.liveness.touch(0, epoch, Offset(0), world.clock.monotonic(), connection)


def lead(world: World, probes: BrokerProbes) -> None:
    world.liveness.seed(world.cluster.image, world.clock.monotonic())
    probes.parts.wake.set()


class Listening:
    """A port that answers until it is closed."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    async def __call__(self) -> None:
        if self.error is not None:
            raise self.error


def test_broker_whose_process_is_gone_is_fenced_at_once() -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        await asyncio.sleep(1)
        began = world.clock.monotonic()
        port.error = ConnectionRefusedError()
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(1)
        assert world.fenced_at is not None
        assert world.fenced_at - began <= 100
        assert (probes.counts.refused, probes.counts.fenced) == (2, 1)

    play(story, port)


def test_new_controller_fences_a_broker_that_failed_with_the_old_one() -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        port.error = ConnectionRefusedError()
        began = world.clock.monotonic()
        lead(world, probes)
        await asyncio.sleep(1)
        assert world.fenced_at is not None
        assert world.fenced_at - began <= 100
        assert OWN not in world.dialled

    play(story, port)


@pytest.mark.parametrize(
    "error",
    [
        None,
        TimeoutError(),
        ConnectionResetError(),
        OSError(113, "no route to host"),
        OSError("name not resolved"),
    ],
    ids=["answers", "time-out", "reset", "no route", "no name"],
)
def test_no_other_outcome_than_refusal_fences_before_the_session_expires(
    error: OSError | None,
) -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        port.error = error
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(SESSION_MS / 1000 + 5)
        assert world.fenced_at is None
        # Bounded while suspected, and over with the session.
        assert 5 < len(world.dialled) < 25
        count = len(world.dialled)
        await asyncio.sleep(60)
        assert len(world.dialled) == count

    play(story, port)


def test_probe_without_an_answer_is_bounded_and_proves_nothing() -> None:
    is_stuck = False

    async def dial() -> None:
        if is_stuck:
            await asyncio.sleep(1000)

    async def story(world: World, probes: BrokerProbes) -> None:
        nonlocal is_stuck
        lead(world, probes)
        beat(world)
        is_stuck = True
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(5)
        assert probes.counts.unanswered >= 2
        assert world.fenced_at is None

    play(story, dial)


def test_broker_that_sends_a_heartbeat_during_the_probe_keeps_its_session() -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        port.error = ConnectionRefusedError()
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(0.03)
        assert probes.counts.refused == 1
        beat_over_another_connection(world)
        await asyncio.sleep(SESSION_MS / 1000 - 1)
        assert world.fenced_at is None
        epoch = world.cluster.image.cluster.broker_epoch(0)
        assert world.liveness.has_session(0, epoch, world.clock.monotonic())

    play(story, port)


def beat_over_another_connection(world: World) -> None:
    epoch = world.cluster.image.cluster.broker_epoch(0)
    connection = ("CONTROLLER", Address(PEER.host, PEER.port + 1))
    world.liveness.touch(0, epoch, Offset(0), world.clock.monotonic(), connection)


def test_restart_between_two_probes_keeps_the_session() -> None:
    """The new process opens its port between two probes: that is an answer."""
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        port.error = ConnectionRefusedError()
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(0.03)
        port.error = None
        await asyncio.sleep(SESSION_MS / 1000)
        assert world.fenced_at is None
        assert probes.counts.refused == 1

    play(story, port)


def test_stopping_process_that_closes_its_connection_before_its_port_is_fenced() -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(0.03)
        port.error = ConnectionRefusedError()
        await asyncio.sleep(0.2)
        assert world.fenced_at is not None

    play(story, port)


def test_refusals_of_an_address_that_never_answered_prove_nothing() -> None:
    """A firewall rejects, or the address is that of another network."""

    async def refuse() -> None:
        raise ConnectionRefusedError

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        probes.on_connection_closed("CONTROLLER", PEER)
        await asyncio.sleep(SESSION_MS / 1000 + 1)
        assert world.fenced_at is None
        assert probes.counts.refused == 0
        assert probes.counts.unproven > 0

    play(story, refuse)


def test_clients_connections_start_no_probe() -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        lead(world, probes)
        beat(world)
        await asyncio.sleep(1)
        count = len(world.dialled)
        probes.on_connection_closed("PLAINTEXT", PEER)
        await asyncio.sleep(1)
        assert len(world.dialled) == count

    play(story, port)


def test_controller_that_lost_its_leadership_stops_probing() -> None:
    port = Listening()

    async def story(world: World, probes: BrokerProbes) -> None:
        world.is_active = False
        port.error = ConnectionRefusedError()
        lead(world, probes)
        await asyncio.sleep(1)
        count = len(world.dialled)
        await asyncio.sleep(5)
        assert len(world.dialled) == count
        assert world.fenced_at is None

    play(story, port)
