"""Drives the core: events in, effects carried out in order, nothing in between.

An event is taken in where it happens, on the event loop, and all its effects are done before the
call returns, or, where an effect causes another event at once, before the next is taken in:

    timer, request, reply, flush done --> step --> effect, effect, effect

No effect waits. The quorum state is written and synced on the spot: it is one small file and
changes with an epoch. Appending is a write to the page cache. What takes time goes on in the
background and comes back as an event: flushing, sending, putting a snapshot in place. So nothing
ever meets a core between two steps, and no queue can grow: what is under way is bounded by who
asks (`REQUESTS_MAX`).

A failure of any effect is final: the service ends with it, and the node with the service. A
stopped driver takes no event in: it neither votes nor answers (`Stopped`).
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
# Requests of others that may wait at once; each has a connection or a share of one.
REQUESTS_MAX: Final = 20_000
# What a record costs beside its value, at most: length, attributes, deltas, key, headers.
RECORD_OVERHEAD_BYTES: Final = 32


class Stopped(NotController):
    """This replica takes no part any more."""


class QuorumBusy(NotController):
    """Too many requests wait; ask again later."""


class RaftParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver is made of. ``static`` are the configured voters, for a log without any."""

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
    """Encoded records on their way into the log, and who waits for their offset."""

    values: tuple[bytes, ...]
    done: "asyncio.Future[Offset]"


class RaftDriver:
    """`Service`: one replica of the metadata quorum. Ready once the log is recovered."""

    name = "raft"

    def __init__(self, parts: RaftParts) -> None:
        """Take the disk's word for the past.

        Raises:
            UnreadableQuorumState, CorruptSnapshot: this node cannot take part as it is.
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
        self._flush_wanted = 0
        self._flush_wake = asyncio.Event()
        self._download: SnapshotDownload | None = None
        self._is_snapshotting = False
        self._applier = Applier(parts.log, parts.listener)

    # -- life ----------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Take part until cancelled, then leave in an orderly way, in bounded time.

        Raises:
            Whatever made an effect fail: the node must go down.
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
            # What a group of one says is what went wrong: the supervisor wants that.
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
        """Resign, give the others time to hear it, and be gone."""
        self._feed(into.Shutdown(self._now()))
        await asyncio.wait(
            [self._ready_to_stop, self._end],
            timeout=self._parts.shutdown_ms_max / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._stop()
        await self._parts.peers.close()

    def _stop(self) -> None:
        """Take no event in from here on; whoever waits is told."""
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
            self._end.exception()  # it was logged; whoever awaited it has it too

    def _fail(self, error: Exception) -> None:
        log.error("metadata quorum replica failed", exc_info=error)
        self._is_stopped = True
        if not self._end.done():
            self._end.set_exception(error)

    # -- events --------------------------------------------------------------

    def _now(self) -> Millis:
        return self._parts.clock.monotonic()

    def _feed(self, event: into.Event) -> None:
        """Take an event in, and all that follow from it at once."""
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
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes down with it
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
                self._flush_wanted = effect.ticket
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
                log.info("quorum: caught up after rejoining, votes again")
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
        """A timer may be early by a fraction of a millisecond; the core set it only once."""
        self._timer = None
        if self._now() < at:
            self._set_timer(at)
        else:
            self._feed(into.Tick(self._now()))

    # -- others ask ----------------------------------------------------------

    async def request(self, request: Request) -> Reply:
        """Ask this replica; the reply may come much later.

        Raises:
            Stopped: it takes no part any more. QuorumBusy: too many wait.
        """
        self._check_open()
        self._tokens += 1
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[self._tokens] = (request, done)
        self._feed(into.Requested(self._now(), self._tokens, request))
        return await done

    def _check_open(self) -> None:
        if self._is_stopped:
            raise Stopped("this node takes no part in the quorum")
        if len(self._waiting) >= REQUESTS_MAX:
            raise QuorumBusy(f"{REQUESTS_MAX} requests wait already")

    def _answer(self, effect: out.Answer) -> None:
        request, done = self._waiting.pop(effect.token)
        if not done.done():
            done.set_result(self._filled(effect.reply, request))

    def _filled(self, reply: Reply, request: Request | None) -> Reply:
        """Put the bytes in that a reply refers to."""
        if isinstance(reply, FetchReply) and isinstance(reply.records, ReadLog):
            upto = None
            if isinstance(request, FetchRequest) and request.replica.node_id < 0:
                # No replica: whoever reads along sees only what is committed.
                upto = reply.high_watermark or Offset(0)
            wanted = reply.records
            try:
                data = self._log.read(wanted.offset, wanted.bytes_max, upto)
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

    # -- asking others -------------------------------------------------------

    async def _send(self, effect: out.Send) -> None:
        reply = await self._parts.peers.ask(effect.endpoint, effect.request)
        if reply is None:
            self._feed(into.Unanswered(self._now(), effect.ticket))
        else:
            self._feed(into.Replied(self._now(), effect.ticket, reply))

    # -- proposals -----------------------------------------------------------

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        """Append records as one batch in ``epoch``; return the offset of the first.

        They are in the log then, and committed once the listener is told so; with leadership
        lost before that, their fate is open.

        Raises:
            NotController: this node does not lead that epoch.
            RecordTooLarge: they are more than one batch may hold; nothing was appended.
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
            raise Stopped("this node takes no part in the quorum")
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
        """Give leadership of ``epoch`` up; ignored where this node does not lead it."""
        self._feed(into.Resign(self._now(), epoch))

    async def upgrade_kraft_version(
        self, level: int, *, is_validate_only: bool = False
    ) -> VoterChangeReply:
        """Raise the finalised ``kraft.version``, or say why not. Raises as `request`."""
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
        """Return the newest voters known to be committed; None before anything is."""
        known = self.describe().high_watermark
        return None if known is None else self._core.membership_at(known)[1]

    def wall_clock(self) -> Millis:
        """Return the time to which the ages in a view refer."""
        return self._parts.clock.now()

    @property
    def applied(self) -> Offset:
        """Everything below was given to the listener."""
        return self._applier.applied

    # -- the disk ------------------------------------------------------------

    async def _flush_for_ever(self) -> None:
        """Sync whatever was asked for since the last round, round after round."""
        while True:
            await self._flush_wake.wait()
            self._flush_wake.clear()
            # Taken before the round begins: what comes during it is not covered by it.
            ticket = self._flush_wanted
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
        """Check a download, make it durable, and replace the log by it.

        Nothing else is done with the log meanwhile: the core neither fetches nor leads.
        """
        download, self._download = self._download, None
        assert download is not None
        try:
            for _ in download.reader().check():
                await asyncio.sleep(0)
            head = download.reader().head()
        except CorruptSnapshot as error:
            log.warning("snapshot from the leader thrown away: %s", error)
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
        """Write a snapshot of everything before ``end``, then delete what it makes unneeded.

        ``batches`` gives the encoded records that stand for the state at ``end``, piece by piece;
        the event loop gets its turn between two pieces, so a piece should be small. Returns None
        where there is nothing to do: a snapshot reaches there already, or another is written.
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
            # The leader's own disk may be behind what is committed elsewhere.
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
        """Return the id of a snapshot at ``end``, if it would be news."""
        assert end <= self._applier.applied, "only what is committed and applied"
        latest = self._log.latest_snapshot()
        known = Offset(0) if latest is None else latest.offset
        if end <= max(known, self._log.start_offset()):
            return None
        assert self._log.is_batch_end(end), "records that belong together stay together"
        return LogPosition(self._log.epoch_before(end), end)
