"""Remote log metadata on its topic: closed until it is read, retried, assigned and reconciled."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.patience import SECONDS_MAX
from tier_harness import AT, Replica, Tier, lead

from ottla.client.cluster import Refused
from ottla.client.offset_spec import LATEST
from ottla.protocol.errors import ErrorCode, is_retriable
from ottla.protocol.types import Millis, NodeId, Offset, TopicIdPartition, TopicPartition, Uuid
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Disk
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.trusted_time import TrustedClock
from ottla.runtime.worker import InlineWorker
from ottla.tiering import metadata_topic
from ottla.tiering.metadata_manager import MetadataNotReady
from ottla.tiering.metadata_records import TOPIC, metadata_partition
from ottla.tiering.metadata_topic import RECONCILE_S, TopicMetadata, TopicPorts, TopicSettings
from ottla.tiering.read_cache import ReadCache
from ottla.tiering.remote_log_manager import ManagerPorts, ManagerSettings, RemoteLogManager
from ottla.tiering.remote_reads import RemoteReads
from ottla.tiering.remote_segment import SegmentReads
from ottla.tiering.segment_metadata import SegmentId, SegmentState, SegmentUpdate

PARTITIONS = 7


async def refuse() -> Any:
    raise ConnectionRefusedError("no broker")


def metadata(connect: Callable[[], Any] = refuse, **ports: Any) -> TopicMetadata:
    disk: Disk = RealDisk()
    settings = TopicSettings(partitions=PARTITIONS)
    return TopicMetadata(settings, TopicPorts(connect, disk, InlineWorker(), **ports))


async def until(service: TopicMetadata, condition: Callable[[], bool]) -> None:
    running = asyncio.ensure_future(service.run(lambda: None))
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])


def test_copies_and_reads_fail_closed_until_the_metadata_is_read(tmp_path: Path) -> None:
    tier, closed = Tier(tmp_path), metadata()
    ports = ManagerPorts(TrustedClock.of(tier.clock), SystemRandom(), lambda: [Replica(tier.log)])
    manager = RemoteLogManager(ManagerSettings(NodeId(1), 1), ports, tier.store, closed)
    rounds = iter(range(50))
    asyncio.run(lead(manager, lambda: next(rounds, None) is None))
    assert not tier.objects.stored, "an object without metadata"
    assert (manager.counts.copied_segments, manager.counts.copy_failures) == (0, 0)
    assert tier.log.remote_end == 0, "local segments may not be deleted"
    update = SegmentUpdate(
        SegmentId(AT, Uuid(bytes(16))),
        "t",
        Millis(1),
        SegmentState.COPY_SEGMENT_FINISHED,
        NodeId(1),
    )

    async def calls() -> None:
        with pytest.raises(MetadataNotReady):
            await closed.update(update)
        reads = SegmentReads(tier.store, ReadCache(1), ReadCache(1), InlineWorker())
        remote = RemoteReads(closed, reads, tier.clock)
        service = asyncio.ensure_future(remote.run(lambda: None))
        await asyncio.sleep(0)
        with pytest.raises(MetadataNotReady) as refused:
            await remote.fetch(Replica(tier.log), Offset(0), 1000, is_committed=False)
        assert is_retriable(refused.value.code)
        service.cancel()
        await asyncio.wait([service])

    asyncio.run(calls())


def test_bootstrap_is_tried_again_and_each_attempt_counted() -> None:
    tried: list[float] = []

    async def connect() -> Any:
        tried.append(time.monotonic())
        raise ConnectionRefusedError("no broker")

    service = metadata(connect)
    asyncio.run(until(service, lambda: len(tried) == 3))
    assert service.attempts == 3 and not service.is_active
    assert tried[1] - tried[0] >= 0.25 and tried[2] - tried[1] >= 0.5


def test_too_few_brokers_for_the_topic_are_reported_with_the_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect() -> Any:
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, TOPIC, "3 replicas on 1 broker")

    monkeypatch.setattr(metadata_topic, "BACKOFF_S_MAX", 0.0)
    caplog.set_level("INFO")
    service = metadata(connect)
    asyncio.run(until(service, lambda: any(r.levelname == "WARNING" for r in caplog.records)))
    levels = [each.levelname for each in caplog.records]
    assert levels[:5] == ["INFO"] * 4 + ["WARNING"], "a starting cluster may fail at first"
    said = caplog.records[4].getMessage()
    assert "rlmm.config.remote.log.metadata.topic.replication.factor" in said


def test_assigned_metadata_partitions_are_sorted_and_unique() -> None:
    service = metadata(leads=lambda partition: partition == 5)
    hosted = [TopicIdPartition(Uuid(bytes([number] * 16)), number % 3) for number in range(30)]
    service.assign(hosted)
    expected = {metadata_partition(each, PARTITIONS) for each in hosted} | {5}
    assert service.assigned() == sorted(expected)


class FakeCluster:
    """A cluster whose metadata partitions have ``end`` records that are never delivered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, end: int = 0) -> None:
        self.followed: set[TopicPartition] = set()
        self._end = end
        monkeypatch.setattr(metadata_topic, "open_producer", self._opened)
        monkeypatch.setattr(metadata_topic, "open_reader", self._opened)
        monkeypatch.setattr(metadata_topic, "list_offsets", self._offsets)

    async def connect(self) -> Any:
        return self

    async def __aenter__(self) -> "FakeCluster":
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def topic(self, name: str) -> Any:
        return SimpleNamespace(partitions=range(PARTITIONS), topic_id=Uuid(bytes(16)))

    @asynccontextmanager
    async def _opened(self, *options: object) -> AsyncIterator[Any]:
        yield self

    async def poll(self) -> list[object]:
        await asyncio.sleep(0.01)
        return []

    async def _offsets(
        self, cluster: object, wanted: Mapping[TopicPartition, object]
    ) -> dict[TopicPartition, Offset]:
        self.followed.update(wanted)
        return {each: Offset(self._end if spec == LATEST else 0) for each, spec in wanted.items()}


@pytest.mark.parametrize("end", [0, 5])
def test_lookup_is_refused_until_its_metadata_partition_is_read(
    monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    service = metadata(FakeCluster(monkeypatch, end).connect)
    service.assign([AT])
    found: list[object] = []

    def is_asked() -> bool:
        if service.is_active:
            try:
                found.append(service.cache(AT))
            except MetadataNotReady as error:
                found.append(str(error))
        return bool(found)

    asyncio.run(until(service, is_asked))
    assert ("up to its end" in str(found[0])) is (end > 0)


def test_assignment_is_applied_again_even_if_no_partition_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A metadata partition that this broker begins to lead is followed from the next time on."""
    assert RECONCILE_S == 30
    monkeypatch.setattr(metadata_topic, "RECONCILE_S", 0.05)
    led: set[int] = set()
    cluster = FakeCluster(monkeypatch)
    service = metadata(cluster.connect, leads=lambda partition: partition in led)

    def is_followed() -> bool:
        if service.is_active:
            led.add(4)
        return cluster.followed == {TopicPartition(TOPIC, 4)}

    asyncio.run(until(service, is_followed))
