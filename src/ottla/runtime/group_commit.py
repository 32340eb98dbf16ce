"""Group commit: one thread per log directory turns many waiting commits into few fsyncs.

Commits that arrive while a round of fsyncs runs wait for the next round together. This
is also required for correctness: a sync covers only writes that were made before it began.

A failed sync is never retried. The kernel reports a lost page once and then forgets it, so a later
success proves nothing: the directory stays failed until the process ends.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

import msgspec

from ottla.protocol.faults import StorageFailed
from ottla.runtime.ports import Syncable

log = logging.getLogger(__name__)

# Commits that may wait at once; more wait before they are queued. Kafka's own bound
# is `queued.max.requests` (500) for the whole node.
WAITERS_MAX = 65_536


class _Waiter(msgspec.Struct, frozen=True):
    """One commit: the files to sync, and the future to complete on its loop."""

    files: tuple[Syncable, ...]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class GroupCommit:
    """`Committer` of one log directory, with a thread of its own.

    ``on_failure`` is called once, on the event loop, with the error that failed the
    directory, before any waiting commit raises. A file must stay open until its commits have
    returned. Call ``close`` before dropping the object.
    """

    def __init__(
        self,
        directory: str,
        on_failure: Callable[[Exception], None],
        *,
        waiters_max: int = WAITERS_MAX,
    ) -> None:
        self._directory = directory
        self._on_failure = on_failure
        self._slots = asyncio.Semaphore(waiters_max)
        self._changed = threading.Condition()
        self._waiting: list[_Waiter] = []  # guarded by _changed
        self._closing = False  # guarded by _changed
        self._has_ended = False  # guarded by _changed
        self._closers: list[_Waiter] = []  # guarded by _changed
        self._cause: Exception | None = None  # guarded by _changed; set once
        self._thread = threading.Thread(target=self._work, name=f"commit {directory}", daemon=True)
        self._thread.start()

    async def commit(self, files: Sequence[Syncable]) -> None:
        """Return once everything written to ``files`` before this call is durable.

        Cancelling the caller stops its waiting, not the sync.

        Raises:
            StorageFailed: a sync failed, now or ever before.
        """
        async with self._slots:
            loop = asyncio.get_running_loop()
            waiter = _Waiter(tuple(files), loop, loop.create_future())
            with self._changed:
                if self._cause is not None:
                    raise self._failed() from self._cause
                if self._closing:
                    raise RuntimeError(f"commit after close: {self._directory}")
                self._waiting.append(waiter)
                self._changed.notify()
            await waiter.done

    async def close(self) -> None:
        """Complete the waiting commits, then stop and join the thread. Idempotent."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        with self._changed:
            self._closing = True
            if self._has_ended:
                return
            self._closers.append(_Waiter((), loop, ended))
            self._changed.notify()
        await ended
        self._thread.join()  # does not block: the thread has no work left

    # -- the thread ------------------------------------------------------------

    def _work(self) -> None:
        while round_ := self._next_round():
            error = self._sync(round_)
            if error is None:
                for waiter in round_:
                    _complete(waiter, None)
            else:
                self._fail(round_, error)
        with self._changed:
            self._has_ended = True
            closers, self._closers = self._closers, []
        for closer in closers:
            _complete(closer, None)

    def _next_round(self) -> list[_Waiter]:
        """Wait for work and take all of it; empty if the thread must stop."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            round_, self._waiting = self._waiting, []
            return round_

    def _sync(self, round_: list[_Waiter]) -> Exception | None:
        """Sync each file of a round once, in arrival order."""
        try:
            for file in dict.fromkeys(file for waiter in round_ for file in waiter.files):
                file.sync()
        except Exception as error:  # noqa: BLE001 - a crashed thread would leave commits waiting
            return error
        return None

    def _fail(self, round_: list[_Waiter], error: Exception) -> None:
        log.error(
            "log directory failed, all commits to it fail from now on directory=%s",
            self._directory,
            exc_info=error,
        )
        with self._changed:
            self._cause = error
            failed, self._waiting = round_ + self._waiting, []
        _call(round_[0].loop, self._on_failure, error)
        for waiter in failed:
            _complete(waiter, self._failed())

    def _failed(self) -> StorageFailed:
        fault = StorageFailed(self._directory, f"sync failed: {self._cause}")
        fault.__cause__ = self._cause
        return fault


def _complete(waiter: _Waiter, error: Exception | None) -> None:
    _call(waiter.loop, _resolve, waiter.done, error)


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # the caller was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _call(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    # A closed loop has no waiters.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)
