"""Run one query of ``ottla sql``: once, or again and again as records arrive."""

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import msgspec
import pyarrow as pa

from ottla.cli.commands.sql_output import SqlOutput, Writer, open_writer
from ottla.cli.connecting.connection_settings import options_of
from ottla.cli.connecting.session import advice, mismatch, parse_bootstrap, permission_hint
from ottla.cli.options import say
from ottla.cli.terminal.failures import fail, naming, reason_of
from ottla.client.blocking.broker_client import BrokerClient, ClientSettings, client_for
from ottla.client.client_security import BadClientSecurity
from ottla.client.cluster import NoBroker, Refused
from ottla.operations.sizes import human
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import name_of_code
from ottla.protocol.faults import Fault
from ottla.runtime.clock import SystemClock
from ottla.security.sasl.credentials import LoginFailed
from ottla.sql.scan import ScanStats, Stopped
from ottla.sql.session import SqlFailed, SqlOptions, SqlSession

EXIT_INTERRUPTED: Final = 130
_SHOW_AFTER_MS: Final = 1000
_SHOW_EVERY_MS: Final = 200
# Rows of a running result that are kept to see whether it has changed.
_RESULT_ROWS_MAX: Final = 100_000


class Running(msgspec.Struct, frozen=True):
    """A query, and where its result goes. ``interval_s`` None: it is run once."""

    query: str
    output: SqlOutput
    file: Path | None
    interval_s: float | None
    is_counted: bool


class _ScanProgress:
    """A line on stderr while a scan takes long."""

    def __init__(self, *, is_shown: bool) -> None:
        self._clock = SystemClock()
        self._is_shown = is_shown
        self.began = self._last = self._clock.monotonic()
        self._has_line = False

    def watch(self, stats: ScanStats) -> None:
        """Show how far the scans are, a few times per second."""
        now = self._clock.monotonic()
        if not self._is_shown or now - self.began < _SHOW_AFTER_MS:
            return
        if now - self._last < _SHOW_EVERY_MS:
            return
        self._last, self._has_line = now, True
        share = stats.records / max(stats.offsets_planned, 1)
        sys.stderr.write(f"\r{min(share, 1):.0%} {self.text(stats)}\x1b[K")
        sys.stderr.flush()

    def text(self, stats: ScanStats) -> str:
        """Return what was fetched, and how fast."""
        seconds = max(self._clock.monotonic() - self.began, 1) / 1000
        return (
            f"{stats.records:,} of {stats.offsets_in_range:,} records, {human(stats.bytes)}"
            f" fetched ({stats.records / seconds:,.0f}/s, {human(stats.bytes / seconds)}/s)"
        )

    def clear(self) -> None:
        """Clear the line."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._has_line = False


def run_query(settings: ClientSettings, options: SqlOptions, running: Running) -> int:
    """Run a query and print its result; return the exit code."""
    progress = _ScanProgress(is_shown=sys.stderr.isatty())
    client: BrokerClient | None = None
    try:
        client = client_for(settings)
        with (
            SqlSession(client, options, say, progress.watch) as session,
            _stopped_by_signal(session),
        ):
            try:
                _run(session, running)
            finally:
                progress.clear()
                if running.is_counted:
                    say(progress.text(session.stats))
    except (Stopped, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise  # the reader of the output has exited
    except (SqlFailed, Refused) as error:
        _fail(error, running.query)
    except LoginFailed as error:
        addresses = parse_bootstrap(",".join(settings.bootstrap))
        fail(f"login failed: {error}" + mismatch(addresses, options_of(settings.properties)))
    except NoBroker as error:
        addresses = parse_bootstrap(",".join(settings.bootstrap))
        fail(f"{error}; {advice(str(error), addresses, options_of(settings.properties))}")
    except (Fault, BadClientSecurity, OSError) as error:
        fail(reason_of(error))
    finally:
        if client is not None:
            client.close()
    return 0


def _fail(error: SqlFailed | Refused, query: str) -> NoReturn:
    """Report a failed query, and the right that was missing if it was that."""
    refused = error if isinstance(error, Refused) else error.__cause__
    if not isinstance(refused, Refused):
        fail(str(error))
    # An error of fetching is about a partition, which the query does not name.
    api = ApiKey.METADATA if refused.subject in query else ApiKey.FETCH
    fail(f"{error}{permission_hint(refused, api)}", name_of_code(refused.code))


@contextmanager
def _stopped_by_signal(session: SqlSession) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        session.stop()

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _run(session: SqlSession, running: Running) -> None:
    with _opened(running) as out:
        if running.interval_s is None:
            _write(
                open_writer(running.output, out, is_terminal=_is_terminal(running)),
                session.run(running.query),
            )
            return
        query = session.prepare(running.query)
        if session.is_row_wise(query):
            _follow_rows(session, query, running, out)
        else:
            _follow_result(session, query, running, out)


@contextmanager
def _opened(running: Running) -> Iterator[BinaryIO]:
    if running.file is None:
        yield sys.stdout.buffer
        return
    with naming(running.file), open(running.file, "wb") as out:
        yield out


def _is_terminal(running: Running) -> bool:
    return running.file is None and sys.stdout.isatty()


def _write(writer: Writer, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        writer.write(batch)
    writer.close()


def _follow_rows(session: SqlSession, query: str, running: Running, out: BinaryIO) -> None:
    """Print the rows of the topic, then those of new records as they arrive."""
    writer = open_writer(running.output, out, is_terminal=_is_terminal(running))
    assert running.interval_s is not None
    while True:
        for batch in session.execute(query):
            writer.write(batch)
        writer.flush()
        _wait_new(session, running.interval_s, since_last=True)


def _follow_result(session: SqlSession, query: str, running: Running, out: BinaryIO) -> None:
    """Print the result, and print it again whenever new records have changed it."""
    assert running.interval_s is not None
    clock, last = SystemClock(), None
    is_terminal = _is_terminal(running)
    while True:
        began = clock.monotonic()
        result = _limited(session.execute(query))
        if last is None or not result.equals(last):
            if is_terminal and running.output is SqlOutput.TABLE:
                out.write(b"\x1b[H\x1b[2J")
            elif last is not None and running.output is SqlOutput.TABLE:
                out.write(b"\n")
            _write(open_writer(running.output, out, is_terminal=is_terminal), result.to_batches())
            last = result
        # A query over a long history is not run all the time.
        took_s = (clock.monotonic() - began) / 1000
        _wait_new(session, max(running.interval_s, took_s), since_last=False)


def _limited(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    found, rows = [], 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        if rows > _RESULT_ROWS_MAX:
            raise SqlFailed(
                f"a result of more than {_RESULT_ROWS_MAX:,} rows cannot be followed: "
                "aggregate more, or add a LIMIT"
            )
    return pa.Table.from_batches(found)


def _wait_new(session: SqlSession, interval_s: float, *, since_last: bool) -> None:
    """Wait until there are new records. Raises Stopped."""
    while True:
        if session.stopping.wait(interval_s):
            raise Stopped
        if session.take_snapshot(since_last=since_last):
            return
