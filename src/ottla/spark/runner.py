"""Runs a project of Spark Declarative Pipelines, and reports its progress.

A run processes all available data, dataset by dataset, and ends; the next run continues from there,
because the project stores checkpoints and catalog. Spark runs in this process (``local[*]``), on a
cluster (the address of its master), or behind a Spark Connect address.
"""

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.spark.project import BOOTSTRAP_SETTING, DEFAULT_BOOTSTRAP, BadProject, Project
from ottla.spark.spark_home import use_installed_pyspark, warm_imports
from ottla.spark.spark_output import START_LIMIT, into, is_start_limit, keep_details

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_S: Final = 30.0
"""The longest time to wait for imports that begin with the start of the JVM."""
JAVA_MISSING: Final = (
    "Spark needs Java 17 or newer, which was not found: "
    "run `apt-get install openjdk-17-jre-headless`"
)
SPARK_MISSING: Final = (
    "pipelines need Spark: `pip install 'ottla[spark]'`, or `make spark` in a checkout"
)
_FLOW: Final = re.compile(
    r"^Flow (?P<flow>\S+) (?:is|has) (?P<state>[A-Z_]+)\.?\s*(?P<more>.*)", re.S
)

_SESSION_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",  # to the log file; errors are reported once, with their cause
    # Python workers start slowly on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}
_LOCAL_SERVER_SETTINGS: Final = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
_UNRESOLVED: Final = re.compile(r"unresolved dependency: ([^:]+): not found")
_RAISED: Final = re.compile(r"(?:\w+\.)+[A-Z]\w*: ")


class PipelineFailed(Exception):
    """A failed run; the message names the dataset and the cause."""


class FlowEvent(msgspec.Struct, frozen=True):
    """An event of a run; ``flow`` is empty for the run as a whole."""

    flow: str
    state: str
    message: str


class SparkTarget(msgspec.Struct, frozen=True):
    """Where Spark runs. ``remote`` is a Spark Connect address and overrides ``master``."""

    master: str = "local[*]"
    remote: str | None = None


class RunRequest(msgspec.Struct, frozen=True):
    """The part of a pipeline to run. Default: everything, from the end of the last run.

    ``settings`` override those of the specification.
    """

    refresh: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False
    dry: bool = False
    settings: dict[str, str] = msgspec.field(default_factory=dict)


OnEvent = Callable[[FlowEvent], None]


@contextmanager
def pipeline_session(
    project: Project, where: SparkTarget, settings: dict[str, str], log: Path | None = None
) -> "Iterator[SparkSession]":
    """Yield a session for a project's runs, and stop it at the end.

    ``log`` is the file for the output of Spark's JVM; None: this process's output.

    Raises:
        PipelineFailed: Spark or Java is missing, or Spark does not start.
    """
    check_spark(needs_java=where.remote is None)
    from pyspark.sql import SparkSession

    chosen = {**project.settings(), **settings}
    builder: Any = SparkSession.builder.appName(project.name)
    if where.remote is not None:
        builder = builder.remote(where.remote)
    else:
        use_installed_pyspark(project.state / "spark")
        _serve_on_any_port()
        builder = builder.config("spark.api.mode", "connect").master(where.master)
        chosen = {
            **_SESSION_SETTINGS,
            **_LOCAL_SERVER_SETTINGS,
            **_storage_settings(project),
            **chosen,
        }
    _serve_locally(where.master)
    with _start_session(builder, chosen, log) as session:
        yield session


@contextmanager
def table_session(
    name: str, master: str, settings: Mapping[str, str], home: Path, log: Path | None = None
) -> "Iterator[SparkSession]":
    """Yield a session for tables, and stop it at the end. ``home`` is the Spark home.

    ``log`` is the file for the output of Spark's JVM; None: this process's output.

    Raises:
        PipelineFailed: Spark does not start.
    """
    from pyspark.sql import SparkSession

    use_installed_pyspark(home)
    _serve_locally(master)
    builder = SparkSession.builder.appName(name).master(master)
    with _start_session(builder, {**_SESSION_SETTINGS, **settings}, log) as session:
        yield session


def _serve_on_any_port() -> None:
    """Make Spark's client use the port of the server in this process.

    The default port, 15002, may be in use by another pipeline.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder

    DefaultChannelBuilder.default_port = staticmethod(_port_of_server)  # type: ignore[method-assign]


def _port_of_server() -> int:
    from pyspark import SparkContext

    assert SparkContext._jvm is not None, "the server is started before its client"
    service = getattr(
        SparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"
    )
    return int(service.__getattr__("MODULE$").localPort())


def _serve_locally(master: str) -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if master.startswith("local") else "")


@contextmanager
def _start_session(
    builder: "SparkSession.Builder", settings: Mapping[str, str], log: Path | None
) -> "Iterator[SparkSession]":
    from pyspark.errors import PySparkException

    for key, value in settings.items():
        builder.config(key, value)
    warming = warm_imports()
    try:
        with warnings.catch_warnings(), into(log):
            # Hides warnings about static settings, which a running session cannot change.
            warnings.simplefilter("ignore")
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        keep_details(log, error)
        raise PipelineFailed(f"Spark did not start: {_start_failure(log, error)}") from error
    finally:
        _end(warming)
    try:
        yield session
    finally:
        session.stop()


def _end(warming: "subprocess.Popen[bytes] | None") -> None:
    if warming is None:
        return
    try:
        warming.wait(WARM_S)
    except subprocess.TimeoutExpired:
        warming.kill()
        warming.wait()


def _start_failure(log: Path | None, error: BaseException) -> str:
    """Return why Spark did not start: packages that were not found, else the exception."""
    text = ""
    if log is not None:
        with suppress(OSError):
            text = log.read_text(errors="replace")
    missing = _UNRESOLVED.findall(text)
    if missing:
        names = ", ".join(
            dict.fromkeys(each.replace("#", ":").replace(";", ":") for each in missing)
        )
        return f"{names} cannot be downloaded: is Maven Central reachable?"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def check_spark(*, needs_java: bool = True) -> None:
    """Check that Spark can start, and make its workers use this Python.

    Raises:
        PipelineFailed: Spark or Java is missing; the message says how to install it.
    """
    if needs_java and find_java() is None:
        raise PipelineFailed(JAVA_MISSING)
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise PipelineFailed(SPARK_MISSING)
    # The JVM starts workers with the first Python in PATH by default.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def find_java() -> str | None:
    """Return the Java that Spark runs: from ``JAVA_HOME``, else the first in ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    return found or shutil.which("java")


def _storage_settings(project: Project) -> dict[str, str]:
    """Return the settings that store tables and catalog in the project."""
    metastore = project.state / "metastore"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (project.state / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={metastore};create=true"
        ),
        # By default the catalog writes its log to the working directory.
        "spark.driver.extraJavaOptions": (
            f"-Dderby.stream.error.file={project.state / 'derby.log'}"
        ),
        BOOTSTRAP_SETTING: DEFAULT_BOOTSTRAP,
    }


def run_once(
    session: "SparkSession", project: Project, request: RunRequest, on_event: OnEvent
) -> None:
    """Run the pipeline until all available data is processed.

    Raises:
        BadProject: the specification or a definition is invalid.
        PipelineFailed: a flow failed.
    """
    from pyspark.errors import PySparkException
    from pyspark.pipelines.spark_connect_pipeline import start_run

    failures: list[FlowEvent] = []
    outcomes = Outcomes(on_event)
    try:
        graph = _define(session, project, request.settings)
        results = start_run(
            session,
            graph,
            full_refresh=list(request.full_refresh),
            full_refresh_all=request.full_refresh_all,
            refresh=list(request.refresh),
            dry=request.dry,
            storage=project.storage.as_uri(),
        )
        for result in results:
            if "pipeline_event_result" not in result:
                continue
            event = read_event(result["pipeline_event_result"].event.message)
            if event.flow and event.state == "FAILED":
                failures.append(event)
            outcomes.add(event)
        outcomes.end(failed=bool(failures))
    except PySparkException as error:
        outcomes.end(failed=True)
        raise PipelineFailed(_cause(failures, str(error))) from error
    if failures:
        raise PipelineFailed(_cause(failures, failures[0].message))


class Outcomes:
    """Passes events on, but holds "completed" back until nothing can contradict it.

    Spark reports a flow whose query has ended as completed, and only then finds out why it ended;
    it also reports a run as completed before the failure of one of its flows.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._completed: dict[str, FlowEvent] = {}
        self._failed: set[str] = set()

    def add(self, event: FlowEvent) -> None:
        """Process one event."""
        if event.flow and event.state == "COMPLETED":
            self._completed[event.flow] = event
        elif not event.flow and "COMPLETED" in event.message.upper():
            self._completed[""] = event
        else:
            if event.state == "FAILED":
                self._failed.add(event.flow)
            self._on_event(event)

    def end(self, *, failed: bool) -> None:
        """Pass on what has completed: the run only if nothing failed."""
        for flow, event in self._completed.items():
            if flow not in self._failed and (flow or not failed):
                self._on_event(event)
        self._completed.clear()


def _define(session: "SparkSession", project: Project, settings: dict[str, str]) -> str:
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    try:
        spec = load_pipeline_spec(project.spec)
    except PySparkException as error:
        raise BadProject(f"{project.spec}: {error}") from error
    graph = create_dataflow_graph(
        session,
        default_catalog=spec.catalog,
        default_database=spec.database or "default",
        sql_conf={**spec.configuration, **settings},
    )
    registry = SparkConnectGraphElementRegistry(session, graph)
    with redirect_stdout(sys.stderr):  # stdout is for data only
        register_definitions(project.spec, registry, spec, session, graph)
    return graph


def read_event(message: str) -> FlowEvent:
    """Parse a message of Spark about a run."""
    found = _FLOW.match(message)
    if found is None:
        return FlowEvent("", "", message)
    name = found["flow"].strip("'`")
    return FlowEvent(name, found["state"], found["more"].strip() or message)


def _cause(failures: Sequence[FlowEvent], text: str) -> str:
    """Return the failed datasets and the cause."""
    if not failures:
        return cause_of(text)
    names = ", ".join(dict.fromkeys(event.flow for event in failures))
    return f"{names}: {cause_of(text)}"


def cause_of(text: str) -> str:
    """Return the line with the cause of an error: the last Ottla exception, else any."""
    if is_start_limit(text):
        return START_LIMIT
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    ours = [line for line in raised if line.startswith("ottla.")]
    return (ours or raised or lines[:1] or ["no cause was reported"])[-1]
