"""The scenario ``share-steps``: a fault between every two steps of a record's delivery.

Two consumers of a share group fetch records that a producer writes all the time. One of them is
watched from its fetch to the reply to its acknowledgement; the other accepts, releases, rejects,
hoards, or does nothing until its locks expire. At the end everything is repaired, and every record
must become finished.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ottla.coordinators.share_state.state import ShareState
from ottla.coordinators.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from ottla.node.broker.share_services import ShareServices
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.sharing.acquisition import AckType, Acquisition
from ottla.sharing.spans import RecordState
from simulation.cluster_client import ClusterClient, ClusterProducer
from simulation.cluster_node import Machine
from simulation.cluster_watch import TOPIC
from simulation.coordinator_steps import NODES, STEP_S, Case, SteppedScenario
from simulation.share_consumer import (
    DELIVERIES_MAX,
    GROUP,
    IN_FLIGHT_MAX,
    INDEX,
    LOCK_MS,
    ShareConsumer,
    ShareWatch,
)
from simulation.simulation import Main, Ports, Simulation

WATCHED: Final = "fay"
OTHER: Final = "gus"
PRODUCER: Final = "ann"
OF_GROUP: Final = 32
# One of this many records cannot be processed: it is delivered as often as allowed.
POISON_ONE_IN: Final = 9

STEPS: Final = (
    "fetch requested",
    "acquired",
    "delivered",
    "acknowledgement sent",
    "answer taken",
    "answer written",
    "answer committed",
    "acknowledgement answered",
)
FAULTS: Final = {
    "worker": STEPS,
    "coordinator": STEPS,
    "leader": STEPS,
    "deposed": STEPS[3:],
    "leader moved": STEPS,
}
"""At which steps each fault falls."""

SETTINGS: Final = f"""
group.share.delivery.count.limit={DELIVERIES_MAX}
group.share.partition.max.record.locks={IN_FLIGHT_MAX}
group.share.record.lock.duration.ms={LOCK_MS}
group.share.min.record.lock.duration.ms={LOCK_MS}
group.share.session.timeout.ms=2000
group.share.min.session.timeout.ms=500
group.share.heartbeat.interval.ms=200
group.share.min.heartbeat.interval.ms=50
share.coordinator.write.timeout.ms=600
"""


async def share_steps(simulation: Simulation) -> None:
    """Every record is finished once, whatever crashes during its delivery."""
    await ShareStepsScenario(simulation).run()


class ShareStepsScenario(SteppedScenario):
    """Inject a fault at each step of the watched consumer's rounds."""

    topic = SHARE_GROUP_STATE
    topics = (TOPIC, CONSUMER_OFFSETS, SHARE_GROUP_STATE)
    workers = (WATCHED,)

    def __init__(self, simulation: Simulation, faults: Iterable[str] = FAULTS) -> None:
        super().__init__(simulation, SETTINGS)
        self.shares = ShareWatch()
        self._faults = tuple(faults)
        self.shares.is_kept = not {"coordinator", "deposed", "moved"} & set(self._faults)
        self._starts = 0
        self._consumer: ShareConsumer | None = None
        self._is_configured = asyncio.Event()
        self._is_strict = False  # no record is left without acknowledgement any more

    def cases(self) -> Sequence[Case]:
        """Return every fault at every step."""
        return [(fault, step) for fault in self._faults for step in FAULTS[fault]]

    def begin_work(self) -> None:
        """Set the group's start offset to the earliest; start the producer and the consumers."""
        self.simulation.host("configurer").start(self._configure)
        self._start_client(PRODUCER, ClusterProducer)
        for name in (WATCHED, OTHER):
            self.simulation.host(name).start(self._main(name))

    async def _configure(self, ports: Ports) -> None:
        client = ClusterClient("configurer", ports, self.watch, NODES)
        wanted = [AlterableConfig("share.auto.offset.reset", 0, "earliest")]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(OF_GROUP, GROUP, wanted)])
        while True:
            response = await client.ask(client.anybody(), request)
            if isinstance(response, IncrementalAlterConfigsResponse):
                self._is_configured.set()
                return
            await asyncio.sleep(STEP_S)

    def _main(self, name: str) -> Main:
        async def run(ports: Ports) -> None:
            await self._is_configured.wait()
            self._starts += 1
            consumer = ShareConsumer(name, ports, self.watch, self.shares, self._starts)
            if name == WATCHED:
                self._consumer = consumer
            await consumer.run(self._chooser(name, ports), self._leads)

        return run

    def _leads(self, node_id: int) -> bool:
        return self.leader_of(TOPIC, INDEX) == node_id

    def _chooser(self, name: str, ports: Ports) -> Callable[[int], AckType | None]:
        """Return how a consumer acknowledges: the watched one accepts what it can process."""

        def choose(offset: int) -> AckType | None:
            draw = ports.random.fraction()
            if offset % POISON_ONE_IN == 0:
                return AckType.RELEASE if draw < 0.8 else None
            if name == WATCHED or self._is_strict or draw < 0.5:
                return AckType.ACCEPT
            if draw < 0.7:
                return AckType.RELEASE
            return AckType.REJECT if draw < 0.8 else None

        return choose

    # -- looking ---------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], when: str, step_s: float = STEP_S) -> None:
        """Wait for a condition that must come true, checking everything meanwhile."""

        def look_first() -> bool:
            if self._image().topics.named(SHARE_GROUP_STATE) is not None:
                self.look()
            return condition()

        await super().until(look_first, when, step_s)

    def look(self) -> None:
        """Compare the durable state with the state before, and count the records in flight."""
        for machine in self._up():
            window = self._window(machine)
            if window is not None:
                self.shares.look_at_window(window)
        state = self._state(is_committed=True)
        if state is not None:
            self.shares.look_at_state(state)

    def _share_services(self, machine: Machine) -> ShareServices | None:
        services = None if machine.node is None else machine.node.coordinators
        return None if services is None else services.shares

    def _window(self, machine: Machine) -> Acquisition | None:
        services = self._share_services(machine)
        for window in [] if services is None else services.handlers.sources.partitions.windows():
            if window.key.place.partition == INDEX and window.is_current:
                return window.acquisition
        return None

    def _state(self, *, is_committed: bool) -> ShareState | None:
        """Return the share coordinator's state, if everything in its log is committed."""
        shard = self.newest_shard()
        if shard is None or not shard.is_caught_up:
            return None
        states: Any = shard.committed() if is_committed else shard.machine.states
        for key, state in states.items():
            if key.group_id == GROUP and key.partition == INDEX:
                assert isinstance(state, ShareState)
                return state
        return None

    def runtime_of(self, machine: Machine) -> Any:  # noqa: ANN401 - as declared
        """Return the runtime of share state."""
        services = self._share_services(machine)
        assert services is not None
        return services.state_handlers.coordinator.runtime

    # -- how far it has come ---------------------------------------------------

    def has_reached(self, step: str) -> bool:
        """Say whether the watched consumer's round has reached a step."""
        consumer = self._consumer
        if consumer is None or "fetch requested" not in consumer.reached:
            return False
        if step in (
            "fetch requested",
            "delivered",
            "acknowledgement sent",
            "acknowledgement answered",
        ):
            return step in consumer.reached
        if step == "acquired":
            return self._has_spans(consumer, RecordState.ACQUIRED)
        if "acknowledgement sent" not in consumer.reached:
            return False
        if step == "answer taken":
            return not self._has_spans(consumer, RecordState.ACQUIRED)
        state = self._state(is_committed=step.endswith("committed"))
        return state is not None and all(_is_finished(state, *held) for held in consumer.held)

    def _has_spans(self, consumer: ShareConsumer, wanted: RecordState) -> bool:
        leader = self.leader_of(TOPIC, INDEX)
        window = self._window(self.machines[leader - 1]) if leader > 0 else None
        spans = () if window is None else window.spans()
        return any(each.member == consumer.member_id and each.state is wanted for each in spans)

    # -- what must come of it --------------------------------------------------

    def victim(self, fault: str) -> str:
        """Return the watched consumer."""
        return WATCHED

    def slow_node(self) -> int:
        """Return the former leader: it continues, and may still write state."""
        return self.leader_of(TOPIC, INDEX)

    def other_place(self) -> tuple[str, int]:
        """Return the shared partition."""
        return (TOPIC, INDEX)

    async def settle(self, case: Case) -> None:
        """Wait until more records are durably finished, some of them by the watched consumer."""
        done = len(self.shares.finished)
        await self.until(lambda: len(self.shares.finished) > done + 2, f"after {case}")

    async def finish(self) -> None:
        """Wait until all written records are finished."""
        await self.until(lambda: not self.simulation.host(PRODUCER).is_up, "with the last records")
        self._is_strict = True
        await self.until(self._is_done, "with the last records of the group")
        self.watch.is_drained = True
        hosts = [self.simulation.host(name) for name in (WATCHED, OTHER)]
        await self.until(lambda: not any(host.is_up for host in hosts), "in ending")
        self.look()

    def _is_done(self) -> bool:
        partition = self.led(TOPIC, INDEX)
        return partition is not None and self.shares.start == int(partition.log.high_watermark)


def _is_finished(state: ShareState, first: int, last: int) -> bool:
    if last < state.start_offset:
        return True
    runs = [run for run in state.runs if run.first <= last and run.last >= first]
    return bool(runs) and all(RecordState(run.state).is_finished for run in runs)
