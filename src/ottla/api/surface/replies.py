"""What a handler may return: a message, chunks of bytes and files, either in an `Answer`, no reply,
or a `Pending` of one of them.

A body of chunks is the response's body without its header, in wire order. A file slice is
sent from the page cache and never copied through Python; its file must stay open until it has been
sent. If the file is shorter or closed, the connection is closed, since the length of the frame has
been sent by then.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer
from ottla.runtime.pending import Pending
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


Result: TypeAlias = Body | NoReply | Answer


T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that yields often, so that other requests can be served in between; it returns its result.

Between two yields it takes microseconds, not milliseconds: at most `ITEMS_PER_STEP` rows.
"""
Reply: TypeAlias = Result | Pending[Result]
"""The reply to a request, or the promise of one."""
Handled: TypeAlias = Result | Pending[Any] | Awaitable[Result] | Steps[Any]
"""What a handler may return: an ``async def`` and a generator of steps become a `Work`."""
RESULTS: Final = (Message, list, tuple, Answer, NoReply)


def _nothing() -> None:
    """Take the place of a callback that is not set, or has been called."""


class Hold:
    """Makes the later requests of a connection wait until `release`.

    The end of the request releases them, too, however it ends.
    """

    __slots__ = ("_on_release",)

    def __init__(self) -> None:
        self._on_release: Callable[[], object] = _nothing

    def when_released(self, call: Callable[[], object]) -> None:
        """Call ``call`` once, at the first `release` from now on."""
        self._on_release = call

    def release(self) -> None:
        """Let the later requests be served. Further calls do nothing."""
        on_release, self._on_release = self._on_release, _nothing
        on_release()


class Work(Pending[Result]):
    """A reply that its receiver makes, by a coroutine or by steps: it runs nothing by itself.

    ``holds_body``: it reads the body of a raw request until it ends, although its route does not
    keep the body. The connection gives its buffer to the request, whose memory counts until then.
    ``hold``: later requests of the connection wait until it is released, for a coroutine of a raw
    request whose effects must come before theirs.
    """

    __slots__ = ("hold", "holds_body", "run")

    def __init__(
        self,
        run: "Awaitable[Result] | Steps[Reply]",
        *,
        holds_body: bool = False,
        hold: Hold | None = None,
    ) -> None:
        super().__init__()
        self.run = run
        self.holds_body = holds_body
        self.hold = hold

    def __await__(self) -> Generator[object, None, Result]:
        """Make the reply in this task; steps let the event loop poll now and then."""
        return finished(self.run).__await__()


def reply_of(handled: Handled) -> Reply:
    """Return the reply that a handler has made, or will. Raises the error of one that failed."""
    if isinstance(handled, RESULTS):
        return handled
    if not isinstance(handled, Pending):
        return Work(handled)
    return handled.outcome() if handled.is_done else handled


ROWS_MAX: Final = 1_000_000
"""Rows of one reply: a small request may name one thing with many rows any number of times."""
BYTES_MAX: Final = 256 << 20
"""Bytes of one reply that is encoded in memory."""


class ReplyTooLong(Fault):
    """The reply would have more rows or bytes than one may have."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self) -> None:
        super().__init__("The reply would be too long. Name less in one request.")


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

    Raises:
        ReplyTooLong: the items have more than `ROWS_MAX` rows beside themselves.
    """
    found: list[T] = []
    spent = rows = 0
    for item in items:
        found.append(item)
        if cost is None:
            spent += 1
        else:
            more = cost(item)
            spent += more
            rows += more
            if rows - len(found) > ROWS_MAX:
                raise ReplyTooLong
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
