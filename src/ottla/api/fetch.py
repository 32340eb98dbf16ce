"""Fetch requests of consumers and followers.

    parse -> session -> one pass over the partitions -> enough? -> reply
                                                   `-> wait -> a second pass -> reply

Idle partitions of a session are not read until they change (`fetch_partitions.py`).

A reply consists of packed fields and slices of segment files, which the connection sends from the
page cache. The request is parsed into values before the handler returns, so a waiting fetch does
not hold the receive buffer.
"""

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from itertools import groupby

import msgspec

from ottla.api.fetch_partitions import FetchedPartition
from ottla.api.fetch_read import Pass, Reading, ReadSources, TailRead
from ottla.api.fetch_reply import (
    NO_SESSION,
    ROWS_PER_STEP,
    FetchReply,
    Row,
    pack_fetch,
    pack_fetch_steps,
    template_of,
)
from ottla.api.fetch_request import (
    IDS_SINCE,
    FetchBody,
    Topic,
    parse_fetch,
    parse_fetch_steps,
)
from ottla.api.fetch_sessions import Context, Incremental, PartitionRow, Session, Sessions
from ottla.api.fetch_wait import FetchWait
from ottla.api.replies import (
    LARGE_BYTES,
    Answer,
    Chunk,
    Handled,
    Reply,
    Result,
    Steps,
    finish,
)
from ottla.api.routes import Caller
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request
from ottla.quotas.client_quotas import ClientQuotas, QuotaKind, quota_client
from ottla.replication.partition import Partition
from ottla.replication.partition_reads import ReadResult
from ottla.runtime.ports import Clock


class FetchHandlers(msgspec.Struct, frozen=True):
    """The handler of a broker's listeners. ``bytes_max`` is ``fetch.max.bytes``."""

    sources: ReadSources
    sessions: Sessions
    clock: Clock
    bytes_max: int
    events: TopicEvents = msgspec.field(default_factory=NoTopicEvents)
    quotas: ClientQuotas = msgspec.field(default_factory=ClientQuotas)

    def on_fetch(self, caller: Caller, request: Request, body: memoryview) -> Handled:
        """Return the reply, or a future that completes when there is enough to send."""
        if len(body) >= LARGE_BYTES:
            return self._fetch_steps(caller, request.version, bytes(body))
        fetch = parse_fetch(request.version, body)
        if fetch.is_isolation_unknown:
            return pack_fetch(_failed(fetch), fetch.version)
        context = self.sessions.open(fetch, self.clock.monotonic())
        if isinstance(context, ErrorCode):
            return pack_fetch(FetchReply(context), fetch.version)
        return self._serve(caller, fetch, context)

    def _fetch_steps(self, caller: Caller, version: int, body: bytes) -> Steps[Reply]:
        """Serve a request that may name many partitions, and yield often."""
        fetch = yield from parse_fetch_steps(version, body)
        if fetch.is_isolation_unknown:
            return pack_fetch(_failed(fetch), fetch.version)
        context = yield from self.sessions.open_steps(fetch, self.clock.monotonic())
        if isinstance(context, ErrorCode):
            return pack_fetch(FetchReply(context), fetch.version)
        reply = self._serve(caller, fetch, context, is_long=True)
        return (yield from reply) if isinstance(reply, Generator) else reply

    def _serve(
        self, caller: Caller, fetch: FetchBody, context: Context, *, is_long: bool = False
    ) -> Handled:
        """Read and reply within the quota of the client; in steps if the request ``is_long``."""
        if not self.quotas.is_active:
            started = _Fetch(self, caller, fetch, context, fetch.bytes_max)
            return started.start_steps() if is_long else started.start()
        if fetch.replica_id >= 0:
            return _exempt(_Fetch(self, caller, fetch, context, fetch.bytes_max).start())
        client = quota_client(caller.principal, caller.client_id)
        if self.quotas.throttle_ms(QuotaKind.FETCH, client, self.clock.monotonic()) > 0:
            return pack_fetch(_throttled(context), fetch.version)
        amount_max = self.quotas.amount_max(QuotaKind.FETCH, client)
        bytes_max = fetch.bytes_max if amount_max is None else min(fetch.bytes_max, int(amount_max))
        started = _Fetch(self, caller, fetch, context, bytes_max)
        return started.start_steps() if is_long else started.start()


class _Fetch:
    """One request in progress."""

    __slots__ = ("_bytes_max", "_context", "_fetch", "_handlers", "_reading", "_session")

    def __init__(
        self,
        handlers: FetchHandlers,
        caller: Caller,
        fetch: FetchBody,
        context: Context,
        bytes_max: int,
    ) -> None:
        self._handlers = handlers
        self._fetch = fetch
        self._context = context
        self._reading = Reading(handlers.sources, caller, fetch)
        self._session = context.session if isinstance(context, Incremental) else None
        self._bytes_max = min(bytes_max, handlers.bytes_max)

    def start(self) -> Reply:
        """Read once; reply, or wait for more records."""
        session = self._session
        if session is not None:
            self._look_at_all_anew(session)
            at_end = self._record_at_end(session)
            if at_end is not None:
                return self._conclude_soon(at_end)
        done = self._reading.read(list(self._context.fetched), self._bytes_max, is_first=True)
        return self._answer_from_remote(done) if done.remote else self._conclude(done)

    def start_steps(self) -> Steps[Reply]:
        """Read many partitions once, in steps; reply, or wait for more records."""
        if self._session is not None:
            self._look_at_all_anew(self._session)
        done = yield from self._reading.read_steps(list(self._context.fetched), self._bytes_max)
        if done.remote:
            return self._answer_from_remote(done)
        if done.watched:
            return self._conclude(done)
        return (yield from self._answer_steps(done))  # nothing to wait for

    def _conclude(self, done: Pass, waiting: FetchWait | None = None) -> Reply:
        """Return the reply if the pass found enough; otherwise wait, with ``waiting`` if given."""
        fetch, session = self._fetch, self._session
        rows = dict(done.results)
        watched = done.watched
        if session is not None:
            watched = [each for each in watched if not self._rests(session, *each, rows)]
        bytes_min = min(fetch.bytes_min, self._bytes_max)
        is_hopeless = not done.watched and (session is None or not session.partitions.resting)
        if done.is_due or is_hopeless or done.size >= bytes_min or fetch.wait_ms_max <= 0:
            return self._answer(done)
        if len(done.watched) == len(done.results) == 1:
            self._reading.prepare_tail(*done.watched[0], self._bytes_max)
            if session is not None:
                session.tail = self._reading.tail
        waiting = waiting or FetchWait(bytes_min, self)
        partitions = None if session is None else session.partitions
        waiting.start(watched, rows, fetch.wait_ms_max, partitions)
        return waiting.reply

    # -- a follower that has everything ------------------------------------------

    def _record_at_end(self, session: Session) -> Pass | None:
        """Return the pass of a follower that has all of the only active partition.

        A record is replicated when its followers fetch again, so such fetches take few steps. None
        if the partition has to be read.
        """
        fetched, last = session.partitions.only_awake, session.tail
        if self._fetch.replica_id < 0 or fetched is None or not isinstance(last, TailRead):
            return None
        row = self._reading.record_at_end(fetched, last)
        return None if row is None else Pass([(fetched, row)], [(fetched, last.partition)])

    def _conclude_soon(self, done: Pass) -> Reply:
        """Wait for more records, after the replies that the fetch of the follower completed."""
        ((_, row),), ((_, partition),) = done.results, done.watched
        if row.high_watermark == partition.log.high_watermark:
            return self._conclude(done)
        waiting = FetchWait(min(self._fetch.bytes_min, self._bytes_max), self)
        asyncio.get_running_loop().call_soon(self._conclude_late, waiting, done)
        return waiting.reply

    def _conclude_late(self, waiting: FetchWait, done: Pass) -> None:
        reply, context = waiting.reply, self._context
        assert isinstance(context, Incremental)
        if reply.done():
            return  # the follower has gone
        try:
            ((fetched, _),) = done.results
            is_only = context.session.partitions.only_awake is fetched
            if not (is_only and context.is_newest and self._reading.is_at_end(fetched)):
                done = self._read_all()
            found = self._conclude(done, waiting) if context.is_newest else self._answer(done)
        except Exception as error:  # noqa: BLE001 - the reply carries it
            reply.fail(error)
            return
        if found is not reply:
            assert isinstance(found, list)
            reply.answer(found)

    def _look_at_all_anew(self, session: Session) -> None:
        """Mark all partitions as active if the state that their rows depend on has changed."""
        ground = self._reading.ground()
        if session.ground != ground:
            session.ground = ground
            session.partitions.wake_all()

    def _rests(
        self,
        session: Session,
        fetched: FetchedPartition,
        partition: Partition,
        rows: dict[FetchedPartition, Row],
    ) -> bool:
        """Mark a partition as idle if that is allowed."""
        if not self._reading.may_rest(fetched, partition, rows[fetched]):
            return False
        replica_id = self._fetch.replica_id

        def woken(partition: Partition) -> None:
            if replica_id >= 0:
                partition.follower_rested(replica_id, session.used)

        return session.partitions.rest(fetched, partition, woken)

    # -- called by the wait ------------------------------------------------------

    def is_readable(self, fetched: FetchedPartition, partition: Partition) -> bool:
        """Whether the partition seems to have records for the request."""
        return self._reading.is_readable(fetched, partition)

    def is_at_end(self, fetched: FetchedPartition) -> bool:
        """Whether a read would find as little as when the wait began; False if unknown."""
        return self._reading.is_at_end(fetched)

    def look_again(self, fetched: FetchedPartition, partition: Partition) -> ReadResult:
        """Read one partition again. Raises a `Fault` if it can no longer be read."""
        return self._reading.look_again(fetched, partition)

    def answer_if_enough(self, bytes_min: int) -> list[Chunk] | None:
        """Read all partitions; return the reply if it is due or has ``bytes_min``."""
        reply = self._answer_recent(bytes_min)
        if reply is not None:
            return reply
        done = self._read_tail() or self._read_all()
        return self._answer(done) if done.is_due or done.size >= bytes_min else None

    def answer(self) -> list[Chunk]:
        """Read all partitions and return the reply."""
        return self._answer(self._read_all())

    def _answer_recent(self, bytes_min: int) -> list[Chunk] | None:
        """Reply with the newest records of the only active partition; None if a read has to."""
        awake = list(self._context.fetched)
        found = self._reading.read_recent(awake[0]) if len(awake) == 1 else None
        if found is None:
            return None
        fetched, (partition, data) = awake[0], found
        log = partition.log
        high_watermark, log_start = log.high_watermark, log.log_start_offset
        if len(data) < bytes_min:
            return None
        session_id = self._context.finish_with(fetched, (high_watermark, log_start))
        if session_id is None:
            return None
        self._count_records(fetched, len(data))
        self._count_resting()
        fetch, index = self._fetch, fetched.requested.partition
        template = template_of(
            *(fetched.topic, index, session_id, fetch.version, self._reading.is_read_committed)
        )
        return [template.fill(high_watermark, log.last_stable_offset, log_start, data)]

    def _read_all(self) -> Pass:
        return self._reading.read(list(self._context.fetched), self._bytes_max, is_first=False)

    def _read_tail(self) -> Pass | None:
        """Read the only partition with news; None if there are several, or a pass is needed."""
        awake = list(self._context.fetched)
        row = self._reading.read_tail(awake[0]) if len(awake) == 1 else None
        if row is None:
            return None
        row.load_records()
        is_due = row.error != 0 or row.diverging is not None
        return Pass([(awake[0], row)], size=row.size, is_due=is_due)

    # -- the reply ---------------------------------------------------------------

    async def _answer_from_remote(self, done: Pass) -> list[Chunk]:
        """Reply with what is in remote storage, and with what the pass has found here."""
        from ottla.api.remote_fetch import read_remote  # only with a tier

        reader = self._handlers.sources.remote
        assert reader is not None
        rows = dict(done.results)
        remote = [rows[each.fetched] for each in done.remote]
        is_committed = self._fetch.is_read_committed
        await read_remote(reader, done.remote, remote, is_committed=is_committed)
        return self._answer(done)

    def _answer(self, done: Pass) -> list[Chunk]:
        return finish(self._answer_steps(done))

    def _answer_steps(self, done: Pass) -> Steps[list[Chunk]]:
        finished = self._context.finish(done.results, self._handlers.clock.monotonic())
        for start in range(0, len(done.results), ROWS_PER_STEP):
            self._count(done.results[start : start + ROWS_PER_STEP])
            if start:
                yield
        self._count_resting()
        nodes = self._reading.name_leaders(finished.results)
        topics = yield from _by_topic(finished.results)
        reply = FetchReply(finished.error, finished.session_id, topics, nodes)
        return (yield from pack_fetch_steps(reply, self._fetch.version))

    def _count(self, results: Sequence[PartitionRow]) -> None:
        """Count the result of every partition, including those that the reply leaves out."""
        is_follower = self._fetch.replica_id >= 0
        for fetched, row in results:
            if not row.error:
                self._count_records(fetched, row.size)
            elif not is_follower:
                self._handlers.events.fetch_failed(fetched.name or "")

    def _count_records(self, fetched: FetchedPartition, size: int) -> None:
        events, name = self._handlers.events, fetched.name or ""
        if self._fetch.replica_id >= 0:
            events.replicated_out(name, size)
        else:
            events.fetched(name, size)

    def _count_resting(self) -> None:
        if self._session is not None and self._fetch.replica_id < 0:
            for fetched in self._session.partitions.resting:
                self._handlers.events.fetched(fetched.name or "", 0)


def _exempt(reply: Reply) -> Reply:
    """Return the reply to a follower, which counts against no client quota."""
    if isinstance(reply, Awaitable):
        return _exempt_later(reply)
    assert not isinstance(reply, Answer)
    return Answer(reply, is_exempt=True)


async def _exempt_later(reply: Awaitable[Result]) -> Result:
    result = await reply
    assert not isinstance(result, Answer)
    return Answer(result, is_exempt=True)


def _throttled(context: Context) -> FetchReply:
    """Return the empty reply to a client over its quota, as Kafka does: its session goes on."""
    session_id = context.session.id if isinstance(context, Incremental) else NO_SESSION
    return FetchReply(session_id=session_id)


def _failed(fetch: FetchBody) -> FetchReply:
    """Return Kafka's reply to a malformed request: without topic ids, with a row per partition."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    named = fetch.topics if fetch.version < IDS_SINCE else []
    topics = [
        (topic, [Row(each.partition, code, aborted=()) for each in requested])
        for topic, requested in named
    ]
    return FetchReply(code, topics=topics)


def _by_topic(results: Sequence[PartitionRow]) -> Steps[list[tuple[Topic, list[Row]]]]:
    topics: list[tuple[Topic, list[Row]]] = []
    for topic, rows in groupby(results, key=lambda each: each[0].topic):
        topics.append((topic, [row for _, row in rows]))
        if not len(topics) % ROWS_PER_STEP:
            yield
    return topics
