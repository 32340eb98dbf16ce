"""A reply that may come later: the one type for handlers, waits and coordinators.

    answer, fail      called by the maker of the reply, once; the receiver is notified by a callback
                      of its own, since the maker may be in the middle of another request
    answer_now        notifies within the call: only from a callback of the event loop
    cancel            called by the receiver, which then gets a `CancelledError`

A reply that has come before anybody waits for it costs neither a future nor a callback. For one
that comes later, `answer_now` saves an iteration of the event loop, in which all sockets would be
polled before the reply is sent.
"""

import asyncio
import enum
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, Generic, TypeVar

from ottla.protocol.faults import Fault

T = TypeVar("T")
U = TypeVar("U")


class _Unset(enum.Enum):
    UNSET = "unset"


_UNSET: Final = _Unset.UNSET


def _nothing() -> None:
    """Take the place of a callback that is not set, or has been called."""


class Pending(Generic[T]):
    """One reply. ``on_end`` is called once, before the receiver: it ends what the reply needed."""

    __slots__ = ("_on_announced", "_on_end", "_outcome", "_receiver")

    def __init__(self, on_end: Callable[[], None] = _nothing) -> None:
        self._on_end = on_end
        self._outcome: T | BaseException | _Unset = _UNSET
        self._receiver: Callable[[T | BaseException], object] | None = None
        self._on_announced = _nothing

    # -- for the receiver ----------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether the reply has come, has failed or was cancelled."""
        return self._outcome is not _UNSET

    def outcome(self) -> T:
        """Return the reply, which has come. Raises the error if it has failed."""
        outcome = self._outcome
        assert outcome is not _UNSET, "the reply has not come yet"
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def when_done(self, receiver: "Callable[[T | BaseException], object]") -> None:
        """Call ``receiver`` once with the reply, or with the error in its place; maybe now."""
        assert self._receiver is None, "a reply has one receiver"
        if self._outcome is _UNSET:
            self._receiver = receiver
        else:
            receiver(self._outcome)

    def when_announced(self, announced: Callable[[], None]) -> None:
        """Call ``announced`` whenever a callback that may make the reply has been scheduled."""
        self._on_announced = announced

    def cancel(self) -> None:
        """End the wait, unless the reply has come."""
        if self._outcome is _UNSET:
            self.answer_now(asyncio.CancelledError())

    def map(
        self, change: Callable[[T], U], failed: Callable[[Fault], U] | None = None
    ) -> "Pending[U]":
        """Return the reply that ``change`` makes of this one, and ``failed`` of a fault."""
        mapped: Pending[U] = Pending(self.cancel)

        def received(outcome: T | BaseException) -> None:
            result: U | BaseException
            try:
                if not isinstance(outcome, BaseException):
                    result = change(outcome)
                elif failed is not None and isinstance(outcome, Fault):
                    result = failed(outcome)
                else:
                    result = outcome
            except Exception as error:  # noqa: BLE001 - the reply carries it
                result = error
            mapped.answer_now(result)

        self.when_announced(mapped.announce)
        self.when_done(received)
        return mapped

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the reply in a task."""
        if self._outcome is _UNSET:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_done(partial(_wake, future))
            try:
                yield from future.__await__()
            finally:
                self.cancel()
        return self.outcome()

    # -- for the maker ---------------------------------------------------------------

    def announce(self) -> None:
        """Say that the reply may be made later in this iteration, by a scheduled callback."""
        self._on_announced()

    def answer(self, reply: T) -> None:
        """Make the reply; the receiver is notified soon. A cancelled request gets none."""
        receiver = self._end(reply)
        if receiver is not None:
            asyncio.get_running_loop().call_soon(receiver, reply)

    def fail(self, error: BaseException) -> None:
        """Fail the request; the receiver is notified soon."""
        receiver = self._end(error)
        if receiver is not None:
            asyncio.get_running_loop().call_soon(receiver, error)

    def answer_now(self, outcome: T | BaseException) -> None:
        """Make the reply, or fail with the error in its place, and notify the receiver."""
        receiver = self._end(outcome)
        if receiver is not None:
            receiver(outcome)

    def _end(self, outcome: T | BaseException) -> "Callable[[T | BaseException], object] | None":
        """Store the outcome; return the receiver to notify, if there is one."""
        if self._outcome is not _UNSET:
            assert isinstance(self._outcome, asyncio.CancelledError), "answered twice"
            return None
        self._outcome = outcome
        on_end, receiver = self._on_end, self._receiver
        # Callbacks refer to objects that refer to this one: without them, no cycle is left for the
        # garbage collector, whose pauses would delay other requests.
        self._on_end, self._receiver, self._on_announced = _nothing, None, _nothing
        on_end()
        return receiver


def completed(reply: T) -> Pending[T]:
    """Return a reply that has come."""
    pending: Pending[T] = Pending()
    pending.answer_now(reply)
    return pending


def _wake(future: "asyncio.Future[None]", outcome: object) -> None:
    if not future.done():
        future.set_result(None)
