"""``ottla pipeline``: create, run and monitor Spark Declarative Pipelines."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.connection_settings import client_properties, options_of, resolve_bootstrap
from ottla.cli.failures import fail
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.pairs import parse_pairs
from ottla.cli.pipeline_progress import Lags, flow_rows
from ottla.pipeline.project import (
    BOOTSTRAP_SETTING,
    DEFAULT_BOOTSTRAP,
    BadProject,
    Project,
    Run,
    write_project,
)
from ottla.pipeline.runner import (
    FlowEvent,
    PipelineFailed,
    RunRequest,
    SparkTarget,
    cause_of,
    pipeline_session,
    run_once,
)
from ottla.runtime.clock import SystemClock

app = typer.Typer(
    help="Run Spark pipelines from topics to tables.", no_args_is_help=True, add_completion=False
)

ProjectArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Project directory or its specification; default: this directory or one above it."
    ),
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
    try:
        found = Project.find(project)
        found.settings()
        with _under_way(found):
            _run(found, SparkTarget(master, remote), request, every)
        rows = flow_rows(found, _bootstrap(found, request.settings))
    except (BadProject, PipelineFailed) as error:
        fail(str(error))
    answer(context, output, rows)


def _run(project: Project, where: SparkTarget, request: RunRequest, every: float | None) -> None:
    say(f"{project.name}: starting Spark ({where.remote or where.master})")
    stopped = threading.Event()
    with pipeline_session(project, where, request.settings) as session, _watched(project, request):
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
    if last is not None and not last.ended and _is_alive(last.pid):
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
    """Show rates and lag on a terminal during a run."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    lags = Lags(project, _bootstrap(project, request.settings), SystemClock())

    def watch() -> None:
        while not over.wait(_LOOK_EVERY_S):
            for line in lags.lines():
                say(line)

    watching = threading.Thread(target=watch, name="pipeline-progress")
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


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
    if _is_alive(last.pid):
        return f"{name}: running (process {last.pid})"
    return f"{name}: process {last.pid} has ended unexpectedly; run it again, no data is lost"


@app.command("stop")
def stop(
    context: typer.Context, project: ProjectArgument = None, *, output: OutputOption = None
) -> None:
    """Stop the current run cleanly; exit 1 if there is none."""
    try:
        found = Project.find(project)
        last = found.last_run()
    except BadProject as error:
        fail(str(error))
    if last is None or last.ended or not _is_alive(last.pid):
        fail(f"{found.name} is not running")
    os.kill(last.pid, signal.SIGTERM)
    answer(context, output, {"pipeline": found.name, "process": last.pid, "state": "stopping"})


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
    output: OutputOption = None,
) -> None:
    """Update the table of one topic once, or continuously, as its file says."""
    from ottla.cli.pipeline_table import run_declared

    answer(context, output, run_declared(file, master, parse_pairs(change, "--set")))
