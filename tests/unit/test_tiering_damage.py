"""Objects in remote storage that are missing or changed: no read returns their batches."""

import asyncio
import re
from collections.abc import Awaitable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tier_harness import (
    AT,
    Replica,
    Tier,
    is_settled,
    lead,
    read_all,
    running_reads,
    sealed_bytes,
)

from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import Compression, batches
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.storage.log.log_maintenance import delete_old_segments
from ottla.storage.log.read import TimestampedOffset
from ottla.tiering import remote_segment
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState, SegmentUpdate
from ottla.tiering.segment_store import ObjectDamaged

pytestmark = pytest.mark.slow


def flipped(data: bytes, at: int, bit: int) -> bytes:
    """Return bytes with one bit changed; bit 0 is the lowest of a field whose last byte is at."""
    place = at - bit // 8
    return data[:place] + bytes([data[place] ^ (1 << bit % 8)]) + data[place + 1 :]


def starts_of(data: bytes) -> list[int]:
    """Return where the batches of a segment begin."""
    return [start for start, _ in batches(data)]


BASE_OFFSET_LAST_BYTE, EPOCH_LAST_BYTE = 7, 15


@pytest.mark.parametrize(
    ("field", "bits"), [(BASE_OFFSET_LAST_BYTE, 64), (EPOCH_LAST_BYTE, 32)], ids=["base", "epoch"]
)
def test_flipped_bit_outside_of_the_crc_is_never_returned(
    tmp_path: Path, field: int, bits: int
) -> None:
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    keys = sorted(each for each in tier.objects.stored if each.endswith(".log"))
    for key in (keys[0], keys[1]):
        good = tier.objects.stored[key]
        for start in starts_of(good):
            for bit in {0, 1, 2, 3, 5, 8, 31, bits - 1}:
                tier.objects.stored[key] = flipped(good, start + field, bit)
                with pytest.raises(ObjectDamaged, match=re.escape(key)):
                    asyncio.run(read_all(tier))
        with pytest.raises(ObjectDamaged, match="the checksum does not match"):
            asyncio.run(tier.store.verify(tier.metadata.cache(AT).all()[keys.index(key)]))
        tier.objects.stored[key] = good
    assert asyncio.run(read_all(tier)) == tier.bytes[: sealed_bytes(tier)]


@pytest.mark.parametrize("bit", [0, 1, 4, 40])
def test_timestamp_lookup_does_not_return_an_offset_with_a_flipped_bit(
    tmp_path: Path, bit: int
) -> None:
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    key = min(each for each in tier.objects.stored if each.endswith(".log"))
    good = tier.objects.stored[key]
    delete_old_segments(tier.log, Millis(10_000))
    start = starts_of(good)[3]
    tier.objects.stored[key] = flipped(good, start + BASE_OFFSET_LAST_BYTE, bit)

    async def find() -> TimestampedOffset | None:
        async with running_reads(tier) as remote:
            return await remote.find_timestamp(Replica(tier.log), Millis(1003))

    with pytest.raises(ObjectDamaged):
        asyncio.run(find())
    tier.objects.stored[key] = good
    assert asyncio.run(find()) == TimestampedOffset(1003, 3, 0)


def test_timestamp_lookup_in_remote_storage_rejects_an_oversized_record(tmp_path: Path) -> None:
    tier = Tier(tmp_path, records=0)
    for number in range(40):
        record = Record(Offset(0), Millis(1000 + number), None, bytes(300 + number % 2 * 300))
        batch = build_batch([record], compression=Compression.GZIP)
        tier.log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now=Millis(5))
    tier.log.roll()
    tier.log.set_high_watermark(tier.log.log_end_offset)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    delete_old_segments(tier.log, Millis(10_000))

    async def find(timestamp: int) -> TimestampedOffset | None:
        async with running_reads(tier) as remote:
            return await remote.find_timestamp(Replica(tier.log), Millis(timestamp))

    tier.log.configure(replace(tier.log.config, max_decompressed_message_bytes=400))
    assert asyncio.run(find(1002)) == TimestampedOffset(1002, 2, 0)
    with pytest.raises(InvalidRecord, match=r"max.decompressed.message.bytes is 400"):
        asyncio.run(find(1003))


def test_segment_with_gaps_is_returned_until_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was compacted before it was tiered: the whole object is compared once."""
    monkeypatch.setattr(remote_segment, "BLOCK_BYTES", 512)
    tier = Tier(tmp_path, records=0)
    for number in range(40):
        record = Record(Offset(3 * number), Millis(1000 + number), None, b"%04d" % number * 40)
        batch = build_batch([record], base_offset=3 * number, leader_epoch=0)
        tier.log.append_at(bytes(batch), now=Millis(5))
    tier.log.set_high_watermark(tier.log.log_end_offset)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    key = min(each for each in tier.objects.stored if each.endswith(".log"))
    good = tier.objects.stored[key]
    compared: list[int] = []
    block_sums = tier.store.block_sums

    def counted(metadata: SegmentMetadata, block_bytes: int) -> Awaitable[bytes]:
        compared.append(block_bytes)
        return block_sums(metadata, block_bytes)

    monkeypatch.setattr(tier.store, "block_sums", counted)

    async def check() -> None:
        async with running_reads(tier, blocks_bytes=700) as remote:

            async def offset_at(offset: int) -> int:
                replica = Replica(tier.log)
                found = await remote.fetch(replica, Offset(offset), 300, is_committed=False)
                return next(batches(found.data))[1].base_offset

            assert [await offset_at(each) for each in (0, 1, 3, 7, 15)] == [0, 3, 3, 9, 15]
            assert len(compared) == 1  # not at each fetch
            tier.objects.stored[key] = flipped(good, starts_of(good)[4] + BASE_OFFSET_LAST_BYTE, 0)
            with pytest.raises(ObjectDamaged, match="block"):
                await offset_at(12)

    asyncio.run(check())


def test_damaged_object_is_logged_once_and_named_by_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    key = min(each for each in tier.objects.stored if each.endswith(".log"))
    good = tier.objects.stored[key]
    tier.objects.stored[key] = flipped(good, BASE_OFFSET_LAST_BYTE, 0)
    gets: list[str] = []
    tier.objects.fault = lambda request, name: gets.append(name) if request == "get" else None

    async def check() -> None:
        async with running_reads(tier) as remote:
            for attempt in range(20):
                with pytest.raises(ObjectDamaged, match=re.escape(key)):
                    await remote.fetch(Replica(tier.log), Offset(0), 300, is_committed=False)
                if attempt == 0:
                    gets.clear()
            assert gets == []  # it was read whole: not again at each attempt of the consumer
            assert [each.key for each in remote.damaged] == [key]
            del tier.objects.stored[key]
            following = Offset(tier.metadata.cache(AT).all()[1].start_offset)
            await remote.fetch(Replica(tier.log), following, 300, is_committed=False)
            (segment, *_) = tier.metadata.cache(AT).all()
            at = (segment.segment_id, "t", Millis(9), SegmentState.DELETE_SEGMENT_STARTED)
            await tier.metadata.update(SegmentUpdate(*at, NodeId(1)))
            assert remote.damaged == []  # expired

    asyncio.run(check())
    lines = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert len(lines) == 1
    assert key in lines[0]
    assert "t-0" in lines[0]


def test_object_of_a_segment_that_is_being_deleted_is_not_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    key = min(each for each in tier.objects.stored if each.endswith(".log"))
    (segment, *_) = tier.metadata.cache(AT).all()

    async def check() -> None:
        async with running_reads(tier) as remote:
            at = (segment.segment_id, "t", Millis(9), SegmentState.DELETE_SEGMENT_STARTED)
            waiting = remote.fetch(Replica(tier.log), Offset(0), 300, is_committed=False)
            await asyncio.sleep(0)  # it has found the segment
            del tier.objects.stored[key]
            await tier.metadata.update(SegmentUpdate(*at, NodeId(1)))
            with pytest.raises(ObjectDamaged, match="no such object"):
                await waiting
            assert remote.damaged == []

    asyncio.run(check())
    assert not caplog.records
