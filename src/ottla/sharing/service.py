"""Service: the share partitions led here, loaded when first fetched and stored durably.

One window per group and partition (`SharePartition`). Its state is read from the share coordinator
before anything is delivered; a failed read is an error that the client retries, never an empty
window, which would deliver everything again. Changes are written one write at a time; a failed
write leaves its records dirty, to be written by the next one or by the timer. A fenced write ends
the window: another leader has taken over, or an operator has reset it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    Fault,
    NotLeader,
    OffsetMovedToTieredStorage,
    UnknownTopicOrPartition,
)
from ottla.protocol.types import LeaderEpoch, Millis, Offset, TopicIdPartition
from ottla.replication.partition import Partition
from ottla.sharing.acquisition import (
    Ack,
    Acquire,
    Acquired,
    AcquireMode,
    Acquisition,
)
from ottla.sharing.dead_letter_driver import DeadLetterDriver
from ottla.sharing.loaded_partition_driver import LoadedPartition, RemoteRead, read_part
from ottla.sharing.ports import ShareDependencies, ShareGroupConfig, ShareKey
from ottla.sharing.share_partition import SharePartition, start_for

log = logging.getLogger(__name__)

TICK_MS: Final = 200
"""How late a lock may expire, and how soon a failed write is retried."""

LOAD_MS: Final = 5000
"""How long a fetch waits for state: well below the 30 s that a client waits for a reply."""

# Codes of a write by a fenced leader, or of an older state epoch.
_OVER: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


def _always() -> bool:
    return True


class FetchLimits(NamedTuple):
    """The limits of a ShareFetch, over all of its partitions. Waits are milliseconds.

    ``is_open`` says whether the session of the fetch is still open: if not, it acquires nothing.
    """

    group_id: str
    member_id: str
    records_max: int
    bytes_max: int
    batch_size: int
    mode: AcquireMode
    wait_ms_max: int
    is_open: Callable[[], bool] = _always


class Fetched(NamedTuple):
    """The result of one partition."""

    place: TopicIdPartition
    code: ErrorCode = ErrorCode.NONE
    records: bytes = b""
    acquired: Sequence[Acquired] = ()


class SharePartitions:
    """All share partitions of this broker."""

    name = "share-partitions"

    def __init__(self, parts: ShareDependencies) -> None:
        self._parts = parts
        self._cells: dict[ShareKey, LoadedPartition] = {}
        self._left: set[str] = set()
        self._dead_letters = DeadLetterDriver(parts, self._present, self._persist)

    # -- windows ---------------------------------------------------------------

    def windows(self) -> list[SharePartition]:
        """Return the loaded windows, for operators."""
        return [cell.window for cell in self._cells.values()]

    def forget(self, key: ShareKey) -> None:
        """Drop a window: its stored state was changed elsewhere."""
        cell = self._cells.pop(key, None)
        if cell is not None:
            cell.wake()

    def on_unled(self, topic: str, index: int, epoch: LeaderEpoch | None) -> None:
        """Drop the windows of a partition that is no longer led here."""
        for key, cell in list(self._cells.items()):
            partition = cell.window.partition
            if partition.topic == topic and partition.index == index:
                self.forget(key)

    async def refresh(self, group_id: str) -> None:
        """Drop the windows of a group without acquired records: the next fetch loads them again.

        Called when the first member of a group arrives: an operator may have reset the group since.
        A window with dead records is loaded again at once: the member may never fetch it.
        """
        self._left.discard(group_id)
        dropped = await self._drop_idle(group_id, has_dead=True)
        places = [cell.window.key.place for cell in dropped if cell.window.acquisition.dead()]
        if places:
            await self._load(group_id, places)

    async def drop_left(self) -> None:
        """Drop the windows of groups that have no members here: the next may use another broker.

        A window with dead records stays until their letters are written.
        """
        left, self._left = self._left, set()
        await asyncio.gather(*(self._drop_idle(name, has_dead=False) for name in sorted(left)))
        self._left |= {
            key.group_id
            for key, cell in self._cells.items()
            if key.group_id in left and cell.window.acquisition.dead()
        }

    async def _drop_idle(self, group_id: str, *, has_dead: bool) -> list[LoadedPartition]:
        """Drop the windows of a group without acquired records; return them.

        ``has_dead``: also those with dead records.
        """

        def is_idle(cell: LoadedPartition) -> bool:
            acquisition = cell.window.acquisition
            return acquisition.next_deadline() is None and (has_dead or not acquisition.dead())

        cells = [cell for key, cell in self._cells.items() if key.group_id == group_id]
        idle = [cell for cell in cells if is_idle(cell)]
        await asyncio.gather(*map(self._persist, idle))
        dropped: list[LoadedPartition] = []
        for cell in idle:
            key, is_dirty = cell.window.key, cell.window.acquisition.is_dirty
            if is_idle(cell) and not is_dirty and self._cells.get(key) is cell:
                self.forget(key)
                dropped.append(cell)
        return dropped

    def let_go(self, group_id: str, member_id: str, *, is_last: bool) -> None:
        """Release all records of a member whose connection is closed; written by the timer.

        ``is_last``: the group has no other member here, so that its windows are not needed.
        """
        self._take_back(group_id, member_id)
        if is_last:
            self._left.add(group_id)

    def lock_ms(self, group_id: str) -> int:
        """Return how long a member may hold the lock on a record."""
        return self._parts.terms_of(group_id).lock_ms

    def _partition(self, place: TopicIdPartition) -> Partition:
        partition = self._parts.partitions.by_id(*place)
        if partition is None:
            raise NotLeader(f"partition {place.partition} is not hosted here")
        partition.check_online()
        partition.check_leader()
        return partition

    async def _cell(self, key: ShareKey) -> LoadedPartition:
        """Return the window, loaded. Raises a fault that the client retries."""
        partition = self._partition(key.place)
        cell = self._present(key)
        if cell is not None:
            return cell
        epoch = partition.leader_epoch
        found = await self._parts.persister.read(key, epoch)
        if found.code is not ErrorCode.NONE:
            raise NotLeader(f"{partition}: no state for {key.group_id}: {found.code.name}")
        partition = self._partition(key.place)
        if partition.leader_epoch != epoch:
            raise NotLeader(f"{partition}: elected again while its state was loaded")
        cell = self._present(key)  # another fetch may have loaded it meanwhile
        if cell is None:
            parts = self._parts
            if found.start < 0:
                start = start_for(partition, parts.terms_of(key.group_id), parts.clock.now())
                acquisition = Acquisition(start, parts.limits, is_chosen=True)
            else:
                acquisition = Acquisition.load(Offset(found.start), found.batches, parts.limits)
            window = SharePartition(key, partition, acquisition, found.state_epoch)
            cell = self._cells[key] = LoadedPartition(window)
            self._dead_letters.loaded(cell)
            self._note_terms(cell)
        return cell

    def _note_terms(self, cell: LoadedPartition) -> None:
        """Update whether the group has a dead-letter topic at present."""
        terms = self._parts.terms_of(cell.window.key.group_id)
        cell.window.acquisition.has_dead_letters = terms.dead_letters is not None

    def _present(self, key: ShareKey) -> LoadedPartition | None:
        cell = self._cells.get(key)
        if cell is not None and not cell.window.is_current:
            self.forget(key)
            return None
        return cell

    # -- durability ------------------------------------------------------------

    async def _persist(self, cell: LoadedPartition) -> ErrorCode:
        """Write what is dirty. Only a fenced write concerns the caller."""
        async with cell.writing:
            window = cell.window
            write = window.acquisition.take_dirty()
            if write is None:
                return ErrorCode.NONE
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            try:
                code = await self._parts.persister.write(
                    window.key, window.state_epoch, window.leader_epoch, write
                )
            except Fault as fault:
                code = fault.code
            finally:
                if code is not ErrorCode.NONE:
                    window.acquisition.on_failed(write)
        if code in _OVER:
            if self._cells.get(window.key) is cell:
                self.forget(window.key)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code is not ErrorCode.NONE:
            log.warning("share state not written partition=%s code=%s", window.partition, code.name)
        return ErrorCode.NONE

    # -- acknowledge -----------------------------------------------------------

    async def acknowledge(self, key: ShareKey, member_id: str, acks: Sequence[Ack]) -> ErrorCode:
        """Apply the acknowledgements of a member; durable when NONE is returned.

        If the write itself failed, it is retried, and a leader that fails before that delivers the
        records once more.
        """
        try:
            self._partition(key.place)
        except Fault as fault:
            return fault.code
        cell = self._present(key)
        if cell is None:
            return ErrorCode.INVALID_RECORD_STATE  # no records are acquired
        self._note_terms(cell)
        deadline = self._deadline(key.group_id)
        code = cell.window.acquisition.acknowledge(member_id, acks, deadline)
        if code is not ErrorCode.NONE:
            return code
        cell.wake()
        return await self._persist(cell)

    async def release(self, group_id: str, member_id: str) -> None:
        """Release all records that a member has acquired here, since its session has ended.

        Partitions that the session no longer fetched are included. A waiting fetch of the member
        returns.
        """
        await asyncio.gather(*map(self._persist, self._take_back(group_id, member_id)))

    def _take_back(self, group_id: str, member_id: str) -> list[LoadedPartition]:
        """Release a member's records, and wake fetches; return the windows that changed."""
        changed: list[LoadedPartition] = []
        for key, cell in self._cells.items():
            if key.group_id != group_id:
                continue
            if cell.window.acquisition.release(member_id):
                changed.append(cell)
                cell.wake()
            else:
                cell.wake_member(member_id)
        return changed

    def _deadline(self, group_id: str) -> Millis:
        return Millis(self._parts.clock.monotonic() + self.lock_ms(group_id))

    # -- fetch -----------------------------------------------------------------

    async def fetch(self, terms: FetchLimits, places: Sequence[TopicIdPartition]) -> list[Fetched]:
        """Acquire records for a member; wait for some if there are none and no error."""
        until = self._parts.clock.monotonic() + terms.wait_ms_max
        cells, refused = await self._load(terms.group_id, places)
        event = asyncio.Event()
        unsubscribes = [self._watch(cell, event, terms.member_id) for cell in cells]
        try:
            while True:
                event.clear()
                if not terms.is_open():
                    return []
                fetched = self._pass(terms, cells)
                left_ms = until - self._parts.clock.monotonic()
                if fetched or refused or left_ms <= 0 or not cells:
                    return [*refused, *fetched]
                await _wait(event, left_ms)
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    async def _load(
        self, group_id: str, places: Sequence[TopicIdPartition]
    ) -> tuple[list[LoadedPartition], list[Fetched]]:
        """Return the loaded windows, and the errors of the others.

        All are loaded concurrently within `LOAD_MS`: a client gives up on a fetch that takes too
        long, and would never get a reply. What takes longer is left to its next fetch.
        """
        found: dict[TopicIdPartition, LoadedPartition | Fetched] = {}

        async def load(place: TopicIdPartition) -> None:
            found[place] = await self._cell_or_refusal(ShareKey(group_id, place))

        for place in places:
            cell = self._present(ShareKey(group_id, place))
            if cell is not None:
                found[place] = cell
        missing = [place for place in places if place not in found]
        if missing:
            try:
                async with asyncio.timeout(LOAD_MS / 1000), asyncio.TaskGroup() as tasks:
                    for place in missing:
                        tasks.create_task(load(place))
            except TimeoutError:
                log.warning("share partitions not loaded in %d ms group=%s", LOAD_MS, group_id)
        in_order = [found[place] for place in places if place in found]
        return (
            [each for each in in_order if isinstance(each, LoadedPartition)],
            [each for each in in_order if isinstance(each, Fetched)],
        )

    async def _cell_or_refusal(self, key: ShareKey) -> LoadedPartition | Fetched:
        try:
            return await self._cell(key)
        except UnknownTopicOrPartition:
            return Fetched(key.place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except Fault as fault:
            log.info("share partition not loaded group=%s reason=%s", key.group_id, fault)
            return Fetched(key.place, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _watch(
        self, cell: LoadedPartition, event: asyncio.Event, member_id: str
    ) -> Callable[[], None]:
        """Have ``event`` set when the log grows or records become available."""
        cell.waiting[event] = member_id
        unsubscribe = cell.window.partition.on_appended(event.set)

        def stop() -> None:
            cell.waiting.pop(event, None)
            unsubscribe()

        return stop

    def _pass(self, terms: FetchLimits, cells: Sequence[LoadedPartition]) -> list[Fetched]:
        """Visit the partitions once, within the limits of the request."""
        fetched: list[Fetched] = []
        records_left, bytes_left = terms.records_max, terms.bytes_max
        group_terms = self._parts.terms_of(terms.group_id)
        deadline = self._deadline(terms.group_id)
        for cell in cells:
            if records_left <= 0 or bytes_left <= 0:
                break
            want = Acquire(terms.member_id, deadline, records_left, terms.batch_size, terms.mode)
            place = cell.window.key.place
            try:
                if self._present(cell.window.key) is not cell:
                    # Led by another node, or loaded again: other members may have acquired records
                    # there.
                    raise NotLeader(
                        f"{cell.window.partition}: the share partition was loaded again"
                    )
                self._dead_letters.note_deleted(cell, group_terms.dead_letters)
                remote = read_part(cell)
                got = cell.window.fetch(want, group_terms, bytes_left, remote)
            except OffsetMovedToTieredStorage as fault:
                if not self._begin_remote_read(cell, group_terms, bytes_left):
                    fetched.append(Fetched(place, fault.code))
                continue
            except Fault as fault:
                fetched.append(Fetched(place, fault.code))
                continue
            if got is not None:
                fetched.append(Fetched(place, records=got.records, acquired=got.acquired))
                bytes_left -= len(got.records)
                records_left -= sum(each.last - each.first + 1 for each in got.acquired)
        return fetched

    def _begin_remote_read(
        self, cell: LoadedPartition, terms: ShareGroupConfig, bytes_max: int
    ) -> bool:
        """Read the next records from remote storage, then wake the fetches that wait.

        One read at a time for a window: all its members want the same records. False: there is no
        remote storage.
        """
        remote, window = self._parts.remote, cell.window
        if remote is None:
            return False
        if cell.reading is None and not remote.is_throttled:
            offset, committed = window.acquisition.next_offset(), terms.is_read_committed
            result = remote.fetch(window.partition, offset, bytes_max, is_committed=committed)
            cell.reading = RemoteRead(offset, result)
            result.add_done_callback(cell.remote_read)
        return True

    # -- dead letters ------------------------------------------------------------

    async def _keep_writing_dead_letters(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            await self.write_dead_letters()

    async def write_dead_letters(self) -> None:
        """Write dead records to their topic, a piece of every window."""
        await self._dead_letters.write(self._cells.values())

    # -- time --------------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Expire locks and retry failed writes, until cancelled."""
        ready()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_expiring())
            group.create_task(self._keep_writing())
            group.create_task(self._keep_writing_dead_letters())

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.expire_locks()

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            await self.drop_left()
            await self.write_dirty()

    def expire_locks(self) -> None:
        """Release records whose lock has expired, in every window."""
        now = self._parts.clock.monotonic()
        groups = {key.group_id for key in self._cells}
        dying = {each for each in groups if self._parts.terms_of(each).dead_letters is not None}
        for key, cell in list(self._cells.items()):
            cell.window.acquisition.has_dead_letters = key.group_id in dying
            if cell.window.acquisition.expire(now):
                cell.wake()

    async def write_dirty(self) -> None:
        """Write dirty records, in every window that has no write in progress."""
        dirty = [
            cell
            for cell in self._cells.values()
            if cell.window.acquisition.is_dirty and not cell.writing.locked()
        ]
        await asyncio.gather(*map(self._persist, dirty))


async def _wait(event: asyncio.Event, wait_ms: float) -> None:
    try:
        async with asyncio.timeout(wait_ms / 1000):
            await event.wait()
    except TimeoutError:
        pass
