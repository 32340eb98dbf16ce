"""``ottla pipeline table`` and ``tables``: tables of topics in a Spark session of their own."""

import os
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NoReturn

import msgspec

from ottla.cli.connecting.connection_settings import client_properties
from ottla.cli.connecting.session import right_in_text
from ottla.cli.options import say
from ottla.cli.terminal.failures import fail, reason_of
from ottla.cli.terminal.rendering import Row
from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.client.client_security import BadClientSecurity
from ottla.client.cluster import NoBroker, Refused
from ottla.config.addresses import BadAddress
from ottla.operations.counting import plural
from ottla.runtime.clock import SystemClock
from ottla.security.sasl.credentials import LoginFailed
from ottla.spark import history
from ottla.spark.reach import check_reach
from ottla.spark.runner import PipelineFailed, cause_of, check_spark, table_session
from ottla.spark.spark_output import keep_details
from ottla.tables.job import BadJob
from ottla.tables.job_file import load_job
from ottla.tables.lakehouse import NoRuntime, settings_for, unavailable

if TYPE_CHECKING:
    from ottla.tables.application import TableReport
    from ottla.tables.job import TableJob

STATE_FILE = "tables.json"
_STOPPED_TABLES = "stopped; the next run continues from the last finished batches"


class TablesRequest(msgspec.Struct, frozen=True):
    """What ``ottla pipeline tables`` is asked to do."""

    bootstrap: str
    warehouse: str
    master: str
    settings: dict[str, str]
    formats: tuple[str, ...]
    slots: int
    state: Path
    once: bool
    verbose: bool


def run_declared(
    file: Path,
    master: str,
    settings: Mapping[str, str],
    *,
    take_over: bool = False,
    verbose: bool = False,
) -> Row:
    """Run the table that a file declares, and return its declaration."""
    _check_spark()
    try:
        job = load_job(file)
    except BadJob as error:
        fail(str(error))
    _reach(job.bootstrap, f"bootstrap in {file}", _properties_of(job))
    # Slow to import: brokers and file are checked first.
    from pyspark.errors import PySparkException

    from ottla.tables.table_writer import run_table, session_settings

    log = None if verbose else _log_file()
    with _interruptible():
        try:
            say(f"{job.topic}: starting Spark ({master})")
            chosen = session_settings([job], settings)
            with (
                TemporaryDirectory(prefix="ottla-spark-") as home,
                table_session(f"table {job.topic}", master, chosen, Path(home), log) as session,
            ):
                run_table(session, job, take_over=take_over)
        except KeyboardInterrupt:
            say("stopped; the next run continues from the last finished batch")
        except (BadJob, NoRuntime) as error:
            fail(str(error))
        except PipelineFailed as error:
            _fail(str(error), log, _written(job))
        except PySparkException as error:
            keep_details(log, error)
            _fail(f"{job.topic}: {cause_of(str(error))}", log, _written(job))
    if log is not None:
        log.unlink(missing_ok=True)
    return {"topic": job.topic, "table": job.table.name or job.table.path}


def run_tables(request: TablesRequest) -> list[Row]:
    """Keep every topic that asks for it as a table; return the last state of each."""
    _check_spark()
    properties = client_properties()
    _reach(request.bootstrap, "--bootstrap", properties)
    from pyspark import __version__

    from ottla.tables.application import TablesApplication, declared_tables
    from ottla.tables.topic_tables import Place

    client = client_for(ClientSettings(_addresses(request.bootstrap), "ottla-tables", properties))
    source = {f"kafka.{key}": value for key, value in properties.items() if "bootstrap" not in key}
    place = Place(request.warehouse.rstrip("/"), request.bootstrap, source)
    log = None if request.verbose else request.state / "spark.log"
    last: list[TableReport] = []

    def on_report(reports: "list[TableReport]") -> None:
        _tell_changes(last, reports)
        _keep_history(request.state, last, reports)
        last[:] = reports
        _write_state(request.state, reports)
        if request.once and application.is_idle:
            stopped.set()

    stopped = threading.Event()
    with _interruptible():
        try:
            declared = declared_tables(client, place)
            formats = {*request.formats, "parquet"}
            lacking: dict[str, str] = {}
            if not request.formats:
                formats |= {each.table.format.value for each in declared.jobs.values()}
                # A table that cannot be had does not keep the others from being updated.
                lacking = unavailable(formats, __version__, request.settings)
                formats -= lacking.keys()
            say(f"{plural(len(declared.jobs), 'table')}: starting Spark ({request.master})")
            settings = _session_settings(formats, request)
            with (
                TemporaryDirectory(prefix="ottla-spark-") as home,
                table_session("tables", request.master, settings, Path(home), log) as session,
            ):
                application = TablesApplication(
                    session,
                    client,
                    place,
                    SystemClock(),
                    formats=formats,
                    unavailable=lacking,
                    slots=request.slots,
                )
                with _stopping(stopped):
                    application.run(stopped, on_report)
        except KeyboardInterrupt:
            say(_STOPPED_TABLES)
        except (NoRuntime, NoBroker, Refused) as error:
            fail(f"{error}{right_in_text(str(error))}")
        except PipelineFailed as error:
            _fail(str(error), log)
    return [_row(each) for each in last]


def _session_settings(formats: set[str], request: TablesRequest) -> dict[str, str]:
    from pyspark import __version__

    from ottla.tables.topic_tables import CATALOG

    warehouses = {CATALOG: request.warehouse} if "iceberg" in formats else {}
    given = {"spark.scheduler.mode": "FAIR", **request.settings}
    return settings_for(sorted(formats), __version__, given, warehouses)


def read_tables(state: Path) -> list[Row]:
    """Return the state that ``ottla pipeline tables`` has written last."""
    from ottla.tables.application import TableReport

    try:
        found = msgspec.json.decode((state / STATE_FILE).read_bytes(), type=list[TableReport])
    except FileNotFoundError:
        fail(f"{state / STATE_FILE} does not exist: `ottla pipeline tables` has not run here")
    except OSError as error:
        fail(reason_of(error))
    except msgspec.MsgspecError as error:
        fail(f"{state / STATE_FILE}: {error}")
    return [_row(each) for each in found]


def _row(report: "TableReport") -> Row:
    return {name: getattr(report, name) for name in report.__struct_fields__}


def _write_state(state: Path, reports: "list[TableReport]") -> None:
    state.mkdir(parents=True, exist_ok=True)
    beside = state / f"{STATE_FILE}.new"
    beside.write_bytes(msgspec.json.encode(reports))
    beside.replace(state / STATE_FILE)


def _keep_history(state: Path, before: "list[TableReport]", after: "list[TableReport]") -> None:
    """Write a sample of each table that has new records or another lag."""
    now, known = SystemClock().now() / 1000, {each.topic: each for each in before}
    samples = []
    for each in after:
        old = known.get(each.topic)
        if old is None or (old.records, old.lag) != (each.records, each.lag):
            samples.append(
                history.Sample(now, each.topic, each.batch, each.records, each.seconds, each.lag)
            )
    with suppress(OSError):
        history.append(state / history.NAME, samples)


def _tell_changes(before: "list[TableReport]", after: "list[TableReport]") -> None:
    """Print a line for each table whose state or error changed."""
    known = {each.topic: each for each in before}
    for each in after:
        old = known.get(each.topic)
        if old is not None and (old.state, old.error) == (each.state, each.error):
            continue
        lag = "" if each.lag is None else f", {each.lag:,} behind"
        because = f": {each.error}" if each.error else ""
        say(f"{each.topic}: {each.state}, {plural(each.records, 'record')}{lag}{because}")


# -- both ------------------------------------------------------------------------


def _check_spark() -> None:
    try:
        check_spark()
    except PipelineFailed as error:
        fail(str(error))


def _reach(bootstrap: str, origin: str, properties: Mapping[str, str]) -> None:
    """Fail within seconds if no broker answers, before Spark is started."""
    settings = ClientSettings(_addresses(bootstrap), "ottla-pipeline", dict(properties))
    try:
        check_reach(settings, origin)
    except (NoBroker, LoginFailed, BadClientSecurity, BadAddress) as error:
        fail(str(error))


def _addresses(bootstrap: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in bootstrap.split(",") if each.strip())


def _properties_of(job: "TableJob") -> dict[str, str]:
    options = {**job.security_options}
    return {key.removeprefix("kafka."): value for key, value in options.items()}


def _log_file() -> Path:
    return Path(tempfile.gettempdir()) / f"ottla-spark-{os.getpid()}.log"


def _written(job: "TableJob") -> tuple[str, ...]:
    return () if job.dead_letters is None else (job.dead_letters,)


def _fail(message: str, log: Path | None, written: Collection[str] = ()) -> NoReturn:
    """Print the short form first with a right that was missing, and then where the details are."""
    message += right_in_text(message, written)
    if log is not None and log.exists():
        message += f"\ndetails: {log}"
    fail(message)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Treat SIGTERM as an interrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _stopping(stopped: threading.Event) -> Iterator[threading.Event]:
    """Set ``stopped`` and the event that is yielded on SIGTERM and SIGINT, and say so at the end.

    A second signal interrupts. An exception in the middle of a call of Spark would be logged with
    its traceback.
    """
    signalled = threading.Event()

    def stop(number: int, frame: object) -> None:
        if signalled.is_set():
            raise KeyboardInterrupt
        signalled.set()
        stopped.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield signalled
        if signalled.is_set():
            say(_STOPPED_TABLES)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
