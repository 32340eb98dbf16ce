"""Runs a project of Spark Declarative Pipelines, and reports its progress.

A run processes all available data, dataset by dataset, and ends; the next run continues from there,
because the project stores checkpoints and catalog. Spark runs in this process (``local[*]``), on a
cluster (the address of its master), or behind a Spark Connect address.
"""

import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.pipeline.project import BOOTSTRAP_SETTING, DEFAULT_BOOTSTRAP, BadProject, Project
from ottla.pipeline.spark_home import use_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MISSING: Final = (
    "Spark needs Java 17 or newer, which was not found: "
    "run `apt-get install openjdk-17-jre-headless`"
)
SPARK_MISSING: Final = (
    "pipelines need Spark: run `make spark`, or `pip install '.[spark]'` in a checkout"
)
_FLOW: Final = re.compile(
    r"^Flow (?P<flow>\S+) (?:is|has) (?P<state>[A-Z_]+)\.?\s*(?P<more>.*)", re.S
)

_SESSION_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Errors are reported once, with their cause; Spark would log them three times.
    "spark.log.level": "FATAL",
    # Python workers start slowly on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}
_LOCAL_SERVER_SETTINGS: Final = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
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
    project: Project, where: SparkTarget, settings: dict[str, str]
) -> "Iterator[SparkSession]":
    """Yield a session for a project's runs, and stop it at the end.

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
    with _start_session(builder, chosen) as session:
        yield session


@contextmanager
def table_session(
    name: str, master: str, settings: Mapping[str, str], home: Path
) -> "Iterator[SparkSession]":
    """Yield a session for one table, and stop it at the end. ``home`` is the Spark home.

    Raises:
        PipelineFailed: Spark does not start.
    """
    from pyspark.sql import SparkSession

    use_installed_pyspark(home)
    _serve_locally(master)
    builder = SparkSession.builder.appName(name).master(master)
    with _start_session(builder, {**_SESSION_SETTINGS, **settings}) as session:
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
    builder: "SparkSession.Builder", settings: Mapping[str, str]
) -> "Iterator[SparkSession]":
    from pyspark.errors import PySparkException

    for key, value in settings.items():
        builder.config(key, value)
    try:
        with warnings.catch_warnings():
            # Hides warnings about static settings, which a running session cannot change.
            warnings.simplefilter("ignore")
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise PipelineFailed(f"Spark did not start: {error}") from error
    try:
        yield session
    finally:
        session.stop()


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
            on_event(event)
    except PySparkException as error:
        raise PipelineFailed(_cause(failures, str(error))) from error
    if failures:
        raise PipelineFailed(_cause(failures, failures[0].message))


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
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    ours = [line for line in raised if line.startswith("ottla.")]
    return (ours or raised or lines[:1] or ["no cause was reported"])[-1]
