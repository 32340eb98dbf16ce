"""One simulated replica of the metadata quorum: the real driver, log, client and server.

On top is the smallest state machine that can tell histories apart: the list of all values ever
committed. A leader proposes numbered values; a replica that has applied many takes a snapshot from
time to time.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from ottla.api.cluster.quorum_requests import RaftHandlers
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.routes import Routes
from ottla.protocol.api_keys import Listener
from ottla.protocol.faults import Fault, StorageFailed
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.types import NodeId, Offset, Uuid
from ottla.raft.applier import CommittedBatch
from ottla.raft.core.effects import AppendControl, Role, RoleChanged, VotersRecord
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.view import QuorumView
from ottla.raft.core.voters import ALL_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.raft.driver import RaftDriver, RaftParts
from ottla.raft.metadata_log import MetadataLog, Retention, metadata_log_config
from ottla.raft.peers import WirePeers
from ottla.raft.quorum_state_file import QuorumStateFile
from ottla.raft.repair import NO_REPAIR, RejoinMark, Repair, repair_log
from ottla.raft.snapshots import SnapshotReader
from ottla.runtime.ports import Address
from ottla.runtime.supervisor import supervise
from ottla.server.api_versions import Features
from ottla.server.listener import ListenerSpec, Server
from simulation.quorum_watch import LAG_RECORDS_MAX, QuorumWatch
from simulation.simulation import Ports

LOG_DIR = "/meta"
CLUSTER = "simulated-quorum"
CONTROLLER = "CONTROLLER"
PORT = 9093
# Small, so that within seconds segments roll and retention applies.
SEGMENT_BYTES = 1024
RETENTION = Retention(bytes_max=2500)
RECORDS_PER_SNAPSHOT = 12
FEATURES = Features(supported=(("kraft.version", 0, 1),))


def directory(number: int) -> Uuid:
    """Return the directory id of that number."""
    return Uuid(number.to_bytes(16, "big"))


def endpoint(node_id: int) -> Endpoint:
    """Return the address of a node's controller listener."""
    return Endpoint(CONTROLLER, f"n{node_id}", PORT)


@dataclass
class Machine:
    """What outlives a process of a replica: its identity, and its initial configuration."""

    node_id: int
    directory_id: Uuid
    voters: VoterSet
    bootstrap: tuple[Endpoint, ...]
    starts: int = 0
    driver: RaftDriver | None = None

    @property
    def name(self) -> str:
        """The name of its host."""
        return f"n{self.node_id}"

    @property
    def key(self) -> ReplicaKey:
        """Its replica key."""
        return ReplicaKey(NodeId(self.node_id), self.directory_id)

    @property
    def voter(self) -> Voter:
        """The machine as a voter."""
        return Voter(self.key, (endpoint(self.node_id),), ALL_KRAFT_VERSIONS)

    def settings(self) -> RaftSettings:
        """Return the settings of its replica; timeouts are short, as in a small cluster."""
        return RaftSettings(
            node_id=NodeId(self.node_id),
            directory_id=self.directory_id,
            cluster_id=CLUSTER,
            endpoints=(endpoint(self.node_id),),
            bootstrap=self.bootstrap,
            election_timeout_ms=300,
            fetch_timeout_ms=600,
            request_timeout_ms=500,
            retry_backoff_ms=100,
            election_backoff_ms_max=300,
            fetch_wait_ms_max=300,
            fetch_bytes_max=1500,
            observer_lag_records_max=LAG_RECORDS_MAX,
        )


class WitnessedLog(MetadataLog):
    """The real log; reports to the watch the voters that a leader is about to append."""

    watch: QuorumWatch

    def append_control(self, effect: AppendControl) -> None:
        """Report to the watch, then append."""
        for record in effect.records:
            if isinstance(record, VotersRecord):
                self.watch.wrote_voters(effect.base_offset, effect.epoch, record.voters)
        super().append_control(effect)


def open_log(ports: Ports, watch: QuorumWatch, segment_bytes: int) -> MetadataLog:
    """Open the log on the disk."""
    config = metadata_log_config(segment_bytes)
    log = WitnessedLog.open(ports.disk, LOG_DIR, ports.clock, config)
    log.watch = watch
    return log


class Leaderships:
    """Report to the watch the epochs that one process of a replica enters, and what it commits
    there.
    """

    def __init__(self, machine: Machine, watch: QuorumWatch) -> None:
        self._machine = machine
        self._watch = watch
        self._known_when_elected = 0

    def on_role(self, change: RoleChanged) -> None:
        """Record the epoch and its leader."""
        replica = f"{self._machine.name}/{self._machine.directory_id.hex()}"
        self._watch.entered(replica, change.epoch)
        if change.role is Role.LEADER:
            view = self._view()
            known = None if view is None else view.high_watermark
            self._known_when_elected = 0 if known is None else known
            self._watch.led(self._machine.name, change.epoch)

    def on_committed(self, last: CommittedBatch) -> None:
        """Check that a leader's high watermark moves only past a record of its own epoch."""
        view = self._view()
        if view is None or view.role is not Role.LEADER:
            return
        if view.high_watermark == last.next_offset > self._known_when_elected:
            self._watch.commits(self._machine.name, view.epoch, last.epoch)

    def _view(self) -> QuorumView | None:
        driver = self._machine.driver
        return None if driver is None else driver.describe()


class History:
    """The state machine: all values, in order. Reports every event to the watch."""

    def __init__(self, machine: Machine, watch: QuorumWatch) -> None:
        self.values: list[str] = []
        self.applied = Offset(0)
        self.leads: RoleChanged | None = None
        self.watch = watch
        self._machine = machine
        self._leaderships = Leaderships(machine, watch)

    def on_role(self, change: RoleChanged) -> None:
        """Record the leader."""
        self.leads = change if change.role is Role.LEADER else None
        self._leaderships.on_role(change)

    async def on_committed(self, committed: Sequence[CommittedBatch]) -> None:
        """Apply committed values."""
        for batch in committed:
            values = tuple(_value(record) for record in batch.records)
            entry = (int(batch.next_offset), int(batch.epoch), values)
            self.watch.applied(self._machine.name, batch.base_offset, entry)
            self.values += values
            self.applied = batch.next_offset
        self._leaderships.on_committed(committed[-1])

    async def on_snapshot(self, reader: SnapshotReader) -> None:
        """Replace the state by a snapshot."""
        values: list[str] = []
        for batch in reader.batches():
            values += [_value(record) for record in batch.records]
            await asyncio.sleep(0)
        self.values, self.applied = values, reader.snapshot.offset
        self.watch.loaded(self._machine.name, reader.snapshot.offset, values)

    def pieces(self) -> Iterator[list[bytes]]:
        """Yield the state as encoded records, a few at a time."""
        values = list(self.values)
        for start in range(0, len(values), 10):
            yield [encode_framed(_record(value)) for value in values[start : start + 10]]


def _record(value: str) -> Versioned:
    return Versioned(ConfigRecord(2, "simulated", "value", value), 0)


def _value(record: Versioned) -> str:
    assert isinstance(record.message, ConfigRecord)
    assert record.message.value is not None
    return record.message.value


class Proposer:
    """`Service`: proposes while its replica leads, and takes snapshots."""

    name = "proposer"

    def __init__(
        self, ports: Ports, machine: Machine, driver: RaftDriver, history: History
    ) -> None:
        self._ports = ports
        self._machine = machine
        self._driver = driver
        self._history = history
        self._number = 0
        self._next_snapshot = RECORDS_PER_SNAPSHOT

    async def run(self, ready: Callable[[], None]) -> None:
        """Run forever."""
        ready()
        random = self._ports.random
        while True:
            await asyncio.sleep(0.05 + 0.25 * random.fraction())
            leads = self._history.leads
            if leads is not None:
                await self._propose(leads)
            if self._history.applied >= self._next_snapshot:
                await self._driver.take_snapshot(self._history.applied, self._history.pieces())
                self._next_snapshot = self._history.applied + RECORDS_PER_SNAPSHOT

    async def _propose(self, leads: RoleChanged) -> None:
        count = 1 + self._ports.random.below(3)
        values = []
        for _ in range(count):
            self._number += 1
            values.append(f"{self._machine.name}.{self._machine.starts}.{self._number}")
        try:
            await self._driver.propose([_record(value) for value in values], leads.epoch)
        except Fault:
            return  # lost its leadership meanwhile


def make_driver(
    ports: Ports, machine: Machine, history: History, repair: Repair = NO_REPAIR
) -> RaftDriver:
    """Open the log on the disk, repaired if requested, and build a replica on it."""
    repair_log(ports.disk, LOG_DIR, repair, machine.voters, NodeId(machine.node_id))
    mark = RejoinMark(ports.disk, LOG_DIR)
    log = open_log(ports, history.watch, SEGMENT_BYTES)
    settings = msgspec.structs.replace(machine.settings(), is_rejoining=mark.is_set)
    driver = RaftDriver(
        RaftParts(
            settings=settings,
            log=log,
            state=QuorumStateFile(ports.disk, log.directory, machine.key),
            committer=ports.committer(LOG_DIR),
            peers=WirePeers(ports.network, machine.name, settings.request_timeout_ms),
            clock=ports.clock,
            random=ports.random,
            listener=history,
            static=machine.voters,
            retention=RETENTION,
            shutdown_ms_max=400,
            rejoining=mark,
        )
    )
    history.watch.replicas[machine.key] = driver
    return driver


async def run_replica(
    ports: Ports, machine: Machine, watch: QuorumWatch, repair: Repair = NO_REPAIR
) -> None:
    """Run one process of a replica, until its disk fails or it is switched off."""
    machine.starts += 1
    history = History(machine, watch)
    try:
        driver = make_driver(ports, machine, history, repair)
        machine.driver = driver
        handlers = RaftHandlers(driver, CONTROLLER)
        spec = ListenerSpec(
            CONTROLLER,
            Address(machine.name, PORT),
            Routes(
                Listener.CONTROLLER, bind_routes(Listener.CONTROLLER, handlers_of(raft=handlers))
            ),
            features=lambda: FEATURES,
        )
        server = Server(ports.network, ports.clock, [spec])
        proposer = Proposer(ports, machine, driver, history)
        await supervise([driver, server, proposer], asyncio.Event())
    except (OSError, StorageFailed):
        return  # the process ends, as it must when its disk fails
    finally:
        machine.driver = None
