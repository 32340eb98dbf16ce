"""One simulated node of the quorum with the real controller and image on top.

Driver, log, image loader, snapshots, controller, its periodic tasks and its handlers are those of a
node, composed as in production. Every replica has them, since any observer may become a voter.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from ottla.api.cluster.config_changes import ControllerConfigChanges
from ottla.api.cluster.controller_decisions import ControllerContext, incremental_alter_configs
from ottla.api.cluster.controller_handlers import ControllerHandlers
from ottla.api.cluster.envelope import with_envelope
from ottla.api.cluster.quorum_requests import RaftHandlers
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Routes
from ottla.controller.active_controller import Controller, ControllerParts, ControllerSettings
from ottla.controller.bootstrap import bootstrap_records, feature_levels, records_for_empty_log
from ottla.controller.broker_liveness import Liveness
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision_settings import settings_of
from ottla.controller.periodic_tasks import FenceExpiredBrokers
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.controller.unclean_recovery import LeaderlessPartition, LogState
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.metadata_versions import LATEST_PRODUCTION
from ottla.metadata.snapshot_policy import SnapshotLimits
from ottla.node.controller.image_loader import Followers, ImageLoader
from ottla.node.controller.quorum import NodeQuorum
from ottla.node.controller.snapshotter import Snapshotter
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.faults import StorageFailed
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import RegisterBrokerRecord
from ottla.protocol.types import TopicIdPartition
from ottla.raft.applier import CommittedBatch
from ottla.raft.core.effects import RoleChanged
from ottla.raft.driver import RaftDriver, RaftParts
from ottla.raft.metadata_log import Retention
from ottla.raft.peers import WirePeers
from ottla.raft.quorum_state_file import QuorumStateFile
from ottla.raft.snapshots import SnapshotReader
from ottla.runtime.ports import Address, Random
from ottla.runtime.supervisor import Service, supervise
from ottla.server.listener import ListenerSpec, Server
from simulation.controller_watch import ControllerWatch
from simulation.quorum_node import (
    CLUSTER,
    CONTROLLER,
    FEATURES,
    LOG_DIR,
    PORT,
    Leaderships,
    Machine,
    directory,
    open_log,
)
from simulation.simulation import Ports

# Topics need a broker to be placed on. No process runs it, so its session outlasts the simulation.
BROKER = RegisterBrokerRecord(
    broker_id=100, incarnation_id=directory(100), fenced=False, rack=None, log_dirs=[directory(200)]
)
SESSION_MS: Final = 10_000_000
IDLE_MS: Final = 900
RECOVERY_MS: Final = 5_000
# Small, so that within seconds segments roll, snapshots are written and retention applies.
SEGMENT_BYTES: Final = 2048
RETENTION: Final = Retention(bytes_max=5000)
LIMITS: Final = SnapshotLimits(bytes_max=100_000, interval_ms=0, records_max=15)


class Witness:
    """A `MetadataListener` in front of the real one that reports every event to the watch."""

    def __init__(self, machine: Machine, watch: ControllerWatch, loader: ImageLoader) -> None:
        self.watch = watch
        self._machine = machine
        self._leaderships = Leaderships(machine, watch)
        self._loader = loader

    def on_role(self, change: RoleChanged) -> None:
        """Record the leader and its epoch."""
        self._leaderships.on_role(change)
        self._loader.on_role(change)

    async def on_committed(self, committed: Sequence[CommittedBatch]) -> None:
        """Compare each batch with what other nodes received at its offset."""
        for batch in committed:
            self.watch.committed_batch(self._machine.name, batch)
        self._leaderships.on_committed(committed[-1])
        await self._loader.on_committed(committed)

    async def on_snapshot(self, reader: SnapshotReader) -> None:
        """Count the snapshot; its image is compared when it is published."""
        self.watch.loads += 1
        await self._loader.on_snapshot(reader)


class ImageWitness:
    """A `Publisher` that reports every published image to the watch."""

    name = "metadata-cache"

    def __init__(self, machine: Machine, watch: ControllerWatch) -> None:
        self._machine = machine
        self._watch = watch

    def on_image(self, delta: Delta, image: Image) -> None:
        """Compare the image, unless it is the empty first one."""
        driver = self._machine.driver
        committed = None if driver is None else driver.describe().high_watermark
        if image.provenance.offset >= 0:
            self._watch.published(self._machine.name, image, committed or 0)


def first_records(random: Random) -> list[Versioned]:
    """Return the first records of the log: the finalized features, and one broker."""
    records = bootstrap_records(feature_levels(LATEST_PRODUCTION, {}), random=random)
    return records_for_empty_log([*records, Versioned(BROKER, 3)], 1, False)


def make_quorum(ports: Ports, machine: Machine, witness: Witness) -> NodeQuorum:
    """Open the logs on the disk and build a replica on them."""
    log = open_log(ports, witness.watch, SEGMENT_BYTES)
    settings = machine.settings()
    driver = RaftDriver(
        RaftParts(
            settings=settings,
            log=log,
            state=QuorumStateFile(ports.disk, log.directory, machine.key),
            committer=ports.committer(LOG_DIR),
            peers=WirePeers(ports.network, machine.name, settings.request_timeout_ms),
            clock=ports.clock,
            random=ports.random,
            listener=witness,
            static=machine.voters,
            retention=RETENTION,
            shutdown_ms_max=400,
        )
    )
    witness.watch.replicas[machine.key] = driver
    return NodeQuorum(driver, log, settings)


async def run_controller(ports: Ports, machine: Machine, watch: ControllerWatch) -> None:
    """Run one process of a node, until its disk fails or it is switched off."""
    machine.starts += 1
    loader = ImageLoader()
    try:
        quorum = make_quorum(ports, machine, Witness(machine, watch, loader))
        machine.driver = quorum.driver
        settings = settings_of(ConfigContext(machine.node_id))
        liveness = Liveness(SESSION_MS)
        controller = Controller(
            ControllerParts(
                quorum=quorum,
                committed=loader,
                clock=ports.clock,
                bootstrap=first_records(ports.random),
                periodic_tasks=(FenceExpiredBrokers(liveness, settings),),
                settings=ControllerSettings(idle_ms=IDLE_MS),
            )
        )
        snapshotter = Snapshotter(quorum.driver, lambda: loader.settled, LIMITS, ports.clock)
        images = ImageWitness(machine, watch)
        recovery = UncleanRecovery(controller, answer_for, settings, RECOVERY_MS)
        loader.install(
            Followers(
                [images, recovery], [controller.on_role], [controller.on_applied], snapshotter
            )
        )
        decisions = ControllerContext(
            cluster_id=CLUSTER,
            settings=settings,
            voter_ids=quorum.voter_ids,
            liveness=liveness,
            random=ports.random,
        )
        server = make_server(ports, machine, quorum, decisions, (controller, recovery))
        services: list[Service] = [quorum.driver, controller, recovery, snapshotter, server]
        await supervise(services, asyncio.Event())
    except (OSError, StorageFailed):
        return  # the process ends, as it must when its disk fails
    finally:
        machine.driver = None


async def answer_for(
    broker_id: int, leaderless: Sequence[LeaderlessPartition]
) -> dict[TopicIdPartition, LogState]:
    """Answer for a broker of this simulation, which has no logs: any replica is as complete."""
    return {each.at: LogState(0, broker_id) for each in leaderless}


def make_server(
    ports: Ports,
    machine: Machine,
    quorum: NodeQuorum,
    decisions: ControllerContext,
    deciding: tuple[Controller, UncleanRecovery],
) -> Server:
    """Return the controller listener, with the handlers of the quorum and of the controller."""
    controller, recovery = deciding
    deciding_handlers = ControllerHandlers(controller, quorum, decisions, recovery)
    decide_configs = deciding_handlers.handler_of(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs
    )
    handlers = handlers_of(
        raft=RaftHandlers(quorum.driver, CONTROLLER),
        controller=deciding_handlers,
        controller_config_changes=ControllerConfigChanges(machine.key.node_id, decide_configs),
    )
    routes = with_envelope(Routes(Listener.CONTROLLER, bind_routes(Listener.CONTROLLER, handlers)))
    spec = ListenerSpec(
        CONTROLLER,
        Address(machine.name, PORT),
        routes,
        features=lambda: FEATURES,
    )
    return Server(ports.network, ports.clock, [spec])
