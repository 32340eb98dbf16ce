"""Exports that wait for a collector: bounded, sent one after the other, retried with back-off.

An export that does not fit is dropped and counted, so that an absent collector costs at most
`QUEUE_BYTES_MAX`. One that the collector refuses for good is dropped, too; otherwise it is sent
again up to `ATTEMPTS_MAX` times, and exports behind it wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ottla.observability.otlp_http import Delivered, Failed, Outcome
from ottla.runtime.ports import Random, Worker

log = logging.getLogger(__name__)

QUEUE_BYTES_MAX: Final = 32 * 1024 * 1024
ATTEMPTS_MAX: Final = 8
BACKOFF_S_MIN: Final = 1.0
BACKOFF_S_MAX: Final = 30.0


class Export(msgspec.Struct, frozen=True):
    """One request to the collector. ``signal`` names what it has, for the counters."""

    signal: str
    body: bytes


class SignalCounts(msgspec.Struct):
    """What became of the exports of one signal."""

    delivered: int = 0
    retries: int = 0
    dropped: int = 0


class Outbox:
    """The exports for one URL."""

    def __init__(
        self,
        name: str,
        post: Callable[[bytes], Outcome],
        worker: Worker,
        random: Random,
        backoff_s_min: float = BACKOFF_S_MIN,
    ) -> None:
        """``name`` is shown to operators; ``post`` blocks and runs on ``worker``."""
        self._name = name
        self._post = post
        self._worker = worker
        self._random = random
        self._backoff_s_min = backoff_s_min
        self._queue: deque[Export] = deque()
        self._filled = asyncio.Event()
        self._is_failing = False
        self.bytes = 0
        self.counts: dict[str, SignalCounts] = {}

    def offer(self, export: Export) -> None:
        """Queue an export, or drop it if the queue is full."""
        if self.bytes + len(export.body) > QUEUE_BYTES_MAX:
            self.of(export.signal).dropped += 1
            return
        self._queue.append(export)
        self.bytes += len(export.body)
        self._filled.set()

    def has_queued(self, signal: str) -> bool:
        """Say whether an export of a signal has not been sent yet."""
        return any(export.signal == signal for export in self._queue)

    def of(self, signal: str) -> SignalCounts:
        """Return the counts of a signal."""
        return self.counts.setdefault(signal, SignalCounts())

    async def run(self) -> None:
        """Send until cancelled; `flush` then sends what is queued."""
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            export = self._queue[0]
            await self._deliver(export)
            self._queue.popleft()
            self.bytes -= len(export.body)

    async def flush(self) -> None:
        """Send what is queued, each export once; the first failure drops the others.

        An export that was being sent when `run` was cancelled may reach the collector twice.
        """
        while self._queue:
            export = self._queue.popleft()
            self.bytes -= len(export.body)
            outcome = await self._worker.run(partial(self._post, export.body))
            if isinstance(outcome, Failed):
                log.warning("otlp export lost at stop to=%s exports=%d reason=%s", self._name,
                            1 + len(self._queue), outcome.reason)  # fmt: skip
                for lost in (export, *self._queue):
                    self.of(lost.signal).dropped += 1
                self._queue.clear()
                self.bytes = 0
                return
            self.of(export.signal).delivered += 1

    async def _deliver(self, export: Export) -> None:
        counts = self.of(export.signal)
        for attempt in range(ATTEMPTS_MAX):
            outcome = await self._worker.run(lambda: self._post(export.body))
            self._note(outcome)
            if isinstance(outcome, Delivered):
                counts.delivered += 1
                return
            if not outcome.is_retryable or attempt == ATTEMPTS_MAX - 1:
                break
            counts.retries += 1
            await asyncio.sleep(self._delay_s(outcome, attempt))
        counts.dropped += 1

    def _delay_s(self, failed: Failed, attempt: int) -> float:
        if failed.retry_after_s is not None:
            return failed.retry_after_s
        longest: float = min(self._backoff_s_min * 2**attempt, BACKOFF_S_MAX)
        return longest * (0.5 + self._random.fraction() / 2)

    def _note(self, outcome: Outcome) -> None:
        """Log when exports begin to fail and when they succeed again, not each failure."""
        if isinstance(outcome, Failed):
            if not self._is_failing:
                log.warning("otlp export failing to=%s reason=%s", self._name, outcome.reason)
            self._is_failing = True
        elif self._is_failing:
            self._is_failing = False
            log.info("otlp export works again to=%s", self._name)
