"""A broker with two directories, records in one of them, and moves carried out step by step."""

import asyncio
from collections.abc import Sequence

from partition_fixtures import batch_of, values_in
from replicas_fixtures import NODE, Broker, image_of, partition_of

from ottla.metadata.image import Image
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.protocol.faults import StorageFailed
from ottla.protocol.types import Millis, TopicPartition, Uuid
from ottla.replication.maintenance.log_dir_moves import LogDirMoves, MoveSettings
from ottla.replication.partition import Partition
from ottla.runtime.ports import Syncable
from ottla.storage.directory.log_dir import LogDirectory

ORDERS = TopicPartition("orders", 0)
NOW = Millis(1_700_000_000_000)
TOPIC = (2, "orders")


class Direct:
    """`Committer` that runs at once: a crash reaches the waiter, and no time passes."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._cause: OSError | None = None

    async def close(self) -> None:
        pass

    async def commit(self, files: Sequence[Syncable]) -> None:
        try:
            if self._cause is not None:
                raise self._cause
            for file in files:
                file.sync()
        except OSError as error:
            self._cause = error
            raise StorageFailed(self._directory, f"sync failed: {error}") from error
        await asyncio.sleep(0)


class Mover:
    """A process that hosts ``orders-0``, and its moves."""

    def __init__(self, broker: Broker | None = None, **terms) -> None:
        self.broker = broker or Broker(**terms, committer=Direct)
        self.disk = self.broker.disk
        self.host = self.broker.host
        paths = terms.get("paths", self.broker.paths)
        self.moves = LogDirMoves(self.host, self.broker.replicas, MoveSettings(paths=paths))

    def start(self, image: Image | None = None) -> "Mover":
        self.broker.start(led() if image is None else image)
        return self

    def again(self, image: Image | None = None) -> "Mover":
        """Start the next process on the same disk; moves are resumed."""
        old = self.broker
        # Two processes do not generate the same names.
        mover = Mover(
            Broker(old.paths, old.static, old.disk, old.clock, old.seed + 1, Direct)
        ).start(image)
        mover.moves.resume()
        return mover

    @property
    def partition(self) -> Partition:
        found = self.host.partitions.get(*ORDERS)
        assert found is not None
        return found

    @property
    def here(self) -> LogDirectory:
        return self.partition.directory

    @property
    def there(self) -> LogDirectory:
        """The other directory."""
        return next(each for each in self.host.directories.all if each is not self.here)

    def append(self, *values: bytes, **fields) -> None:
        for value in values:
            self.partition.append(batch_of(value, **fields), now=NOW)

    def values(self) -> list[bytes | None]:
        return values_in(self.partition.log)

    def names(self, path: str) -> list[str]:
        return [name for name in self.disk.list(path) if name.startswith("orders")]

    def move(self) -> None:
        """Begin a move to the other directory."""
        self.moves.alter(ORDERS, self.there.path)

    def carry_out(self) -> None:
        """Run every move until it ends."""

        async def work() -> None:
            for move in list(self.moves.moves.values()):
                await self.moves.carry_out(move)

        asyncio.run(work())

    def step(self, count: int = 1) -> None:
        """Take some steps of the one move."""

        async def work() -> None:
            (move,) = self.moves.moves.values()
            for _ in range(count):
                await move.go_on()

        asyncio.run(work())


def led(
    epoch: int = 0,
    *,
    leader: int = NODE,
    directory: Uuid | None = None,
    configs: dict[str, str] | None = None,
) -> Image:
    """An image that gives ``orders-0`` to this broker, to lead or to follow."""
    replicas = (int(NODE),) if leader == NODE else (int(NODE), leader)
    own = None if directory is None else (directory, DIRECTORY_UNASSIGNED)[: len(replicas)]
    made = partition_of(
        *replicas, leader=leader, epoch=epoch, partition_epoch=epoch, directories=own
    )
    return image_of({"orders": (1, {0: made})}, {TOPIC: configs or {}})
