"""Committed batches to images, and snapshots when they are due."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.metadata.metadata_versions import LATEST_PRODUCTION, METADATA_VERSION
from ottla.metadata.snapshot_policy import SnapshotLimits
from ottla.metadata.transactions import STEP_RECORDS
from ottla.node.controller.image_loader import Followers, ImageLoader
from ottla.node.controller.snapshotter import Snapshotter
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from ottla.protocol.internal.metadata_topics import ConfigRecord
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.applier import CommittedBatch
from ottla.raft.core.log_view import LogPosition
from ottla.raft.snapshots import SnapshotHead
from simulation.clock import SimClock
from simulation.loop import run_simulated

FIRST = FeatureLevelRecord(METADATA_VERSION, int(LATEST_PRODUCTION))


def batch(base: int, *messages: Message, size: int = 100) -> CommittedBatch:
    end = base + max(1, len(messages))
    records = tuple(Versioned(message, 0) for message in messages)
    return CommittedBatch(Offset(base), Offset(end), LeaderEpoch(3), Millis(9), records, size)


def config(name: str) -> ConfigRecord:
    return ConfigRecord(2, "t", name, "1")


def names(image: Image) -> set[str]:
    return {name for r in image.configs.by_resource for name in image.configs.of(r)}


class Seeing:
    """A publisher that writes down what it sees, and when."""

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name = name
        self._seen = seen

    def on_image(self, delta: Delta, image: Image) -> None:
        self._seen.append((self.name, names(image)))


def test_batch_is_one_publication_and_on_applied_follows_the_publishers() -> None:
    seen: list[Any] = []
    loader = ImageLoader()
    loader.install(
        Followers(
            [Seeing("watch", seen), Seeing("acls", seen)],
            on_applied=[lambda offset: seen.append(("applied", offset))],
        )
    )
    seen.clear()
    asyncio.run(loader.on_committed([batch(0, FIRST, config("a"), config("b"))]))
    assert seen == [("acls", {"a", "b"}), ("watch", {"a", "b"}), ("applied", 2)]
    provenance = loader.image.provenance
    assert (provenance.offset, provenance.epoch, provenance.timestamp) == (2, 3, 9)


def test_loop_runs_while_a_large_batch_is_replayed_and_no_part_of_it_is_visible() -> None:
    async def story() -> None:
        loader = ImageLoader()
        seen: list[Any] = []
        loader.install(Followers([Seeing("watch", seen)]))
        seen.clear()
        many = [config(f"c{number}") for number in range(4 * STEP_RECORDS)]
        loading = asyncio.create_task(loader.on_committed([batch(0, FIRST, *many)]))
        turns = 0
        while not seen:
            await asyncio.sleep(0)
            turns += 1
            assert len(names(loader.image)) in (0, len(many))
        await loading
        assert turns >= 4
        assert [len(found) for _, found in seen] == [len(many)]

    asyncio.run(story())


def test_settled_image_advances_only_after_a_whole_commit() -> None:
    loader = ImageLoader()
    at_first: list[int] = []
    loader.install(
        Followers(on_applied=[lambda offset: at_first.append(loader.settled.provenance.offset)])
    )
    asyncio.run(loader.on_committed([batch(0, FIRST), batch(1, config("a"))]))
    assert at_first == [-1, -1], "the log does not count the step as applied yet"
    assert loader.settled is loader.image


def test_open_transaction_is_not_published() -> None:
    applied: list[int] = []
    loader = ImageLoader()
    loader.install(Followers(on_applied=[applied.append]))
    asyncio.run(
        loader.on_committed([batch(0, FIRST), batch(1, BeginTransactionRecord("x"), config("a"))])
    )
    assert names(loader.image) == set() and loader.is_in_transaction()
    assert applied == [0, 2]
    asyncio.run(loader.on_committed([batch(3, EndTransactionRecord())]))
    assert names(loader.image) == {"a"} and not loader.is_in_transaction()


class Reader:
    """A snapshot of two batches."""

    snapshot = LogPosition(LeaderEpoch(5), Offset(40))

    def head(self) -> SnapshotHead:
        return SnapshotHead(Millis(77), 0, None)

    def batches(self) -> Iterator[CommittedBatch]:
        yield batch(0, FIRST, config("x"))
        yield batch(2, config("y"))


def test_snapshot_replaces_the_image_in_one_publication() -> None:
    seen: list[Any] = []
    loader = ImageLoader()
    loader.install(Followers([Seeing("watch", seen)]))
    asyncio.run(loader.on_committed([batch(0, FIRST, config("old"))]))
    seen.clear()
    asyncio.run(loader.on_snapshot(Reader()))  # type: ignore[arg-type]
    assert seen == [("watch", {"x", "y"})]
    assert loader.image.provenance.offset == 39
    assert loader.image.provenance.timestamp == 77


class Store:
    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []

    async def take_snapshot(self, end: Offset, batches: Iterator[Sequence[bytes]]) -> LogPosition:
        self.taken.append((end, sum(len(piece) for piece in batches)))
        return LogPosition(LeaderEpoch(0), end)


async def snapshots(limits: SnapshotLimits, script: Any) -> list[tuple[int, int]]:
    store, watch, loader = Store(), ImageWatch(), ImageLoader()
    clock = SimClock(asyncio.get_running_loop())
    writer = Snapshotter(store, lambda: loader.settled, limits, clock)
    loader.install(Followers([watch], events=writer))
    task = asyncio.create_task(writer.run(lambda: None))
    await script(loader, writer)
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    return store.taken


def run(limits: SnapshotLimits, script: Any) -> list[tuple[int, int]]:
    found: list[list[tuple[int, int]]] = []

    async def main() -> None:
        found.append(await snapshots(limits, script))

    run_simulated(main())
    return found[0]


NEVER = SnapshotLimits(bytes_max=1 << 40, interval_ms=0)


def test_snapshot_is_written_after_enough_bytes_and_counting_restarts() -> None:
    async def script(loader: ImageLoader, writer: Snapshotter) -> None:
        await loader.on_committed([batch(0, FIRST)])
        for at in range(1, 8):
            await loader.on_committed([batch(at, config(f"k{at}"))])
            await asyncio.sleep(0.01)

    taken = run(SnapshotLimits(bytes_max=400, interval_ms=0), script)
    assert [end for end, _ in taken] == [4, 8]
    assert taken[-1][1] == 8


def test_snapshot_interval_writes_only_after_new_records() -> None:
    async def script(loader: ImageLoader, writer: Snapshotter) -> None:
        await asyncio.sleep(10)
        await loader.on_committed([batch(0, FIRST)])
        await asyncio.sleep(25)

    assert [end for end, _ in run(SnapshotLimits(1 << 40, 10_000), script)] == [1]


def test_snapshot_is_written_on_request() -> None:
    async def script(loader: ImageLoader, writer: Snapshotter) -> None:
        writer.request()
        await asyncio.sleep(1)
        await loader.on_committed([batch(0, FIRST, config("a"))])

    taken = run(NEVER, script)
    assert [end for end, _ in taken] == [2], "as soon as there is something to write"
