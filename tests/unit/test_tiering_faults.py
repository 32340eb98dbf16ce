"""Crashes, other leaders and failing stores, at every step of copying and deleting segments."""

import asyncio
import errno
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX
from tier_harness import (
    AT,
    TOPIC_ID,
    GroupedObjects,
    Objects,
    Replica,
    Steps,
    Tier,
    is_settled,
    lead,
    read_all,
    sealed_bytes,
)

from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.protocol.internal.metadata_topics import (
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.storage.log.log_config import LogConfig
from ottla.storage.log.log_maintenance import delete_old_segments
from ottla.tiering import copy_lag, copy_plan, segment_store
from ottla.tiering.remote_log_manager import RemoteLogManager
from ottla.tiering.segment_metadata import SegmentState
from ottla.tiering.segment_objects import ObjectKind, object_key
from ottla.tiering.segment_store import RemoteStorageFailed

pytestmark = pytest.mark.slow


def count_of_steps(root: Path, records: int, memory: Objects) -> int:
    tier = Tier(root, records, memory=memory)
    asyncio.run(
        lead(tier.broker(1, Replica(tier.log)), lambda: tier.log.remote_end == tier.sealed_end)
    )
    tier.check_nothing_is_orphaned()
    return tier.objects.steps.count


def test_every_copied_segment_reads_as_it_was_written(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    asyncio.run(
        lead(tier.broker(1, Replica(tier.log)), lambda: tier.log.remote_end == tier.sealed_end)
    )
    whole = tier.bytes
    active = len(Path(tier.log.segments[-1].path).read_bytes())
    delete_old_segments(tier.log, Millis(10_000))
    assert len(tier.log.segments) == 1
    assert tier.log.log_start_offset == 0
    assert asyncio.run(read_all(tier)) == whole[: len(whole) - active]


@pytest.mark.parametrize("part", range(4))
def test_crash_at_every_step_of_a_copy_is_repaired_by_the_next_leader(
    tmp_path: Path, part: int
) -> None:
    steps = count_of_steps(tmp_path / "count", 60, Objects())
    assert steps > 60
    crash_at_steps(tmp_path, range(part, steps, 4), 60, Objects)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_crash_at_every_step_of_a_group_is_repaired_by_the_next_leader(
    tmp_path: Path, *, is_reversed: bool
) -> None:
    steps = count_of_steps(tmp_path / "count", 24, GroupedObjects(is_reversed=is_reversed))
    assert steps > 30
    crash_at_steps(tmp_path, range(steps), 24, lambda: GroupedObjects(is_reversed=is_reversed))


def crash_at_steps(root: Path, steps: range, records: int, store: Callable[[], Objects]) -> None:
    """Crash a broker at each of the steps; another one repairs it."""
    for step in steps:
        tier = Tier(root / str(step), records, memory=store())
        tier.objects.steps = Steps(step)
        first, second = Replica(tier.log), Replica(tier.log)
        asyncio.run(lead(tier.broker(1, first), lambda: False, 20))  # ends with the crash
        assert tier.objects.steps.count == step
        tier.objects.steps = Steps()
        second.leader_epoch = LeaderEpoch(1)
        manager = tier.broker(2, second)
        asyncio.run(lead(manager, partial(is_settled, tier)))
        tier.check_nothing_is_orphaned()
        assert asyncio.run(read_all(tier)) == tier.bytes[: sealed_bytes(tier)]


def test_segments_that_are_due_are_stored_together_and_finished_afterwards(tmp_path: Path) -> None:
    """Their objects become durable first, then their manifests, then the metadata says so."""
    objects = GroupedObjects()
    tier = Tier(tmp_path, memory=objects)
    sealed = len(tier.log.segments) - 1
    assert 1 < sealed <= copy_plan.GROUP_SEGMENTS_MAX
    objects.hold = asyncio.Event()
    manager = tier.broker(1, Replica(tier.log))

    async def scenario() -> None:
        service = asyncio.ensure_future(manager.run(lambda: None))
        for groups in (1, 2):
            while len(objects.groups) < groups:  # noqa: ASYNC110 - no one event
                await asyncio.sleep(0.001)
            states = [each.state for each in tier.metadata.cache(AT).all()]
            assert states == [SegmentState.COPY_SEGMENT_STARTED] * sealed
            assert tier.log.remote_end == 0
            assert objects.hold is not None
            objects.hold.set()
            objects.hold = asyncio.Event()
        service.cancel()
        await asyncio.wait([service])

    asyncio.run(scenario())
    contents, manifests = objects.groups
    assert len(contents) == 5 * sealed
    assert len(manifests) == sealed
    assert all(each.endswith(ObjectKind.MANIFEST.suffix) for each in manifests)


def test_segments_are_copied_one_by_one_to_a_store_without_groups(tmp_path: Path) -> None:
    """A small object that cannot be stored does not repeat the upload of others."""
    tier = Tier(tmp_path)
    puts: list[str] = []

    def fail_first_indexes(request: str, key: str) -> None:
        if request == "put":
            puts.append(key)
            if key.endswith(".index") and puts.count(key) < 3:
                raise OSError(errno.EIO, "503 slow down", key)

    tier.objects.fault = fail_first_indexes
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), partial(is_settled, tier)))
    manifests = [at for at, key in enumerate(puts) if key.endswith(".manifest")]
    second = next(at for at, key in enumerate(puts) if key[:60] != puts[0][:60])
    assert manifests[0] < second
    assert {puts.count(key) for key in puts if not key.endswith(".index")} == {1}
    assert {puts.count(key) for key in puts if key.endswith(".index")} == {3}


def test_quota_bounds_what_is_copied_together(tmp_path: Path) -> None:
    """A group is paid for afterwards: it is at most the bytes of a second."""
    objects = GroupedObjects()
    tier = Tier(tmp_path, memory=objects)
    manager = tier.broker(1, Replica(tier.log))
    manager.copy_quota.limit(100)  # less than a segment
    asyncio.run(lead(manager, lambda: tier.log.remote_end > 0))
    logs = [key for key in objects.stored if key.endswith(".log")]
    assert len(logs) == 1


def test_crash_at_every_step_of_a_deletion_is_finished_by_the_next_leader(tmp_path: Path) -> None:
    for step in range(0, 30, 2):
        tier = Tier(tmp_path / str(step), records=30)
        replica = Replica(tier.log)
        asyncio.run(lead(tier.broker(1, replica), partial(_is_copied, tier)))
        tier.log.configure(_retain(0))
        tier.objects.steps = Steps(step)
        asyncio.run(lead(tier.broker(1, replica), partial(_is_empty, tier)))
        tier.objects.steps = Steps()
        replica.leader_epoch = LeaderEpoch(1)
        asyncio.run(lead(tier.broker(2, replica), partial(_is_forgotten, tier)))
        assert tier.objects.stored == {}
        assert tier.log.log_start_offset == tier.sealed_end


def _is_copied(tier: Tier) -> bool:
    return tier.log.remote_end == tier.sealed_end


def _is_empty(tier: Tier) -> bool:
    return not tier.objects.stored


def _is_forgotten(tier: Tier) -> bool:
    return not len(tier.metadata.cache(AT))


def _retain(size: int) -> LogConfig:
    return LogConfig(segment_bytes=2000, is_tiered=True, retention_ms=-1, retention_bytes=size)


@pytest.mark.parametrize("is_moved_first", [False, True])
def test_last_leader_deletes_the_segments_of_a_deleted_topic(
    tmp_path: Path, is_moved_first: bool
) -> None:
    """The metadata partition may be led by an Apache Kafka broker, which leaves that to it."""
    tier = Tier(tmp_path)
    tier.metadata.is_responsible = lambda partition: False  # type: ignore[method-assign]
    hosted, image = [Replica(tier.log)], image_with(replicas=[1])
    manager = tier.broker_of(1, lambda: hosted, lambda: image)

    async def run() -> None:
        nonlocal image
        await lead(manager, partial(_is_copied, tier))
        hosted.clear()
        if is_moved_first:
            image = image_with(replicas=[2])
            await rounds(manager)
        image = image_with(replicas=None)
        await rounds(manager) if is_moved_first else await lead(manager, partial(_is_empty, tier))

    asyncio.run(run())
    assert bool(tier.objects.stored) is is_moved_first
    assert _is_forgotten(tier) is not is_moved_first


def image_with(*, replicas: list[int] | None) -> Image:
    """Return an image with the topic on these brokers; None: without the topic."""
    records: list[Message] = [ProducerIdsRecord(broker_id=1, next_producer_id=1000)]
    if replicas is not None:
        records.append(TopicRecord("t", TOPIC_ID))
        records.append(PartitionRecord(0, TOPIC_ID, replicas, isr=replicas, leader=replicas[0]))
    return replay_all(EMPTY, records)


async def rounds(manager: RemoteLogManager) -> None:
    """Run a broker for some rounds."""
    end = time.monotonic() + 0.1
    await lead(manager, lambda: time.monotonic() > end)


def test_replaced_leader_deletes_its_copy(tmp_path: Path) -> None:
    """The first leader blocks inside an upload; the second does everything meanwhile."""
    tier = Tier(tmp_path)

    async def race() -> None:
        first, second = Replica(tier.log), Replica(tier.log)
        held = tier.objects.hold = asyncio.Event()
        service = asyncio.ensure_future(tier.broker(1, first).run(lambda: None))
        while not len(tier.metadata.cache(AT)):  # noqa: ASYNC110 - no one event
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # inside the first upload
        tier.objects.hold = None
        second.leader_epoch = LeaderEpoch(1)
        await lead(tier.broker(2, second), lambda: is_settled(tier))
        before = set(tier.objects.stored)
        held.set()  # the first leader does not know of the second yet, and goes on
        for _ in range(200):
            await asyncio.sleep(0.001)
        first.is_leader = False
        service.cancel()
        await asyncio.wait([service])
        assert before <= set(tier.objects.stored)

    asyncio.run(race())
    tier.check_nothing_is_orphaned()
    assert asyncio.run(read_all(tier)) == tier.bytes[: sealed_bytes(tier)]


def test_objects_that_a_replaced_leader_stores_late_are_deleted(tmp_path: Path) -> None:
    """It crashes after its last upload, when its copy was given up and deleted already."""
    tier = Tier(tmp_path)
    tier.objects.hold = asyncio.Event()
    with pytest.raises(TimeoutError):  # it is inside an upload for ever
        asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: False, 0.2))
    (copy,) = tier.metadata.cache(AT).all()
    tier.objects.hold = None
    second = Replica(tier.log)
    second.leader_epoch = LeaderEpoch(1)

    async def race() -> None:
        service = asyncio.ensure_future(tier.broker(2, second, 700).run(lambda: None))
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while tier.log.remote_end != tier.sealed_end:  # noqa: ASYNC110 - no one event
                    await asyncio.sleep(0.001)
                tier.objects.stored[object_key("", copy, ObjectKind.LOG)] = b"late"
                while not is_settled(tier):  # noqa: ASYNC110 - no one event
                    await asyncio.sleep(0.001)
        finally:
            service.cancel()
            await asyncio.wait([service])

    asyncio.run(race())
    tier.check_nothing_is_orphaned()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_store, "BACKOFF_S", 0.0001)


def test_failing_store_keeps_local_segments_until_everything_is_verified(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    turn = 0

    def fail(request: str, key: str) -> None:
        nonlocal turn
        turn += 1
        if turn % 3:
            raise OSError(errno.EIO, "503 slow down", key)

    replica = Replica(tier.log)

    segments = len(tier.log.segments)
    tier.objects.fault = _always_fails
    failing = tier.broker(1, replica)
    asyncio.run(lead(failing, lambda: failing.counts.delete_failures >= 3))
    assert failing.counts.copy_failures == 1  # nothing new is begun before it is cleaned up
    delete_old_segments(tier.log, Millis(10_000))
    assert len(tier.log.segments) == segments  # nothing was deleted: nothing was copied
    tier.objects.fault = fail
    asyncio.run(lead(tier.broker(1, replica), lambda: is_settled(tier)))
    tier.objects.fault = lambda request, key: None
    tier.check_nothing_is_orphaned()


def _always_fails(request: str, key: str) -> None:
    raise PermissionError(errno.EACCES, "the token has expired", key)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:] if len(data) > 70 else data,
    ],
    ids=["truncated", "changed"],
)
def test_object_that_reads_wrong_is_not_counted_as_copied(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    tier = Tier(tmp_path)
    tier.objects.spoil, tier.objects.spoils = spoil, ".log"
    manager = tier.broker(1, Replica(tier.log))
    asyncio.run(lead(manager, lambda: manager.counts.copy_failures >= 2))
    assert tier.log.remote_end == 0
    tier.objects.spoil = lambda data: data
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    tier.check_nothing_is_orphaned()


def test_changed_or_missing_object_is_never_returned(tmp_path: Path) -> None:
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    key = min(each for each in tier.objects.stored if each.endswith(".log"))
    good = tier.objects.stored[key]
    tier.objects.stored[key] = good[:100] + bytes([good[100] ^ 1]) + good[101:]
    with pytest.raises(RemoteStorageFailed, match="CRC"):
        asyncio.run(read_all(tier))
    del tier.objects.stored[key]
    with pytest.raises(RemoteStorageFailed, match="no such object"):
        asyncio.run(read_all(tier))
    tier.objects.stored[key] = good
    index = key.replace(".log", ".index")
    tier.objects.stored[index] += b"12345678"
    assert asyncio.run(read_all(tier)) == tier.bytes[: sealed_bytes(tier)]  # the stored size counts
    tier.objects.stored[index] = b"\xff" * len(tier.objects.stored[index])
    with pytest.raises(RemoteStorageFailed, match="not what was stored"):
        asyncio.run(read_all(tier))


def test_truncated_log_keeps_segments_that_replace_copied_ones(tmp_path: Path) -> None:
    """After an unclean election other records have the offsets of copied ones."""
    tier = Tier(tmp_path)
    asyncio.run(lead(tier.broker(1, Replica(tier.log)), lambda: is_settled(tier)))
    tier.log.truncate_to(Offset(20))
    tier.append(40, epoch=1)
    segments = len(tier.log.segments)
    assert tier.log.remote_end == 20
    delete_old_segments(tier.log, Millis(10_000))
    kept = tier.log.segments
    assert len(kept) < segments  # those before the cut
    assert kept[0].base_offset <= 20
    # The new history is copied, and read instead of the old one.
    replica = Replica(tier.log)
    replica.leader_epoch = LeaderEpoch(1)
    asyncio.run(lead(tier.broker(1, replica), lambda: tier.log.remote_end == tier.sealed_end))
    data = asyncio.run(read_all(tier))
    assert data.count(b"0019") > 0
    assert b"new1" in data


def test_broker_hurries_while_copies_fall_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_lag, "URGENT_STALLED_MS", 20)
    tier = Tier(tmp_path)

    async def scenario() -> None:
        held = tier.objects.hold = asyncio.Event()
        manager = tier.broker(1, Replica(tier.log))
        await lead(manager, lambda: any(tier.hurried))
        assert not tier.hurried[0]
        assert manager.counts.partitions_behind == 1
        tier.objects.hold = None
        held.set()
        await lead(manager, lambda: is_settled(tier) and not tier.hurried[-1])
        assert manager.counts.partitions_behind == 0

    asyncio.run(scenario())
