"""Fetch, as a consumer or a follower sends it to a broker.

    parse -> session -> one pass over the partitions -> enough? -> reply
                                                   `-> wait -> a second pass -> reply

A reply is numbers packed by hand and slices of segment files, which the connection sends from
the page cache. The request is read into values before the handler returns, so nothing holds on
to the receive buffer while it waits.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from ottla.api.fetch_read import Pass, Reading, ReadSources
from ottla.api.fetch_reply import FetchReply, Row, pack_fetch
from ottla.api.fetch_request import FetchAsk, Topic, parse_fetch
from ottla.api.fetch_sessions import Context, Followed, Sessions, Told
from ottla.api.fetch_wait import FetchWait
from ottla.api.replies import Chunk, Reply
from ottla.api.routes import Caller, Route
from ottla.observability.topic_events import NoTopicEvents, TopicEvents
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request
from ottla.runtime.ports import Clock


class FetchHandlers(msgspec.Struct, frozen=True):
    """The handler of a broker's listeners. ``bytes_max`` is ``fetch.max.bytes``."""

    sources: ReadSources
    sessions: Sessions
    clock: Clock
    bytes_max: int
    events: TopicEvents = msgspec.field(default_factory=NoTopicEvents)

    def routes(self) -> tuple[Route, ...]:
        """Return its part of a route table."""
        return (
            Route(ApiKey.FETCH, self.on_fetch, raw=True, keeps_body=False, cancel_when_gone=True),
        )

    def on_fetch(self, caller: Caller, request: Request, body: memoryview) -> Reply:
        """Answer at once, or with a future that is done when there is something to tell."""
        ask = parse_fetch(request.version, body)
        context = self.sessions.open(ask, self.clock.monotonic())
        if isinstance(context, ErrorCode):
            return pack_fetch(FetchReply(context), ask.version)
        return _Fetch(self, caller, ask, context).start()


class _Fetch:
    """One request under way."""

    __slots__ = ("_ask", "_bytes_max", "_context", "_followed", "_handlers", "_reading")

    def __init__(
        self, handlers: FetchHandlers, caller: Caller, ask: FetchAsk, context: Context
    ) -> None:
        self._handlers = handlers
        self._ask = ask
        self._context = context
        self._reading = Reading(handlers.sources, caller, ask)
        self._followed: list[Followed] = list(context.followed)
        self._bytes_max = min(ask.bytes_max, handlers.bytes_max)

    def start(self) -> Reply:
        """Read once; answer, or wait for more."""
        ask = self._ask
        done = self._reading.read(self._followed, self._bytes_max, is_first=True)
        bytes_min = min(ask.bytes_min, self._bytes_max)
        if done.is_due or not done.watched or done.size >= bytes_min or ask.wait_ms_max <= 0:
            return self._answer(done)
        waiting = FetchWait(bytes_min, self._reading.look_again, self._read_again)
        waiting.start(done.watched, dict(done.told), ask.wait_ms_max)
        return waiting.future

    def _read_again(self) -> list[Chunk]:
        return self._answer(self._reading.read(self._followed, self._bytes_max, is_first=False))

    def _answer(self, done: Pass) -> list[Chunk]:
        finished = self._context.finish(done.told, self._handlers.clock.monotonic())
        _count(self._handlers.events, done.told, self._ask.replica_id >= 0)
        nodes = self._reading.name_leaders(finished.told)
        reply = FetchReply(finished.error, finished.session_id, _by_topic(finished.told), nodes)
        return pack_fetch(reply, self._ask.version)


def _count(events: TopicEvents, told: Sequence[Told], is_follower: bool) -> None:
    """Count what every partition came to, also those that a session has nothing new to say of."""
    for followed, row in told:
        name = followed.name or ""
        size = 0 if row.records is None else row.records.length
        if row.error:
            if not is_follower:
                events.fetch_failed(name)
        elif is_follower:
            events.replicated_out(name, size)
        else:
            events.fetched(name, size)


def _by_topic(told: Sequence[Told]) -> list[tuple[Topic, list[Row]]]:
    return [
        (topic, [row for _, row in rows])
        for topic, rows in groupby(told, key=lambda each: each[0].topic)
    ]
