"""Fetch requests of consumers and followers.

    parse -> session -> one pass over the partitions -> enough? -> reply
                                                   `-> wait -> a second pass -> reply

Idle partitions of a session are not read until they change (`partitions.py`).

A reply consists of packed fields and slices of segment files, which the connection sends from the
page cache. The request is parsed into values before the handler returns, so a waiting fetch does
not hold the receive buffer.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from ottla.api.fetch.partitions import FetchedPartition
from ottla.api.fetch.reading import Pass, Reading, ReadSources
from ottla.api.fetch.reply import (
    NO_SESSION,
    ROWS_PER_STEP,
    FetchReply,
    Row,
    pack_fetch,
    pack_fetch_steps,
    template_of,
)
from ottla.api.fetch.request import (
    IDS_SINCE,
    FetchBody,
    Topic,
    parse_fetch,
    parse_fetch_steps,
)
from ottla.api.fetch.sessions import Context, Incremental, PartitionRow, Session, Sessions
from ottla.api.fetch.wait import FetchWait
from ottla.api.surface.replies import (
    LARGE_BYTES,
    Answer,
    Chunk,
    Handled,
    Reply,
    Result,
    Steps,
    Work,
    collect,
    finish,
)
from ottla.api.surface.routes import Caller
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request
from ottla.quotas.client_quotas import ClientQuotas, QuotaKind, quota_client
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending
from ottla.runtime.ports import Clock

PARTITIONS_PER_TURN: Final = 1000
"""Partitions of a session that are read in one turn of the event loop; more are read in steps."""


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
        # A few bytes are enough to fetch all partitions of a session.
        is_long = (
            isinstance(context, Incremental)
            and context.session.partitions.awake_count > PARTITIONS_PER_TURN
        )
        return self._serve(caller, fetch, context, is_long=is_long)

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
    ) -> Reply | Steps[Reply]:
        """Read and reply within the quota of the client; in steps if the request ``is_long``."""
        if not self.quotas.is_active:
            started = _Fetch(self, caller, fetch, context, fetch.bytes_max)
            return started.start_steps() if is_long else started.start()
        if fetch.replica_id >= 0:
            started = _Fetch(self, caller, fetch, context, fetch.bytes_max)
            return _exempt_steps(started.start_steps()) if is_long else _exempt(started.start())
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
        done = None if session is None else self._record_end(session)
        if done is None:
            done = self._reading.read(list(self._context.fetched), self._bytes_max, is_first=True)
        return Work(self._answer_from_remote(done)) if done.remote else self._conclude(done)

    def start_steps(self) -> Steps[Reply]:
        """Read many partitions once, in steps; reply, or wait for more records."""
        if self._session is not None:
            self._look_at_all_anew(self._session)
        done = yield from self._reading.read_steps(list(self._context.fetched), self._bytes_max)
        if done.remote:
            return Work(self._answer_from_remote(done))
        # Partitions with an error are read again, in one turn, whenever the wait looks for records.
        may_wait = done.watched and len(done.results) - len(done.watched) <= PARTITIONS_PER_TURN
        if may_wait and self._is_session_current():
            return self._conclude(done)
        return (yield from self._answer_steps(done))

    def _is_session_current(self) -> bool:
        """Say whether the session exists and this is its newest request, or there is no session.

        Otherwise the request must not wait: notifications go to the newest request, and nothing
        would remove the subscriptions of a session that has been removed.
        """
        context = self._context
        if not isinstance(context, Incremental):
            return True
        session = context.session
        return context.is_newest and self._handlers.sessions.get(session.id) is session

    def _conclude(self, done: Pass) -> Reply:
        """Return the reply if the pass found enough; otherwise wait."""
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
            self._reading.prepare_end(*done.watched[0], self._bytes_max)
            if session is not None:
                session.last = self._reading.last
        waiting = FetchWait(bytes_min, self, self._reading)
        partitions = None if session is None else session.partitions
        waiting.start(watched, rows, fetch.wait_ms_max, partitions)
        return waiting.reply

    def _record_end(self, session: Session) -> Pass | None:
        """Return the pass of a follower that has all of the only active partition.

        A record is replicated when its followers fetch again, so such fetches take few steps. None
        if the partition has to be read.
        """
        fetched, last = session.partitions.only_awake, session.last
        if self._fetch.replica_id < 0 or fetched is None or last is None:
            return None
        row = self._reading.record_end(fetched, last)
        if row is None:
            return None
        return Pass(results=[(fetched, row)], watched=[(fetched, last.partition)])

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

    def answer_if_enough(self, bytes_min: int) -> list[Chunk] | None:
        """Read all partitions; return the reply if it is due or has ``bytes_min``."""
        awake = list(self._context.fetched)
        row = self._reading.read_end(awake[0]) if len(awake) == 1 else None
        if row is None:
            done = self._read_all()
        else:
            is_due = row.error != 0 or row.diverging is not None
            done = Pass(results=[(awake[0], row)], size=row.size, is_due=is_due)
        return self._answer(done) if done.is_due or done.size >= bytes_min else None

    def answer(self) -> list[Chunk]:
        """Read all partitions and return the reply."""
        return self._answer(self._read_all())

    def _read_all(self) -> Pass:
        return self._reading.read(list(self._context.fetched), self._bytes_max, is_first=False)

    # -- the reply ---------------------------------------------------------------

    async def _answer_from_remote(self, done: Pass) -> list[Chunk]:
        """Reply with what is in remote storage, and with what the pass has found here."""
        from ottla.api.fetch.remote import read_remote  # only with a tier

        reader = self._handlers.sources.remote
        assert reader is not None
        rows = dict(done.results)
        remote = [rows[each.fetched] for each in done.remote]
        is_committed = self._fetch.is_read_committed
        await read_remote(reader, done.remote, remote, is_committed=is_committed)
        return self._answer(done)

    def _answer(self, done: Pass) -> list[Chunk]:
        if len(done.results) > ROWS_PER_STEP:
            return finish(self._answer_steps(done))
        if len(done.results) == 1 and done.results[0][1].is_plain:
            filled = self._fill_template(*done.results[0])
            if filled is not None:
                return filled
        finished = self._context.finish(done.results, self._handlers.clock.monotonic())
        self._count(done.results)
        self._count_resting()
        nodes = self._reading.name_leaders(finished.results)
        topics = [*_by_topic(finished.results)]
        reply = FetchReply(finished.error, finished.session_id, topics, nodes)
        return pack_fetch(reply, self._fetch.version)

    def _fill_template(self, fetched: FetchedPartition, row: Row) -> list[Chunk] | None:
        """Reply with the records of one partition; None if the session has more to say."""
        session_id = self._context.finish_with(fetched, (row.high_watermark, row.log_start_offset))
        if session_id is None:
            return None
        self._count_records(fetched, row.size)
        self._count_resting()
        version, is_read_committed = self._fetch.version, self._reading.is_read_committed
        template = template_of(fetched.topic, row.index, session_id, version, is_read_committed)
        return [template.fill(row)]

    def _answer_steps(self, done: Pass) -> Steps[list[Chunk]]:
        finished = self._context.finish(done.results, self._handlers.clock.monotonic())
        for start in range(0, len(done.results), ROWS_PER_STEP):
            self._count(done.results[start : start + ROWS_PER_STEP])
            if start:
                yield
        self._count_resting()
        nodes = self._reading.name_leaders(finished.results)
        topics = yield from collect(_by_topic(finished.results))
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
    if isinstance(reply, Work):
        return Work(_exempt_later(reply))
    if isinstance(reply, Pending):
        return reply.map(_exempt_result)
    return _exempt_result(reply)


def _exempt_steps(steps: Steps[Reply]) -> Steps[Reply]:
    return _exempt((yield from steps))


async def _exempt_later(reply: Work) -> Result:
    return _exempt_result(await reply)


def _exempt_result(result: Result) -> Result:
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


def _by_topic(results: Sequence[PartitionRow]) -> Iterator[tuple[Topic, list[Row]]]:
    for topic, rows in groupby(results, key=lambda result: result[0].topic):
        yield topic, [row for _, row in rows]
