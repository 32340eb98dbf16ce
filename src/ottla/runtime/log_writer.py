"""Writes log lines in a thread, so that a slow disk, pipe or terminal cannot block the event loop.

    event loop -> LogWriter.emit -> queue, at most LINES_WAITING_MAX -> thread -> stream

A line that finds the queue full is dropped and counted. Lines that other hosts can cause, by any
number of requests or connections, are limited by the place in the code that logs them
(`LineLimit`): logger and message without its arguments. The thread reports what was left out.

Names and texts of clients are in many lines. So a line is cut at `LINE_LENGTH_MAX`, characters that
a terminal or a reader of the log would take for more than text are escaped, and lines of a
traceback are indented: only a line of ours begins at the first column.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, TextIO

LINES_WAITING_MAX: Final = 10_000
FLUSH_S_MAX: Final = 2.0
LINES_PER_SECOND: Final = 20
"""Lines of one place in the code and second, of the loggers below."""
LIMITED_LOGGERS: Final = ("ottla.server.", "ottla.security.", "ottla.api.", "ottla.runtime.network")
PLACES_MAX: Final = 1000
LINE_LENGTH_MAX: Final = 8192
"""Characters of a message; the rest is left out."""
TRACEBACK_LENGTH_MAX: Final = 65_536


class LineLimit:
    """Limits the lines per place and second. ``now`` returns seconds. Not thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._second = 0
        self._counts: dict[tuple[str, str], int] = {}

    def admits(self, logger: str, message: str) -> bool:
        """Say whether a line may be written; ``message`` has its arguments not filled in."""
        if not logger.startswith(LIMITED_LOGGERS):
            return True
        place = (logger, message)
        count = self._counts.get(place, 0)
        if count or len(self._counts) < PLACES_MAX:
            self._counts[place] = count + 1
        return count < LINES_PER_SECOND

    def take_omitted(self) -> list[tuple[str, str, int]]:
        """Begin a new second if one has passed; return places and how many lines were left out."""
        second = int(self._now())
        if second == self._second:
            return []
        self._second = second
        omitted = [
            (logger, message, count - LINES_PER_SECOND)
            for (logger, message), count in self._counts.items()
            if count > LINES_PER_SECOND
        ]
        self._counts.clear()
        return omitted


class LogWriter(logging.Handler):
    """`logging.Handler` that queues lines for its thread."""

    def __init__(self, stream: TextIO, limit: LineLimit | None = None) -> None:
        super().__init__()
        self._stream = stream
        self._limit = limit or LineLimit()
        self._queue: queue.SimpleQueue[logging.LogRecord | threading.Event] = queue.SimpleQueue()
        self._dropped = 0
        self._reported = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. Its arguments are filled in here: they may change later."""
        for logger, message, count in self._limit.take_omitted():
            text = f"left out {count} lines like: {message}"
            self._put(logging.LogRecord(logger, logging.WARNING, "", 0, text, None, None))
        if self._limit.admits(record.name, str(record.msg)):
            self._put(_filled_in(record))

    def flush(self) -> None:
        """Wait until the lines queued so far are written, but not for long."""
        if self._thread.is_alive():
            written = threading.Event()
            self._queue.put(written)
            written.wait(FLUSH_S_MAX)

    def _put(self, record: logging.LogRecord) -> None:
        if self._queue.qsize() >= LINES_WAITING_MAX:
            self._dropped += 1
        else:
            self._queue.put(record)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            # A stream that is closed, or a disk that is full, must not end the thread.
            with contextlib.suppress(OSError, ValueError):
                if isinstance(item, threading.Event):
                    self._stream.flush()
                else:
                    self._stream.write(_indented(self.format(item)) + "\n")
                    self._report_dropped()
                if self._queue.empty():
                    self._stream.flush()
            if isinstance(item, threading.Event):
                item.set()

    def _report_dropped(self) -> None:
        count = self._dropped - self._reported
        if count and self._queue.qsize() < LINES_WAITING_MAX // 2:
            self._reported += count
            text = f"dropped {count} lines: they were logged faster than written"
            line = logging.LogRecord(__name__, logging.WARNING, "", 0, text, None, None)
            self._stream.write(self.format(line) + "\n")


def _filled_in(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy with the arguments in the message; other handlers get the record as it is."""
    filled = record.__class__.__new__(record.__class__)
    filled.__dict__.update(record.__dict__)  # a tenth of the time of copy.copy
    filled.msg, filled.args = _one_line(record.getMessage()), None
    return filled


def _one_line(message: str) -> str:
    """Return a message without control characters, and not longer than a line may be."""
    if (omitted := len(message) - LINE_LENGTH_MAX) > 0:
        message = f"{message[:LINE_LENGTH_MAX]}... and {omitted} characters more"
    return _escaped(message)


def _indented(text: str) -> str:
    """Return a record with its traceback, whose lines are indented."""
    if "\n" not in text:
        return text
    return "\n  ".join(map(_escaped, text[:TRACEBACK_LENGTH_MAX].split("\n")))


def _escaped(text: str) -> str:
    """Return ``text`` with what is not printable as ``\\n``, ``\\x1b`` or ``\\u202e``."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )
