"""What a handler may return: a message, chunks of bytes and files, either in an `Answer`, or no
reply.

A body of chunks is the response's body without its header, in wire order. A file slice is
sent from the page cache and never copied through Python; its file must stay open until it has been
sent. If the file is shorter or closed, the connection is closed, since the length of the frame has
been sent by then.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer
from ottla.runtime.ports import File


class FileSlice(Protocol):
    """Bytes of an open file: ``length`` of them from ``position``."""

    @property
    def file(self) -> File:
        """The file, open until the slice is sent."""
        ...

    @property
    def position(self) -> int:
        """The first byte."""
        ...

    @property
    def length(self) -> int:
        """How many bytes; never beyond the end of the file."""
        ...


Chunk: TypeAlias = Buffer | FileSlice
Body: TypeAlias = Message | list[Chunk] | tuple[Chunk, ...]


class NoReply(enum.Enum):
    """The type of `NO_REPLY`, distinct from a message."""

    NO_REPLY = "no reply"


NO_REPLY: Final = NoReply.NO_REPLY
"""The request gets no reply: Produce with acks=0."""


class Answer(msgspec.Struct, frozen=True):
    """A body with instructions for the connection.

    ``throttle_ms`` mutes the connection for that long once the reply is sent (KIP-219); the server
    sets it in the body, if a quota is in force. ``close`` closes the connection after the reply or,
    with ``NO_REPLY``, instead of one: that is how an acks=0 producer notices an error. An
    ``is_exempt`` reply is for another node and counts against no quota.
    """

    body: Body | NoReply
    throttle_ms: int = 0
    close: bool = False
    is_exempt: bool = False


class Holding:
    """An awaitable reply of a raw handler that reads the request's body until it ends.

    For a route that otherwise does not keep the body: the connection gives its buffer to the
    request, whose memory counts until the reply is made.
    """

    __slots__ = ("_work",)

    def __init__(self, work: "Awaitable[Result]") -> None:
        self._work = work

    def __await__(self) -> "Generator[object, None, Result]":
        return self._work.__await__()


Result: TypeAlias = Body | NoReply | Answer


class LaterReply:
    """A reply that a callback makes later. It is sent within `answer`, not one iteration later.

    An asyncio future would schedule its callbacks, and the event loop would poll all sockets before
    they run. So `answer` and `fail` must be called from a callback of the loop itself, not from
    within the processing of another request. ``on_end`` is called once before anything is sent.
    """

    __slots__ = ("_done", "_on_announced", "_on_end", "_outcome")

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._outcome: Result | BaseException | None = None
        self._done: Callable[[Result | BaseException], None] | None = None
        self._on_announced: Callable[[], None] | None = None

    def when_announced(self, announced: Callable[[], None]) -> None:
        """Call ``announced`` whenever a callback that may send the reply has been scheduled."""
        self._on_announced = announced

    def announce(self) -> None:
        """Say that the reply may be sent later in this iteration, by a scheduled callback."""
        if self._on_announced is not None:
            self._on_announced()

    def when_done(self, done: "Callable[[Result | BaseException], None]") -> None:
        """Call ``done`` once with the result, or with the error in its place; maybe at once."""
        assert self._done is None, "a reply has one receiver"
        self._done = done
        if self._outcome is not None:
            done(self._outcome)

    def done(self) -> bool:
        """Whether the request has its result, or was cancelled."""
        return self._outcome is not None

    def answer(self, result: "Result") -> None:
        """Send the result, unless the request was cancelled."""
        self._end(result)

    def fail(self, error: BaseException) -> None:
        """Send the error reply, unless the request was cancelled."""
        self._end(error)

    def cancel(self) -> None:
        """End the wait; the receiver gets a `CancelledError`."""
        self._end(asyncio.CancelledError())

    def _end(self, outcome: "Result | BaseException") -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        on_end, done = self._on_end, self._done
        # Callbacks refer to objects that refer to this one: without them, no cycle is left for the
        # garbage collector, whose pauses would delay other requests.
        self._on_end, self._done, self._on_announced = _nothing, None, None
        on_end()
        if done is not None:
            done(outcome)

    def __await__(self) -> "Generator[object, None, Result]":
        """Wait for the result in a task."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def done(outcome: Result | BaseException) -> None:
            if future.done():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.when_done(done)
        try:
            return (yield from future.__await__())
        finally:
            self.cancel()


def _nothing() -> None:
    """Take the place of a callback that has been called."""


T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that yields often, so that other requests can be served in between; it returns its result.

Between two yields it takes microseconds, not milliseconds: at most `ITEMS_PER_STEP` rows.
"""
Reply: TypeAlias = Result | Awaitable[Result]
Handled: TypeAlias = Reply | Steps[Reply]
"""What a handler may return."""

ITEMS_PER_STEP: Final = 64
"""Rows of a list that a handler answers between two yields."""
LARGE_BYTES: Final = 16 * 1024
"""A request of at least this size is decoded in steps: it may list thousands of items."""
PACE_S: Final = 0.002
"""How long steps run before the event loop polls, where no connection's turn bounds them."""


def batched(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield ``items`` in lists of at most `ITEMS_PER_STEP`."""
    source = iter(items)
    while group := list(islice(source, ITEMS_PER_STEP)):
        yield group


def collect(items: Iterable[T], cost: Callable[[T], int] | None = None) -> Steps[list[T]]:
    """Return ``items`` as a list, with a yield every `ITEMS_PER_STEP` of them.

    ``cost`` says how many rows an item stands for, where it may be more than one.
    """
    found: list[T] = []
    spent = 0
    for item in items:
        found.append(item)
        spent += 1 if cost is None else cost(item)
        if spent >= ITEMS_PER_STEP:
            spent = 0
            yield
    return found


def finish(steps: Steps[T]) -> T:
    """Run ``steps`` to the end in one go and return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def at_once(steps: Steps[T]) -> T | None:
    """Return the result of ``steps`` if they end without a yield, else None: they go on later."""
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return None


# A tuple: a union of types would be constructed at every check.
IN_MEMORY: Final = (bytes, bytearray, memoryview)


def is_file(chunk: Chunk) -> bool:
    """Say whether a chunk is a slice of a file."""
    return not isinstance(chunk, IN_MEMORY)


def length_of(chunk: Chunk) -> int:
    """Return the number of bytes of a chunk on the wire."""
    if isinstance(chunk, memoryview):
        return chunk.nbytes
    return len(chunk) if isinstance(chunk, (bytes, bytearray)) else chunk.length


async def paced(steps: Steps[T]) -> T:
    """Run ``steps`` to the end, letting the event loop poll every `PACE_S`."""
    loop = asyncio.get_running_loop()
    stop = loop.time() + PACE_S
    try:
        while True:
            next(steps)
            if loop.time() >= stop:
                await asyncio.sleep(0)
                stop = loop.time() + PACE_S
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


async def finished(handled: Handled) -> Result:
    """Return the result of a handler, awaiting it or running its steps if needed."""
    reply = await paced(handled) if isinstance(handled, Generator) else handled
    return await reply if isinstance(reply, Awaitable) else reply
