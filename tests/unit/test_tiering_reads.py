"""The limits of reads and copies: quotas (KIP-956), and the wait of a fetch (KIP-1018)."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX
from tier_harness import AT, Replica, Tier, is_settled, lead

from ottla.api.fetch.partitions import FetchedPartition
from ottla.api.fetch.remote import RemoteFetch, read_remote
from ottla.api.fetch.reply import Row
from ottla.api.fetch.request import FetchPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.runtime.worker import InlineWorker
from ottla.storage.log.read import RemoteRecords
from ottla.tiering.read_cache import ReadCache
from ottla.tiering.remote_reads import RemoteReads
from ottla.tiering.remote_segment import BlockKey, SegmentReads
from ottla.tiering.segment_store import RemoteStorageFailed


def test_copies_keep_to_their_quota(tmp_path: Path) -> None:
    tier, rate = Tier(tmp_path), 5000
    manager = tier.broker(1, Replica(tier.log))
    manager.copy_quota.limit(rate)
    began = time.monotonic()
    asyncio.run(lead(manager, lambda: is_settled(tier)))
    sizes = [each.size for each in tier.log.segments[:-1]]
    assert manager.counts.copied_bytes == sum(sizes) > 2 * rate
    # A second's worth is saved up at the start, and nothing is waited for after the last copy.
    assert time.monotonic() - began >= (sum(sizes) - sizes[-1] - rate) / rate - 0.05


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 5000

    def now(self) -> Millis:
        return Millis(self.ms)

    def monotonic(self) -> Millis:
        return Millis(self.ms)


def test_fetches_are_throttled_until_their_quota_is_paid(tmp_path: Path) -> None:
    tier, clock = Tier(tmp_path), HandClock()
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    reads = SegmentReads(tier.store, ReadCache(1 << 20), ReadCache(1 << 20), InlineWorker())

    async def work() -> None:
        remote = RemoteReads(tier.metadata, reads, clock)
        remote.fetch_quota.limit(400)
        async with asyncio.TaskGroup() as tasks:
            service = tasks.create_task(remote.run(lambda: None))
            await asyncio.sleep(0)
            assert not remote.is_throttled
            got = await remote.fetch(Replica(tier.log), Offset(0), 1900, is_committed=False)
            assert len(got.data) > 1500
            assert remote.is_throttled
            clock.ms += (len(got.data) - 400) * 1000 // 400 - 10
            assert remote.is_throttled
            clock.ms += 20
            assert not remote.is_throttled
            service.cancel()

    asyncio.run(work())


def test_fetch_loads_the_next_segment_ahead_unless_it_is_local(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    first, second = tier.metadata.cache(AT).all()[:2]
    key = (second.segment_id.id, 0)

    async def loads_ahead() -> bool:
        blocks: ReadCache[BlockKey] = ReadCache(1 << 20)
        reads = SegmentReads(tier.store, blocks, ReadCache(1 << 20), InlineWorker())
        remote = RemoteReads(tier.metadata, reads, tier.clock)
        async with asyncio.TaskGroup() as tasks:
            service = tasks.create_task(remote.run(lambda: None))
            await asyncio.sleep(0)
            got = await remote.fetch(Replica(tier.log), Offset(0), 300, is_committed=False)
            assert isinstance(got.data, memoryview), "a part of the block, not a copy"
            assert (first.segment_id.id, 0) in blocks
            for _ in range(20):  # what is read ahead is in memory
                await asyncio.sleep(0)
            service.cancel()
        return key in blocks

    assert not asyncio.run(loads_ahead()), "the whole log is on this disk"
    tier.log.delete_segments([each.base_offset for each in tier.log.segments[:2]])
    assert asyncio.run(loads_ahead())


class Reader:
    """A `RemoteReader` with one future for each offset."""

    def __init__(self, *, is_throttled: bool = False) -> None:
        self.is_throttled = is_throttled
        self.fetch_wait_ms = 50
        self.lookup_wait_ms = 50
        self.results: dict[int, asyncio.Future[RemoteRecords]] = {}

    def fetch(
        self, partition: object, offset: Offset, bytes_max: int, *, is_committed: bool
    ) -> "asyncio.Future[RemoteRecords]":
        return self.results[offset]

    def find_timestamp(self, partition: object, timestamp: Millis) -> "asyncio.Future[None]":
        raise AssertionError("not asked")


def fetch_of(offset: int, partition: int) -> RemoteFetch:
    none = LeaderEpoch(-1)
    asked = FetchPartition(partition, none, Offset(offset), none, Offset(-1), 100)
    return RemoteFetch(FetchedPartition("t", asked), None, 100)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_throttled", [False, True], ids=["slow", "throttled"])
def test_slow_read_does_not_hold_up_other_partitions(is_throttled: bool) -> None:
    async def work() -> list[Row]:
        reader = Reader(is_throttled=is_throttled)
        loop = asyncio.get_running_loop()
        for offset in (1, 2, 3):
            reader.results[offset] = loop.create_future()
        reader.results[2].set_result(RemoteRecords(b"here", None))
        reader.results[3].set_exception(RemoteStorageFailed("503"))
        found = [Row(index) for index in (0, 1, 2)]
        fetches = [fetch_of(offset, offset - 1) for offset in (1, 2, 3)]
        async with asyncio.timeout(SECONDS_MAX):
            await read_remote(reader, fetches, found, is_committed=False)  # type: ignore[arg-type]
        reader.results[3].exception()
        return found

    slow, quick, failed = asyncio.run(work())
    assert (slow.data, slow.error) == (b"", 0)  # none in this reply; the client asks again
    assert quick.data == (b"" if is_throttled else b"here")
    assert failed.error == (0 if is_throttled else ErrorCode.KAFKA_STORAGE_ERROR)
