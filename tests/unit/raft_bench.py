"""A driver on a simulated disk and clock, with peers whose replies the test defines."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tests.patience import SECONDS_MAX

from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.types import Millis, NodeId, Offset, Uuid
from ottla.raft.applier import CommittedBatch
from ottla.raft.core.effects import Role, RoleChanged
from ottla.raft.core.messages import Reply, Request
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.voters import ALL_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.raft.driver import RaftDriver, RaftParts
from ottla.raft.metadata_log import MetadataLog, Retention
from ottla.raft.quorum_state_file import QuorumStateFile
from ottla.raft.snapshots import SnapshotReader, write_initial_snapshot
from ottla.runtime.ports import Committer
from simulation.clock import SimClock
from simulation.committer import SimCommitter
from simulation.disk import SimDisk
from simulation.loop import make_loop
from simulation.random import SimRandom

CLUSTER = "bench"
DIRECTORY = "/meta/__cluster_metadata-0"


def directory(number: int) -> Uuid:
    return Uuid(bytes([number]) * 16)


def voter(node_id: int, number: int | None = None) -> Voter:
    key = ReplicaKey(NodeId(node_id), directory(node_id if number is None else number))
    return Voter(key, (Endpoint("CONTROLLER", f"n{node_id}", 9093),), ALL_KRAFT_VERSIONS)


def record(value: str) -> Versioned:
    return Versioned(ConfigRecord(2, "topic", "name", value), 0)


class Listener:
    def __init__(self) -> None:
        self.roles: list[RoleChanged] = []
        self.committed: list[CommittedBatch] = []
        self.values: list[str] = []
        self.snapshots: list[int] = []

    def on_role(self, change: RoleChanged) -> None:
        self.roles.append(change)

    async def on_committed(self, committed: Sequence[CommittedBatch]) -> None:
        self.committed += committed
        for batch in committed:
            self.values += [str(r.message.value) for r in batch.records]  # type: ignore[attr-defined]

    async def on_snapshot(self, reader: SnapshotReader) -> None:
        self.snapshots.append(reader.snapshot.offset)
        self.values = [
            str(r.message.value)  # type: ignore[attr-defined]
            for batch in reader.batches()
            for r in batch.records
        ]


class Peers:
    """Answers with ``reply(endpoint, request)``; by default no peer answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Endpoint, Request]] = []
        self.reply: Callable[[Endpoint, Request], Reply | None] = lambda endpoint, request: None
        self.is_closed = False

    async def ask(self, endpoint: Endpoint, request: Request) -> Reply | None:
        self.asked.append((endpoint, request))
        await asyncio.sleep(0.01)
        return self.reply(endpoint, request)

    async def close(self) -> None:
        self.is_closed = True


class Bench:
    """One replica: node 1 of ``voters``, on a disk that outlives its driver."""

    def __init__(self, voters: Sequence[Voter] = (), *, is_observer: bool = False) -> None:
        self.loop = make_loop(0)
        self.clock = SimClock(self.loop)
        self.disk = SimDisk(0, clock=self.clock)
        self.voters = VoterSet(tuple(voters) or (voter(1),))
        self.peers = Peers()
        self.listener = Listener()
        self.committer: Committer = SimCommitter("/meta")
        self.retention = Retention()
        self.directory_id = directory(1)
        if not is_observer:
            write_initial_snapshot(self.disk, DIRECTORY, self.voters, Millis(0))
        self.driver: RaftDriver

    def settings(self) -> RaftSettings:
        return RaftSettings(
            node_id=NodeId(1),
            directory_id=self.directory_id,
            cluster_id=CLUSTER,
            endpoints=voter(1).endpoints,
            bootstrap=tuple(v.endpoints[0] for v in self.voters if v.key.node_id != 1),
        )

    def make(self) -> RaftDriver:
        log = MetadataLog.open(self.disk, "/meta", self.clock)
        settings = self.settings()
        self.driver = RaftDriver(
            RaftParts(
                settings=settings,
                log=log,
                state=QuorumStateFile(self.disk, log.directory, settings.key),
                committer=self.committer,
                peers=self.peers,
                clock=self.clock,
                random=SimRandom(0, "driver"),
                listener=self.listener,
                retention=self.retention,
            )
        )
        return self.driver

    def play(self, scenario: Callable[[RaftDriver], Awaitable[None]]) -> None:
        """Run the driver during ``scenario``, then stop it."""

        async def main() -> None:
            driver = self.make()
            ready = asyncio.Event()
            running = asyncio.ensure_future(driver.run(ready.set))
            await asyncio.wait(
                [running, asyncio.ensure_future(ready.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
            reply = asyncio.ensure_future(scenario(driver))
            try:
                await asyncio.wait([running, reply], return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    running.result()
                reply.result()
            finally:
                for task in (reply, running):
                    task.cancel()
                    await asyncio.wait([task])

        self.loop.run_until_complete(main())

    def kill(self) -> None:
        """End the process; the disk stays."""
        self.disk.kill()
        self.disk.restart()
        self.committer = SimCommitter("/meta")
        self.listener = Listener()


async def wait_until(condition: Callable[[], bool], seconds: float = SECONDS_MAX) -> None:
    for _ in range(int(seconds * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


async def wait_role(driver: RaftDriver, role: Role) -> None:
    await wait_until(lambda: driver.describe().role is role)


async def wait_applied(driver: RaftDriver, offset: int) -> None:
    await wait_until(lambda: driver.applied >= Offset(offset))
