"""The remote log tasks of a broker: copy, expire and delete segments of the partitions it hosts.

Service. Every ``remote.log.manager.task.interval.ms``:

    leader     delete what is unfinished, copy the sealed segments that are due, delete expired ones
    follower   look up how far remote storage reaches, so that local segments may be deleted
    disabled   a topic that is no longer tiered: delete its remote segments (KIP-950)
    deleted    a topic that is no longer in the image: delete its remote segments

Everything is decided anew from the metadata in each round, so a crash at any step is repaired by
the next round, on this broker or on the next leader. A task that failed is retried with backoff.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from ottla.metadata.image import EMPTY, Image
from ottla.protocol.faults import Fault, OffsetOutOfRange, StorageFailed
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicIdPartition, Uuid
from ottla.quotas.replication_throttle import Allowance
from ottla.runtime.ports import Random
from ottla.runtime.trusted_time import TrustedClock
from ottla.storage.log.log import Log
from ottla.tiering.copy_lag import CopyProgress, DueSegments, follow_copies
from ottla.tiering.copy_plan import (
    GROUP_BYTES_MAX,
    Abandoned,
    Candidate,
    CopyLag,
    CopyState,
    first_remote_offset,
    group_copies,
    highest_remote_offset,
    plan_copy,
    unfinished,
)
from ottla.tiering.metadata_manager import MetadataNotReady, RemoteLogMetadataManager
from ottla.tiering.remote_retention import RemoteLogState, plan_remote_retention
from ottla.tiering.segment_lifecycle import CopierPorts, SegmentCopier
from ottla.tiering.segment_metadata import SegmentMetadata
from ottla.tiering.segment_store import SegmentStore

log = logging.getLogger(__name__)


class TieredPartition(Protocol):
    """A hosted partition, as far as its remote segments are concerned."""

    topic: str
    index: int
    topic_id: Uuid
    log: Log
    is_leader: bool
    leader_epoch: LeaderEpoch
    offline: StorageFailed | None

    def log_trimmed(self) -> None:
        """Notify readers that the log start has advanced."""
        ...


class ManagerSettings(msgspec.Struct, frozen=True):
    """Kafka's ``remote.log.manager.*``; times are milliseconds.

    ``abandoned_ms``: how long another broker may go on storing objects of a copy that was given up.
    """

    node_id: NodeId
    interval_ms: int = 30_000
    copiers: int = 10
    backoff_ms: int = 500
    backoff_ms_max: int = 30_000
    jitter: float = 0.2
    custom_bytes_max: int = 128
    abandoned_ms: int = 600_000


class ManagerPorts(msgspec.Struct, frozen=True):
    """What the manager needs of its node. ``partitions`` returns those hosted here.

    ``hurry`` is called in each round with whether copies fall behind.
    """

    clock: TrustedClock
    random: Random
    partitions: Callable[[], Iterable[TieredPartition]]
    image: Callable[[], Image] = lambda: EMPTY
    is_internal: Callable[[str], bool] = lambda topic: topic.startswith("__")
    hurry: Callable[[bool], None] = lambda is_behind: None


class _Task(msgspec.Struct):
    """The state of one partition's task. ``epoch`` is the leader epoch it was prepared for."""

    epoch: LeaderEpoch | None = None
    is_running: bool = False
    failures: int = 0
    due: Millis = Millis(0)
    progress: CopyProgress | None = None


class RemoteLogCounts(msgspec.Struct):
    """What the tasks have done since the start."""

    copied_segments: int = 0
    copied_bytes: int = 0
    copy_failures: int = 0
    deleted_segments: int = 0
    delete_failures: int = 0
    partitions_behind: int = 0


class RemoteLogManager:
    """Service: runs the tasks. One per broker."""

    name = "remote-log-manager"

    def __init__(
        self,
        settings: ManagerSettings,
        ports: ManagerPorts,
        store: SegmentStore,
        metadata: RemoteLogMetadataManager,
    ) -> None:
        self.settings = settings
        self.metadata = metadata
        self.counts = RemoteLogCounts()
        self.copy_quota = Allowance()
        self._ports = ports
        self._store = store
        copier_ports = CopierPorts(settings.node_id, settings.custom_bytes_max, ports.clock.now,
                                   ports.random)  # fmt: skip
        self._copier = SegmentCopier(copier_ports, store, metadata)
        self._tasks: dict[TopicIdPartition, _Task] = {}
        self._led: set[TopicIdPartition] = set()
        """Partitions led here, and those led here when their topic was deleted."""
        self.copiers = settings.copiers
        self._copying = asyncio.Semaphore(settings.copiers)
        self._changed = asyncio.Event()

    def resize(self, copiers: int) -> None:
        """Change how many partitions are worked on at once; tasks in progress go on."""
        if copiers != self.copiers:
            self.copiers, self._copying = copiers, asyncio.Semaphore(copiers)

    def wake(self) -> None:
        """Begin the next round now: the image has changed."""
        self._changed.set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Run rounds until cancelled."""
        ready()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                self._begin_round(tasks)
                try:
                    async with asyncio.timeout(self.settings.interval_ms / 1000):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    # -- rounds --------------------------------------------------------------------

    def _begin_round(self, tasks: asyncio.TaskGroup) -> None:
        hosted = {
            TopicIdPartition(partition.topic_id, partition.index): partition
            for partition in self._ports.partitions()
            if not self._ports.is_internal(partition.topic)
        }
        self._note_led(hosted)
        self._watch_copies(hosted)
        self.metadata.assign({*hosted, *self._led})
        for at, partition in hosted.items():
            if partition.offline is not None or partition.log.is_failed:
                continue
            if not partition.is_leader:
                self._follow(at, partition)
            elif self._has_work(at, partition):
                self._begin(tasks, at, partition)
        for at in self._deleted(hosted):
            self._begin(tasks, at, None)
        for gone in [at for at, task in self._tasks.items() if not task.is_running]:
            if gone not in hosted and gone not in self.metadata.known():
                del self._tasks[gone]

    def _watch_copies(self, hosted: Mapping[TopicIdPartition, TieredPartition]) -> None:
        """Look at the tasks that an earlier round began: do their copies fall behind?"""
        now, wall = self._ports.clock.monotonic(), self._ports.clock.now()
        for at, task in self._tasks.items():
            partition, before = hosted.get(at), task.progress
            task.progress = None
            if task.is_running and partition is not None and partition.log.config.is_copied:
                local_bytes = partition.log.config.disk_retention_bytes
                due = _due(partition.log, wall)
                task.progress = follow_copies(before, due, local_bytes, now)
        behind = sum(1 for t in self._tasks.values() if t.progress and t.progress.is_behind)
        self.counts.partitions_behind = behind
        self._ports.hurry(behind > 0)

    def _has_work(self, at: TopicIdPartition, partition: TieredPartition) -> bool:
        return partition.log.config.is_tiered or bool(self.metadata.known().get(at))

    def _note_led(self, hosted: Mapping[TopicIdPartition, TieredPartition]) -> None:
        """Note what is led here; forget what was moved away, or has no segments any more."""
        for at, partition in hosted.items():
            if partition.is_leader and self._has_work(at, partition):
                self._led.add(at)
            else:
                self._led.discard(at)
        for at in self._led - hosted.keys():
            if self._is_moved(at) or self._is_forgotten(at):
                self._led.discard(at)

    def _is_moved(self, at: TopicIdPartition) -> bool:
        """Return whether other brokers have a partition that was led here."""
        topic = self._ports.image().topics.by_id.get(at.topic_id)
        return (
            topic is not None
            and self.settings.node_id not in topic.partitions[at.partition].replicas
        )

    def _is_forgotten(self, at: TopicIdPartition) -> bool:
        try:
            return not len(self.metadata.cache(at))
        except MetadataNotReady:
            return False

    def _deleted(self, hosted: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
        """Return the partitions of deleted topics whose segments this broker has to delete.

        They are deleted by the broker that leads their metadata, as often as needed, and by the one
        that led the partition: the former may be one of Apache Kafka, which leaves that to it.
        """
        image = self._ports.image()
        if image is EMPTY:
            return []
        here = set(hosted)
        return [
            at
            for at, cache in list(self.metadata.known().items())
            if len(cache)
            and at not in here
            and at.topic_id not in image.topics.by_id
            and (at in self._led or self.metadata.is_responsible(at))
        ]

    def _begin(
        self, tasks: asyncio.TaskGroup, at: TopicIdPartition, partition: TieredPartition | None
    ) -> None:
        task = self._tasks.setdefault(at, _Task())
        if not task.is_running and self._ports.clock.monotonic() >= task.due:
            task.is_running = True
            tasks.create_task(self._run_task(task, at, partition), name=f"remote log {at}")

    async def _run_task(
        self, task: _Task, at: TopicIdPartition, partition: TieredPartition | None
    ) -> None:
        try:
            async with self._copying:
                if partition is None:
                    await self._delete_all(at)
                elif partition.log.config.is_tiered:
                    await self._lead(task, at, partition)
                else:
                    await self._disable(at, partition)
            task.failures = 0
        except MetadataNotReady:
            pass  # tried again in the next round
        except (Fault, OSError) as error:
            task.epoch = None
            task.failures += 1
            self._delay(task)
            log.warning("remote log task failed partition=%s failures=%d reason=%s", at,
                        task.failures, error)  # fmt: skip
        finally:
            task.is_running = False

    def _delay(self, task: _Task) -> None:
        settings = self.settings
        backoff = min(settings.backoff_ms_max, settings.backoff_ms * 2 ** min(task.failures, 16))
        spread = 1 + settings.jitter * (2 * self._ports.random.fraction() - 1)
        task.due = Millis(self._ports.clock.monotonic() + int(backoff * spread))

    # -- followers -----------------------------------------------------------------

    def _follow(self, at: TopicIdPartition, partition: TieredPartition) -> None:
        """Update how far remote storage reaches; a follower deletes its copies up to there."""
        if not partition.log.config.is_tiered:
            return
        try:
            self._update_remote_end(at, partition.log)
        except MetadataNotReady:
            return

    def _update_remote_end(self, at: TopicIdPartition, local: Log) -> None:
        cache = self.metadata.cache(at)
        highest = highest_remote_offset(local.epochs, local.log_end_offset, cache.highest_offset)
        local.remote_end = Offset(highest + 1)

    # -- leaders -------------------------------------------------------------------

    async def _lead(self, task: _Task, at: TopicIdPartition, partition: TieredPartition) -> None:
        epoch = partition.leader_epoch

        def is_current() -> bool:
            return (
                partition.is_leader
                and partition.leader_epoch == epoch
                and partition.log.config.is_tiered
            )

        cache = self.metadata.cache(at)
        for abandoned in unfinished(cache.all(), self._copier.copying):
            if not is_current():
                return
            await self._delete(abandoned)
        if task.epoch != epoch:
            self._correct_log_start(at, partition)
            task.epoch = epoch
        self._update_remote_end(at, partition.log)
        if not partition.log.config.is_remote_copy_disabled:
            await self._copy(partition, at, is_current)
        if is_current():
            await self._expire(at, partition, is_current)

    def _correct_log_start(self, at: TopicIdPartition, partition: TieredPartition) -> None:
        """Start the log with its first remote segment: a new leader's start may be outdated.

        An offset before it is in neither storage.
        """
        cache, local = self.metadata.cache(at), partition.log
        first = first_remote_offset(local.epochs, cache.of_epoch)
        start = local.local_log_start_offset if first is None else first
        self._advance_log_start(partition, min(start, local.local_log_start_offset))

    def _advance_log_start(self, partition: TieredPartition, offset: Offset) -> None:
        try:
            if partition.log.advance_log_start(offset):
                partition.log_trimmed()
        except OffsetOutOfRange:
            return  # not replicated yet; in the next round

    async def _copy(
        self, partition: TieredPartition, at: TopicIdPartition, is_current: Callable[[], bool]
    ) -> None:
        local = partition.log
        for group in self._groups(local):
            wait_ms = self.copy_quota.wait_ms(self._ports.clock.monotonic())
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
            if not is_current():
                return
            try:
                copied = await self._copier.copy(partition.topic, at, local, group, is_current)
            except (Fault, OSError):
                self.counts.copy_failures += 1
                raise
            size = sum(each.size for each in copied)
            self.copy_quota.spend(size, self._ports.clock.monotonic())
            self.counts.copied_segments += len(copied)
            self.counts.copied_bytes += size
            self._update_remote_end(at, local)
            if len(copied) < len(group):
                return  # planned anew in the next round

    def _groups(self, local: Log) -> Iterable[list[Candidate]]:
        """Return the segments to copy, those to be copied together as one list."""
        bytes_max = GROUP_BYTES_MAX if self._store.is_grouped else 0
        if self.copy_quota.is_limited:
            bytes_max = min(bytes_max, self.copy_quota.rate)
        sizes = {each.base_offset: each.size for each in local.segments}
        return group_copies(_planned(local, self._ports.clock.now()), sizes, bytes_max)

    async def _expire(
        self, at: TopicIdPartition, partition: TieredPartition, is_current: Callable[[], bool]
    ) -> None:
        local, cache = partition.log, self.metadata.cache(at)
        state = RemoteLogState(
            local.epochs.entries,
            local.log_start_offset,
            local.log_end_offset,
            sum(each.size for each in local.segments if each.base_offset >= local.remote_end),
            local.config.retention_ms,
            local.config.retention_bytes,
        )
        now = self._ports.clock.expiry()
        plan = plan_remote_retention(state, cache.all(), cache.of_epoch, self._copier.copying, now)
        if plan.log_start is not None:
            self._advance_log_start(partition, plan.log_start)
        for metadata in plan.segments:
            if not is_current():
                return
            await self._delete(metadata)

    # -- deletion ------------------------------------------------------------------

    async def _disable(self, at: TopicIdPartition, partition: TieredPartition) -> None:
        """Start the log with its local part, and delete the remote one (KIP-950)."""
        self._advance_log_start(partition, partition.log.local_log_start_offset)
        await self._delete_all(at)

    async def _delete_all(self, at: TopicIdPartition) -> None:
        for metadata in self.metadata.cache(at).all():
            if metadata.segment_id not in self._copier.copying:
                await self._delete(metadata)

    async def _delete(self, metadata: SegmentMetadata) -> None:
        settings = self.settings
        abandoned = Abandoned(settings.node_id, settings.abandoned_ms, self._ports.clock.now())
        if not abandoned.is_due(metadata):
            return
        try:
            await self._copier.delete(metadata, is_last=not abandoned.may_grow(metadata))
        except (Fault, OSError):
            self.counts.delete_failures += 1
            raise
        self.counts.deleted_segments += 1


def _planned(local: Log, now: Millis) -> list[Candidate]:
    state = CopyState(local.remote_end, local.log_start_offset, local.last_stable_offset)
    lag = CopyLag(local.config.copy_lag_ms, local.config.copy_lag_bytes)
    return plan_copy(local.segments, state, lag, now)


def _due(local: Log, now: Millis) -> DueSegments:
    bases = {candidate.base_offset for candidate in _planned(local, now)}
    size = sum(each.size for each in local.segments if each.base_offset in bases)
    return DueSegments(len(bases), size, local.remote_end)
