"""The thread that writes the log: it never blocks its callers, and says what it left out."""

import io
import logging
import sys
import threading
from typing import Any

from ottla.runtime import log_writer
from ottla.runtime.log_writer import (
    LINE_LENGTH_MAX,
    LINES_PER_SECOND,
    LINES_WAITING_MAX,
    TRACEBACK_LENGTH_MAX,
    LineLimit,
    LogWriter,
)


class SlowStream(io.StringIO):
    """A stream that blocks until `opened` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()

    def write(self, text: str) -> int:
        assert self.opened.wait(60)
        return super().write(text)


class BrokenStream(io.StringIO):
    """A stream whose first writes fail."""

    failures = 3

    def write(self, text: str) -> int:
        if self.failures:
            self.failures -= 1
            raise OSError("No space left on device")
        return super().write(text)


def record(message: str, *arguments: object, name: str = "ottla.node.x") -> logging.LogRecord:
    return logging.LogRecord(name, logging.INFO, "f", 1, message, arguments, None)


def written(writer: LogWriter, stream: Any) -> list[str]:
    writer.flush()
    return stream.getvalue().splitlines()


def test_lines_are_written_in_order_with_their_arguments_as_they_were() -> None:
    stream = io.StringIO()
    writer, names = LogWriter(stream), ["a"]
    writer.handle(record("first %s", names))
    names.append("b")
    writer.handle(record("second"))
    assert written(writer, stream) == ["first ['a']", "second"]


def test_blocked_stream_blocks_no_caller_and_drops_are_counted() -> None:
    stream = SlowStream()
    writer = LogWriter(stream)
    for number in range(LINES_WAITING_MAX + 100):
        writer.handle(record("line %d", number))
    stream.opened.set()
    lines = written(writer, stream)
    dropped = [line for line in lines if "were logged faster than written" in line]
    assert len(dropped) == 1
    count = int(dropped[0].split()[1])
    assert 90 <= count <= 100
    assert len(lines) == LINES_WAITING_MAX + 100 - count + 1


def test_full_disk_does_not_end_the_thread() -> None:
    stream = BrokenStream()
    writer = LogWriter(stream)
    for number in range(5):
        writer.handle(record("line %d", number))
        writer.flush()
    assert "line 4" in written(writer, stream)


def test_flush_does_not_wait_long_for_a_blocked_stream(monkeypatch: Any) -> None:
    monkeypatch.setattr(log_writer, "FLUSH_S_MAX", 0.01)
    stream = SlowStream()
    writer = LogWriter(stream)
    writer.handle(record("line"))
    writer.flush()
    stream.opened.set()


def test_lines_that_peers_cause_are_limited_by_place_and_second() -> None:
    now = [100.0]
    stream = io.StringIO()
    writer = LogWriter(stream, LineLimit(lambda: now[0]))
    for number in range(1000):
        writer.handle(record("connection failed peer=%s", number, name="ottla.server.x"))
        writer.handle(record("partition loaded name=%s", number, name="ottla.replication.x"))
    writer.handle(record("another line", name="ottla.server.x"))
    now[0] += 1
    writer.handle(record("connection failed peer=%s", "last", name="ottla.server.x"))
    lines = written(writer, stream)
    failed = [line for line in lines if line.startswith("connection failed")]
    assert len(failed) == LINES_PER_SECOND + 1
    assert failed[-1] == "connection failed peer=last"
    assert f"left out {1000 - LINES_PER_SECOND} lines like: connection failed peer=%s" in lines
    assert len([line for line in lines if line.startswith("partition loaded")]) == 1000
    assert "another line" in lines


def test_text_of_a_client_neither_forges_a_line_nor_reaches_the_terminal_as_control() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    hostile = "a\n2026-01-01 INFO forged\r\x1b[2J\x9b\u202e\ud800"
    writer.handle(record("group=%s", hostile))
    assert written(writer, stream) == [r"group=a\n2026-01-01 INFO forged\r\x1b[2J\x9b\u202e\ud800"]


def test_long_line_is_cut() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    writer.handle(record("user=%s", "\x01" * 500_000))
    (line,) = written(writer, stream)
    assert len(line) < 5 * LINE_LENGTH_MAX
    assert line.endswith("characters more")


def test_text_in_a_traceback_does_not_begin_a_line() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    failed = record("failed")
    try:
        raise ValueError("x\n2026-01-01 INFO forged\x1b[2J" + "y" * 1_000_000)
    except ValueError:
        failed.exc_info = sys.exc_info()
    writer.handle(failed)
    first, *others = written(writer, stream)
    assert first == "failed"
    assert any("ValueError: x" in line for line in others)
    assert all(line.startswith("  ") and "\x1b" not in line for line in others)
    assert sum(map(len, others)) < TRACEBACK_LENGTH_MAX + 10_000


def test_record_stays_as_it_is_for_other_handlers() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    writer.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    line = record("read %s of %d", "t-0", 7)
    before = dict(line.__dict__)
    writer.handle(line)
    assert written(writer, stream)[0].endswith("read t-0 of 7")
    assert line.__dict__ == before
