"""Drives the core: passes it events and performs its effects in order.

An event is handled where it occurs, on the event loop, and all its effects are performed before the
call returns, or, if an effect causes another event at once, before that event is handled:

    timer, request, reply, flush done --> step --> effect, effect, effect

No effect waits. The quorum state is written and synced synchronously: it is one small file and
changes only with an epoch. Appending is a write to the page cache. Anything slow runs in the
background and returns as an event: flushing, sending, installing a snapshot. So the core is never
used in the middle of a step, and no queue can grow: the work in progress is bounded by the number
of requests (`REQUESTS_MAX`).

A failed effect is final: the service ends with it, and the node with the service. A stopped driver
handles no events: it neither votes nor answers (`Stopped`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotController, OffsetOutOfRange, RecordTooLarge
from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.types import LeaderEpoch, Millis, Offset
from ottla.raft.applier import Applier, MetadataListener
from ottla.raft.core import effects as out
from ottla.raft.core import events as into
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.machine import RaftCore
from ottla.raft.core.messages import (
    Chunk,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    ReadLog,
    ReadSnapshot,
    Reply,
    Request,
    VoterChangeReply,
)
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.view import QuorumView
from ottla.raft.core.voters import VoterSet
from ottla.raft.metadata_log import MetadataLog, Retention, checked_batches
from ottla.raft.peers import Peers
from ottla.raft.quorum_state_file import QuorumStateFile
from ottla.raft.repair import RejoinMark
from ottla.raft.snapshots import (
    BATCH_BYTES_MAX,
    CorruptSnapshot,
    SnapshotDownload,
    SnapshotWriter,
)
from ottla.runtime.ports import Clock, Committer, Random

log = logging.getLogger(__name__)

NO_VOTERS: Final = VoterSet()
KAFKA_RETENTION: Final = Retention()
# Requests of other nodes that may wait at once; each has a connection or a share of one.
REQUESTS_MAX: Final = 20_000
# The largest size of a record beside its value: length, attributes, deltas, key, headers.
RECORD_OVERHEAD_BYTES: Final = 32


class Stopped(NotController):
    """This replica no longer takes part in the quorum."""


class QuorumBusy(NotController):
    """Too many requests are waiting; retry later."""


class RaftParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a driver. ``static`` are the configured voters, for a log without any."""

    settings: RaftSettings
    log: MetadataLog
    state: QuorumStateFile
    committer: Committer
    peers: Peers
    clock: Clock
    random: Random
    listener: MetadataListener
    static: VoterSet = NO_VOTERS
    retention: Retention = KAFKA_RETENTION
    shutdown_ms_max: int = 5_000
    rejoining: RejoinMark | None = None


class _Proposal(msgspec.Struct, frozen=True):
    """Encoded records to append, and the future for their offset."""

    values: tuple[bytes, ...]
    done: "asyncio.Future[Offset]"


class RaftDriver:
    """`Service`: one replica of the metadata quorum. Ready once the log is recovered."""

    name = "raft"

    def __init__(self, parts: RaftParts) -> None:
        """Load the state on disk.

        Raises:
            UnreadableQuorumState, CorruptSnapshot: this node cannot take part.
        """
        self._parts = parts
        self._log = parts.log
        self._core = RaftCore(
            parts.settings,
            parts.log,
            parts.state.read(),
            parts.log.membership(parts.static),
            parts.random.below,
        )
        self._events: deque[into.Event] = deque()
        self._is_busy = False
        self._is_stopped = True
        self._tasks: asyncio.TaskGroup
        self._end: asyncio.Future[None]
        self._ready_to_stop: asyncio.Future[None]
        self._timer: asyncio.TimerHandle | None = None
        self._tokens = 0
        self._waiting: dict[int, tuple[Request | None, asyncio.Future[Reply]]] = {}
        self._flush_requested = 0
        self._flush_wake = asyncio.Event()
        self._download: SnapshotDownload | None = None
        self._is_snapshotting = False
        self._applier = Applier(parts.log, parts.listener)
        self.refusals = 0
        """How many connections to other replicas were refused, since the start."""

    # -- lifecycle -----------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Take part until cancelled, then resign and stop, in bounded time.

        Raises:
            Exception: an effect failed with it; the node must stop.
        """
        loop = asyncio.get_running_loop()
        self._end, self._ready_to_stop = loop.create_future(), loop.create_future()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._flush_for_ever(), name="raft flush")
                tasks.create_task(self._applier.run(), name="raft apply")
                await self._take_part(ready)
        except BaseExceptionGroup as group:
            # The supervisor expects the one error itself, not a group of one.
            if len(group.exceptions) > 1:
                raise
            raise group.exceptions[0] from None
        finally:
            self._stop()

    async def _take_part(self, ready: Callable[[], None]) -> None:
        self._is_stopped = False
        self._feed(into.Start(self._now()))
        ready()
        try:
            await self._end
        except asyncio.CancelledError:
            await self._leave()
            raise

    async def _leave(self) -> None:
        """Resign, give the other voters time to learn of it, and stop."""
        self._feed(into.Shutdown(self._now()))
        await asyncio.wait(
            [self._ready_to_stop, self._end],
            timeout=self._parts.shutdown_ms_max / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._stop()
        await self._parts.peers.close()

    def _stop(self) -> None:
        """Handle no more events; waiting requests fail with `Stopped`."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = list(self._waiting.values()), {}
        for _, done in waiting:
            if not done.done():
                done.set_exception(Stopped("this node is stopping"))
        if not self._end.done():
            self._end.cancel()
        elif not self._end.cancelled():
            self._end.exception()  # logged already, and raised to any task that awaited it

    def _fail(self, error: Exception) -> None:
        log.error("metadata quorum replica failed", exc_info=error)
        self._is_stopped = True
        if not self._end.done():
            self._end.set_exception(error)

    # -- events --------------------------------------------------------------

    def _now(self) -> Millis:
        return self._parts.clock.monotonic()

    def _feed(self, event: into.Event) -> None:
        """Handle an event, and all events that follow from it at once."""
        if self._is_stopped:
            return
        self._events.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._events and not self._is_stopped:
                for effect in self._core.step(self._events.popleft()):
                    self._carry_out(effect)
        except Exception as error:  # noqa: BLE001 - any error stops the node
            self._fail(error)
        self._is_busy = False

    def _carry_out(self, effect: out.Effect) -> None:  # noqa: C901, PLR0912 - one line per effect
        match effect:
            case out.PersistElection():
                view = self.describe()
                self._parts.state.write(effect, view.kraft_version, view.voters)
            case out.AppendControl():
                self._log.append_control(effect)
            case out.AppendRecords():
                self._append_proposal(effect)
            case out.AppendFetched():
                self._log.append_fetched(effect.batches)
            case out.TruncateTo():
                self._log.truncate_to(effect.offset)
            case out.Flush():
                self._flush_requested = effect.ticket
                self._flush_wake.set()
            case out.WriteSnapshotChunk():
                self._write_chunk(effect)
            case out.InstallSnapshot():
                tasks = self._tasks
                tasks.create_task(self._install(effect.snapshot), name="raft install")
            case out.Send():
                tasks = self._tasks
                tasks.create_task(self._send(effect), name="raft send")
            case out.Answer():
                self._answer(effect)
            case out.RefuseProposal():
                self._refuse(effect)
            case out.RoleChanged():
                self._note_role(effect)
            case out.HighWatermark():
                self._applier.advance(effect.offset)
            case out.VotersChanged():
                log.info("quorum voters=%s", [str(voter.key.node_id) for voter in effect.voters])
            case out.SetTimer():
                self._set_timer(effect.at)
            case out.Rejoined():
                assert self._parts.rejoining is not None
                self._parts.rejoining.clear()
                log.info("quorum: caught up after rejoining, voting again")
            case out.ShutdownReady():
                if not self._ready_to_stop.done():
                    self._ready_to_stop.set_result(None)
            case _:
                assert_never(effect)

    def _note_role(self, effect: out.RoleChanged) -> None:
        log.info(
            "quorum role=%s epoch=%d leader=%s", effect.role.value, effect.epoch, effect.leader_id
        )
        self._parts.listener.on_role(effect)

    def _set_timer(self, at: Millis | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            delay_s = max(0, at - self._now()) / 1000
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_s, self._tick, at)

    def _tick(self, at: Millis) -> None:
        """Handle the timer; if it fired a fraction of a millisecond early, set it again."""
        self._timer = None
        if self._now() < at:
            self._set_timer(at)
        else:
            self._feed(into.Tick(self._now()))

    # -- incoming requests ---------------------------------------------------

    async def request(self, request: Request) -> Reply:
        """Handle a request; the reply may take long.

        Raises:
            Stopped: it no longer takes part. QuorumBusy: too many requests are waiting.
        """
        self._check_open()
        self._tokens += 1
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[self._tokens] = (request, done)
        self._feed(into.Requested(self._now(), self._tokens, request))
        return await done

    def _check_open(self) -> None:
        if self._is_stopped:
            raise Stopped("this node has left the quorum")
        if len(self._waiting) >= REQUESTS_MAX:
            raise QuorumBusy(f"{REQUESTS_MAX} requests are already waiting")

    def _answer(self, effect: out.Answer) -> None:
        request, done = self._waiting.pop(effect.token)
        if not done.done():
            done.set_result(self._filled(effect.reply, request))

    def _filled(self, reply: Reply, request: Request | None) -> Reply:
        """Fill in the bytes that a reply refers to."""
        if isinstance(reply, FetchReply) and isinstance(reply.records, ReadLog):
            upto = None
            if isinstance(request, FetchRequest) and request.replica.node_id < 0:
                # Not a replica: a reading client sees only what is committed.
                upto = reply.high_watermark or Offset(0)
            requested = reply.records
            try:
                data = self._log.read(requested.offset, requested.bytes_max, upto)
            except OffsetOutOfRange:
                return FetchReply(ErrorCode.OFFSET_OUT_OF_RANGE, reply.leader)
            return replace(reply, records=checked_batches(data))
        if isinstance(reply, FetchSnapshotReply) and isinstance(reply.chunk, ReadSnapshot):
            assert reply.snapshot is not None
            data = self._log.snapshots.read_chunk(
                reply.snapshot, reply.chunk.position, reply.chunk.bytes_max
            )
            return replace(reply, chunk=Chunk(len(data), data))
        return reply

    # -- outgoing requests ---------------------------------------------------

    async def _send(self, effect: out.Send) -> None:
        try:
            reply = await self._parts.peers.ask(effect.endpoint, effect.request)
        except ConnectionRefusedError:
            self.refusals += 1
            self._feed(into.Unanswered(self._now(), effect.ticket, is_refused=True))
            return
        if reply is None:
            self._feed(into.Unanswered(self._now(), effect.ticket))
        else:
            self._feed(into.Replied(self._now(), effect.ticket, reply))

    # -- proposals -----------------------------------------------------------

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        """Append records as one batch in ``epoch``; return the offset of the first.

        They are then in the log, and committed once the listener receives them; if leadership is
        lost before that, they may be committed or lost.

        Raises:
            NotController: this node does not lead that epoch.
            RecordTooLarge: they exceed the size of one batch; nothing was appended.
        """
        self._check_open()
        assert records, "an empty batch has no offset"
        values = tuple(encode_framed(record) for record in records)
        size = sum(len(value) + RECORD_OVERHEAD_BYTES for value in values)
        if size > BATCH_BYTES_MAX:
            raise RecordTooLarge(f"{len(values)} records have {size} bytes, over {BATCH_BYTES_MAX}")
        done: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        proposal = _Proposal(values, done)
        self._feed(into.Propose(self._now(), epoch, len(values), proposal))
        if self._is_stopped and not done.done():
            raise Stopped("this node has left the quorum")
        return await done

    def _append_proposal(self, effect: out.AppendRecords) -> None:
        proposal = effect.payload
        assert isinstance(proposal, _Proposal)
        self._log.append_records(effect, proposal.values)
        if not proposal.done.done():
            proposal.done.set_result(effect.base_offset)

    def _refuse(self, effect: out.RefuseProposal) -> None:
        proposal = effect.payload
        assert isinstance(proposal, _Proposal)
        if not proposal.done.done():
            proposal.done.set_exception(NotController(effect.error.name))

    def resign(self, epoch: LeaderEpoch) -> None:
        """Resign leadership of ``epoch``; ignored if this node does not lead it."""
        self._feed(into.Resign(self._now(), epoch))

    async def upgrade_kraft_version(
        self, level: int, *, is_validate_only: bool = False
    ) -> VoterChangeReply:
        """Raise the finalized ``kraft.version``, or return why not. Raises as `request`."""
        self._check_open()
        self._tokens += 1
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[self._tokens] = (None, done)
        self._feed(into.UpgradeKRaftVersion(self._now(), self._tokens, level, is_validate_only))
        reply = await done
        assert isinstance(reply, VoterChangeReply)
        return reply

    def describe(self) -> QuorumView:
        """Return the quorum as this replica sees it now."""
        return self._core.describe(self._now())

    def committed_voters(self) -> VoterSet | None:
        """Return the newest voters known to be committed; None before there are any."""
        known = self.describe().high_watermark
        return None if known is None else self._core.membership_at(known)[1]

    def wall_clock(self) -> Millis:
        """Return the wall-clock time that the ages in a view refer to."""
        return self._parts.clock.now()

    @property
    def applied(self) -> Offset:
        """The offset below which everything was passed to the listener."""
        return self._applier.applied

    # -- the disk ------------------------------------------------------------

    async def _flush_for_ever(self) -> None:
        """Sync what was requested since the last round, round after round."""
        while True:
            await self._flush_wake.wait()
            self._flush_wake.clear()
            # Read before the round begins: later appends are not covered by it.
            ticket = self._flush_requested
            try:
                await self._log.flush(self._parts.committer)
            except (Fault, OSError) as error:
                return self._fail(error)
            self._feed(into.Flushed(self._now(), ticket))

    def _write_chunk(self, effect: out.WriteSnapshotChunk) -> None:
        assert isinstance(effect.payload, bytes | bytearray | memoryview)
        if effect.position == 0:
            if self._download is not None:
                self._download.abandon()
            self._download = SnapshotDownload(self._log.snapshots, effect.snapshot)
        assert self._download is not None
        assert self._download.snapshot == effect.snapshot
        self._download.write(effect.position, effect.payload)

    async def _install(self, snapshot: LogPosition) -> None:
        """Verify a download, make it durable, and replace the log with it.

        The log is not used meanwhile: the core neither fetches nor leads.
        """
        download, self._download = self._download, None
        assert download is not None
        try:
            for _ in download.reader().check():
                await asyncio.sleep(0)
            head = download.reader().head()
        except CorruptSnapshot as error:
            log.warning("snapshot from the leader rejected: %s", error)
            download.abandon()
            self._feed(into.SnapshotRejected(self._now(), snapshot))
            return
        try:
            await self._parts.committer.commit([download.file])
            download.freeze()
            self._log.replace_by(snapshot)
        except (Fault, OSError) as error:
            return self._fail(error)
        self._feed(into.SnapshotInstalled(self._now(), snapshot, head.kraft_version, head.voters))

    async def take_snapshot(
        self, end: Offset, batches: Iterator[Sequence[bytes]]
    ) -> LogPosition | None:
        """Write a snapshot of everything before ``end``, then delete what it makes unnecessary.

        ``batches`` yields the encoded records of the state at ``end``, chunk by chunk; the event
        loop runs other tasks between chunks, so a chunk should be small. Returns None if there is
        nothing to do: a snapshot already reaches ``end``, or another is being written.
        """
        position = self._snapshot_position(end)
        if position is None or self._is_snapshotting:
            return None
        self._is_snapshotting = True
        writer = SnapshotWriter(self._log.snapshots, position, self._parts.clock.now())
        try:
            level, voters = self._core.membership_at(end)
            writer.begin(self._log.last_timestamp(end), level, voters)
            for piece in batches:
                writer.append(piece)
                await asyncio.sleep(0)
            writer.finish()
            # The leader's own disk may lag behind what is committed on a majority.
            await self._log.flush(self._parts.committer)
            await self._parts.committer.commit([writer.file])
            if self._is_stopped or self._snapshot_position(end) != position:
                writer.abandon()
                return None
            writer.freeze()
        except BaseException:
            writer.abandon()
            raise
        finally:
            self._is_snapshotting = False
        self._feed(into.SnapshotTaken(self._now(), position))
        self._log.trim(self._parts.retention, self._applier.applied)
        return position

    def _snapshot_position(self, end: Offset) -> LogPosition | None:
        """Return the id of a snapshot at ``end``, if it would be a new one."""
        assert end <= self._applier.applied, "a snapshot must not be ahead of the applied offset"
        latest = self._log.latest_snapshot()
        known = Offset(0) if latest is None else latest.offset
        if end <= max(known, self._log.start_offset()):
            return None
        assert self._log.is_batch_end(end), "a snapshot must end at the end of a batch"
        return LogPosition(self._log.epoch_before(end), end)
