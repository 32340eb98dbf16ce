"""``ottla pipeline``: create, run and monitor Spark Declarative Pipelines."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ottla.cli.commands.pipeline_progress import Lags, flow_rows
from ottla.cli.connecting.connection_settings import (
    client_properties,
    options_of,
    resolve_bootstrap,
)
from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.connecting.session import right_in_text
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, chosen, say
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.client.blocking.broker_client import ClientSettings
from ottla.client.client_security import BadClientSecurity
from ottla.client.cluster import NoBroker
from ottla.config.addresses import BadAddress
from ottla.operations.counting import plural
from ottla.runtime import system_calls
from ottla.runtime.clock import SystemClock
from ottla.security.sasl.credentials import LoginFailed
from ottla.spark import history, report
from ottla.spark.project import (
    BOOTSTRAP_SETTING,
    DEFAULT_BOOTSTRAP,
    BadProject,
    Project,
    Run,
    write_project,
)
from ottla.spark.reach import check_reach
from ottla.spark.runner import (
    FlowEvent,
    PipelineFailed,
    RunRequest,
    SparkTarget,
    cause_of,
    pipeline_session,
    run_once,
)
from ottla.spark.spark_output import keep_details

app = typer.Typer(
    help="Run Spark pipelines from topics to tables.", no_args_is_help=True, add_completion=False
)

ProjectArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Project directory or its specification; default: this directory or one above it."
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the output of Spark instead of a log file.")
]
_LOOK_EVERY_S = 2.0


class _Stopped(Exception):
    """The run was asked to stop."""


@app.command("init")
def init(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the project and of its directory.")],
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Create a project that runs as it is: a topic, a streaming table, a view."""
    root = Path(name)
    bootstrap = resolve_bootstrap(bootstrap, client_properties())
    try:
        files = write_project(root, root.name, bootstrap)
    except BadProject as error:
        fail(str(error))
    answer(context, output, [{"file": str(file)} for file in files])
    say(f"it reads a topic: ottla topic create events --bootstrap {bootstrap}")
    say(f"run it with: ottla pipeline run {name}")


@app.command("run")
def run(  # noqa: PLR0913 - one per option
    context: typer.Context,
    project: ProjectArgument = None,
    *,
    master: Annotated[
        str, typer.Option("--master", "-m", help="Where Spark runs: local[*], spark://host:port.")
    ] = "local[*]",
    remote: Annotated[
        str | None, typer.Option("--remote", help="A Spark Connect address: sc://host:port.")
    ] = None,
    refresh: Annotated[
        list[str] | None, typer.Option("--refresh", help="Run only this dataset; may be repeated.")
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", help="Recompute this dataset; may be repeated."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Recompute all datasets.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the definitions without running them.")
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="Setting as key=value; overrides the project's."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            min=0,
            help="Repeat the run, this many seconds after each one, until stopped.",
        ),
    ] = None,
    verbose: VerboseOption = False,
    output: OutputOption = None,
) -> None:
    """Process all records up to now; the next run continues from there."""
    request = RunRequest(
        refresh=tuple(refresh or ()),
        full_refresh=tuple(full_refresh or ()),
        full_refresh_all=full_refresh_all,
        dry=dry_run,
        settings=parse_pairs(change, "--set"),
    )
    log: Path | None = None
    try:
        found = Project.find(project)
        found.settings()
        log = None if verbose else found.state / "spark.log"
        with _under_way(found):
            _reach(found, request.settings)
            _run(found, SparkTarget(master, remote), request, every, log)
        rows = flow_rows(found, _bootstrap(found, request.settings))
    except BadProject as error:
        fail(str(error))
    except PipelineFailed as error:
        _fail(error, log)
    answer(context, output, rows)


def _fail(error: PipelineFailed, log: Path | None) -> NoReturn:
    """Print the short form first, and then where the details are."""
    keep_details(log, error.__cause__ or error)
    text = f"{error}{right_in_text(str(error))}"
    fail(text + (f"\ndetails: {log}" if log is not None and log.exists() else ""))


def _reach(project: Project, changed: Mapping[str, str]) -> None:
    """Fail within seconds if the brokers that the project names do not answer."""
    origin = f"--set {BOOTSTRAP_SETTING}"
    bootstrap = changed.get(BOOTSTRAP_SETTING)
    if bootstrap is None:
        bootstrap = project.settings().get(BOOTSTRAP_SETTING)
        origin = f"{BOOTSTRAP_SETTING} in {project.spec}"
    if bootstrap is None:
        return  # the definitions may have addresses of their own
    properties = {key: value for key, value in client_properties().items() if "boot" not in key}
    settings = ClientSettings(tuple(bootstrap.split(",")), "ottla-pipeline", properties)
    try:
        check_reach(settings, origin)
    except (NoBroker, LoginFailed, BadClientSecurity, BadAddress) as error:
        raise PipelineFailed(str(error)) from error


def _run(
    project: Project,
    where: SparkTarget,
    request: RunRequest,
    every: float | None,
    log: Path | None,
) -> None:
    if log is not None:
        log.unlink(missing_ok=True)
    say(f"{project.name}: starting Spark ({where.remote or where.master})")
    stopped = threading.Event()
    with (
        pipeline_session(project, where, request.settings, log) as session,
        _watched(project, request),
    ):
        while True:
            run_once(session, project, request, _tell)
            if every is None:
                return
            stopped.wait(every)


def _tell(event: FlowEvent) -> None:
    if event.flow:
        say(f"{event.flow}: {event.state.lower()}" + _because(event))
    elif event.message:
        say(event.message)


def _because(event: FlowEvent) -> str:
    return f": {cause_of(event.message)}" if event.state == "FAILED" else ""


@contextmanager
def _under_way(project: Project) -> Iterator[None]:
    """Keep ``run.json`` up to date, and stop cleanly on a signal."""
    clock = SystemClock()
    last = project.last_run()
    if last is not None and not last.ended and system_calls.exists(last.pid):
        raise BadProject(
            f"{project.name} is already running (process {last.pid}); see `ottla pipeline stop`"
        )
    run = Run(os.getpid(), clock.now() / 1000)
    project.write_run(run)

    def stop(number: int, frame: object) -> None:
        raise _Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
        run.outcome = "completed"
    except (_Stopped, KeyboardInterrupt):
        run.outcome = "stopped"
        say("stopped; the next run continues from the last finished batch")
    except BaseException as error:
        run.outcome = f"failed: {error}"
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        run.ended = clock.now() / 1000
        project.write_run(run)


@contextmanager
def _watched(project: Project, request: RunRequest) -> Iterator[None]:
    """Write the history of a run and, on a terminal, show rates, lag and the time to catch up."""
    over = threading.Event()
    lags = Lags(project, _bootstrap(project, request.settings))
    is_shown = sys.stderr.isatty()

    def look() -> None:
        samples = lags.samples()
        with suppress(OSError):  # a full disk must not fail a run
            history.append(project.state / history.NAME, samples)
        for line in lags.lines(samples) if is_shown else ():
            say(line)

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            look()

    watching = threading.Thread(target=watch, name="pipeline-progress")
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
        look()


def _bootstrap(project: Project, changed: dict[str, str]) -> str:
    settings = {**project.settings(), **changed}
    return settings.get(BOOTSTRAP_SETTING, DEFAULT_BOOTSTRAP)


@app.command("status")
def status(
    context: typer.Context,
    project: ProjectArgument = None,
    *,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", help="Brokers to connect to; default: the project's."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show the state of the run, and the lag of each flow."""
    options_of(client_properties())  # bad settings are reported here, not as unknown lags
    try:
        found = Project.find(project)
        last = found.last_run()
        rows = flow_rows(found, bootstrap or _bootstrap(found, {}))
    except BadProject as error:
        fail(str(error))
    say(_run_line(found.name, last))
    answer(context, output, rows)


def _run_line(name: str, last: Run | None) -> str:
    if last is None:
        return f"{name}: never run"
    if last.ended:
        return f"{name}: {last.outcome}"
    if system_calls.exists(last.pid):
        return f"{name}: running (process {last.pid})"
    return f"{name}: process {last.pid} has ended unexpectedly; run it again, no data is lost"


@app.command("stop")
def stop(
    context: typer.Context, project: ProjectArgument = None, *, output: OutputOption = None
) -> None:
    """Stop the current run cleanly; exit 1 if there is none."""
    try:
        found = Project.find(project)
        name, last = found.name, found.last_run()
    except BadProject as error:
        fail(str(error))
    if last is None or last.ended or not system_calls.exists(last.pid):
        fail(f"{name} is not running")
    os.kill(last.pid, signal.SIGTERM)
    answer(context, output, {"pipeline": name, "process": last.pid, "state": "stopping"})


@app.command("report")
def write_report(
    context: typer.Context,
    project: ProjectArgument = None,
    *,
    to: Annotated[Path, typer.Option("--to", help="File to write.")] = Path("report.html"),
    tables_state: Annotated[
        Path | None,
        typer.Option("--state", help="Report the tables of this state directory instead."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Write one HTML page with plots of throughput, batch duration and lag per flow."""
    try:
        if tables_state is None:
            found = Project.find(project)
            title, state = found.name, found.state
        else:
            title, state = f"tables of {tables_state}", tables_state
        samples = history.read(state / history.NAME)
        to.write_text(report.page(title, samples, SystemClock().now() / 1000))
    except BadProject as error:
        fail(str(error))
    except FileNotFoundError as error:
        fail(f"{error.filename}: there is no history yet; run the pipeline first")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    flows = len({each.flow for each in samples})
    answer(context, output, {"file": str(to), "flows": flows, "batches": len(samples)})


@app.command("table")
def table(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="File that declares a table: topic, value, table ...")
    ],
    *,
    master: Annotated[str, typer.Option("--master", "-m", help="Where Spark runs.")] = "local[*]",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", help="Spark setting, such as spark.jars.packages=...; may be repeated."
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Write a parquet table though another query has written it. Stop that one first.",
        ),
    ] = False,
    verbose: VerboseOption = False,
    output: OutputOption = None,
) -> None:
    """Update the table of one topic once, or continuously, as its file says."""
    from ottla.cli.commands.pipeline_table import run_declared

    settings = parse_pairs(change, "--set")
    row = run_declared(file, master, settings, take_over=take_over, verbose=verbose)
    answer(context, output, row)


@app.command("tables")
def tables(  # noqa: PLR0913 - one per option
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    warehouse: Annotated[
        str, typer.Option("--warehouse", "-w", help="Directory of the tables, as Spark takes it.")
    ] = "tables",
    master: Annotated[str, typer.Option("--master", "-m", help="Where Spark runs.")] = "local[*]",
    change: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="Spark setting; may be repeated.")
    ] = None,
    formats: Annotated[
        str,
        typer.Option(
            "--formats", help="Formats to load jars for; default: those of the topics at the start."
        ),
    ] = "",
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, help="How many tables are updated at a time.")
    ] = 2,
    state: Annotated[
        Path, typer.Option("--state", help="Directory for the state of the tables and Spark's log.")
    ] = Path("tables-state"),
    once: Annotated[
        bool,
        typer.Option("--once", help="End when every table is up to date; exit 1 if one failed."),
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the last state of each table, and end.")
    ] = False,
    verbose: VerboseOption = False,
    output: OutputOption = None,
) -> None:
    """Keep every topic with ottla.table.format as a table, until stopped."""
    from ottla.cli.commands.pipeline_table import TablesRequest, read_tables, run_tables

    if status:
        answer(context, output, read_tables(state))
        return
    local = warehouse if "://" in warehouse else str(Path(warehouse).resolve())
    request = TablesRequest(
        bootstrap=resolve_bootstrap(bootstrap, client_properties()),
        warehouse=local,
        master=master,
        settings=parse_pairs(change, "--set"),
        formats=tuple(each.strip() for each in formats.split(",") if each.strip()),
        slots=at_once,
        state=state,
        once=once,
        verbose=verbose,
    )
    state.mkdir(parents=True, exist_ok=True)
    rows = run_tables(request)
    answer(context, output, rows)
    failed = [f"{each['topic']}: {each['error']}" for each in rows if each["error"]]
    if once and failed:
        fail(f"{len(failed)} of {plural(len(rows), 'table')} failed:\n" + "\n".join(failed))


@app.command("catalog")
def catalog(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    pattern: Annotated[
        str, typer.Option("--pattern", help="Regular expression for whole names of topics.")
    ] = ".*",
    prefix: Annotated[str, typer.Option("--prefix", help="Text before every table's name.")] = "",
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="Option of the source for every table, such as includeHeaders=true.",
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Print the SQL that makes every topic a table of Spark's catalog."""
    from ottla.spark.option_values import OptionError
    from ottla.spark.views import BadViews, statements, topics_of, view_names

    properties = client_properties()
    options = {
        "kafka.bootstrap.servers": resolve_bootstrap(bootstrap, properties),
        **parse_pairs(change, "--option"),
    }
    login = {f"kafka.{key}": value for key, value in properties.items() if "bootstrap" not in key}
    try:
        topics = topics_of({**login, **options}, pattern)
        lines = statements(view_names(topics, prefix), options)
    except (OptionError, BadViews, NoBroker, LoginFailed, BadClientSecurity, BadAddress) as error:
        fail(str(error))
    if chosen(context, output) is not Output.TABLE:
        answer(context, output, [{"sql": line} for line in lines])
        return
    for line in lines:
        typer.echo(line)
    say(f"{plural(len(lines), 'table')}; run them with: spark-sql -f FILE")
