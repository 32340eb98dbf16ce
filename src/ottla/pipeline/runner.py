"""Runs a project of Spark Declarative Pipelines, and tells how it goes.

A run takes in everything that is there, dataset by dataset, and ends; the next one goes on from it,
because checkpoints and catalog are kept in the project. Spark runs inside this process
(``local[*]``), on a cluster by its master's address, or behind a Spark Connect address.
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
    "Spark needs Java 17 or newer and there is none: `apt-get install openjdk-17-jre-headless`"
)
SPARK_MISSING: Final = (
    "pipelines need Spark: run `make spark`, or `pip install '.[spark]'` in a checkout"
)
_FLOW: Final = re.compile(
    r"^Flow (?P<flow>\S+) (?:is|has) (?P<state>[A-Z_]+)\.?\s*(?P<more>.*)", re.S
)

_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What fails is told once, by its cause; Spark would tell it thrice with all its frames.
    "spark.log.level": "FATAL",
    # Workers of Python start slowly where others are busy too.
    "spark.python.authenticate.socketTimeout": "120s",
}
_SERVED_HERE: Final = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
_RAISED: Final = re.compile(r"(?:\w+\.)+[A-Z]\w*: ")


class PipelineFailed(Exception):
    """A run ended before everything was taken in; says which dataset and why."""


class FlowEvent(msgspec.Struct, frozen=True):
    """Something that happened in a run: ``flow`` is empty for the run as a whole."""

    flow: str
    state: str
    message: str


class Where(msgspec.Struct, frozen=True):
    """Where Spark runs. ``remote`` is a Spark Connect address; it decides over ``master``."""

    master: str = "local[*]"
    remote: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """What of a pipeline to run. Empty: everything, from where the last run ended.

    ``settings`` decide over those of the specification.
    """

    refresh: tuple[str, ...] = ()
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False
    dry: bool = False
    settings: dict[str, str] = msgspec.field(default_factory=dict)


Tell = Callable[[FlowEvent], None]


@contextmanager
def pipeline_session(
    project: Project, where: Where, settings: dict[str, str]
) -> "Iterator[SparkSession]":
    """Give a session for a project's runs; it is stopped at the end.

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
        chosen = {**_QUIET, **_SERVED_HERE, **_kept_in(project), **chosen}
    _serve_locally(where.master)
    with _started(builder, chosen) as session:
        yield session


@contextmanager
def table_session(
    name: str, master: str, settings: Mapping[str, str], home: Path
) -> "Iterator[SparkSession]":
    """Give a session for one table; it is stopped at the end. ``home`` is where Spark starts from.

    Raises:
        PipelineFailed: Spark does not start.
    """
    from pyspark.sql import SparkSession

    use_installed_pyspark(home)
    _serve_locally(master)
    builder = SparkSession.builder.appName(name).master(master)
    with _started(builder, {**_QUIET, **settings}) as session:
        yield session


def _serve_on_any_port() -> None:
    """Let Spark's client ask the server in this process for its port.

    It would take 15002, where somebody else's pipeline may run.
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
def _started(
    builder: "SparkSession.Builder", settings: Mapping[str, str]
) -> "Iterator[SparkSession]":
    from pyspark.errors import PySparkException

    for key, value in settings.items():
        builder.config(key, value)
    try:
        with warnings.catch_warnings():
            # Of settings that count when a session starts, and that a second look cannot change.
            warnings.simplefilter("ignore")
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise PipelineFailed(f"Spark does not start: {error}") from error
    try:
        yield session
    finally:
        session.stop()


def check_spark(*, needs_java: bool = True) -> None:
    """See that Spark can start, and that its workers find this Python.

    Raises:
        PipelineFailed: Spark or Java is missing; says how to get it.
    """
    if needs_java and find_java() is None:
        raise PipelineFailed(JAVA_MISSING)
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise PipelineFailed(SPARK_MISSING)
    # Workers are started by the JVM, which would take whichever Python comes first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def find_java() -> str | None:
    """Return the Java that Spark would run: that of ``JAVA_HOME``, else the first in ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    return found or shutil.which("java")


def _kept_in(project: Project) -> dict[str, str]:
    """Return the settings that keep tables and catalog in the project."""
    metastore = project.state / "metastore"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (project.state / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={metastore};create=true"
        ),
        # The catalog's log, which would lie wherever the command was given.
        "spark.driver.extraJavaOptions": (
            f"-Dderby.stream.error.file={project.state / 'derby.log'}"
        ),
        BOOTSTRAP_SETTING: DEFAULT_BOOTSTRAP,
    }


def run_once(session: "SparkSession", project: Project, asked: Asked, tell: Tell) -> None:
    """Run the pipeline until everything that is there is taken in.

    Raises:
        BadProject: its specification or a definition makes no sense.
        PipelineFailed: a flow failed.
    """
    from pyspark.errors import PySparkException
    from pyspark.pipelines.spark_connect_pipeline import start_run

    failures: list[FlowEvent] = []
    try:
        graph = _define(session, project, asked.settings)
        results = start_run(
            session,
            graph,
            full_refresh=list(asked.full_refresh),
            full_refresh_all=asked.full_refresh_all,
            refresh=list(asked.refresh),
            dry=asked.dry,
            storage=project.storage.as_uri(),
        )
        for result in results:
            if "pipeline_event_result" not in result:
                continue
            event = read_event(result["pipeline_event_result"].event.message)
            if event.flow and event.state == "FAILED":
                failures.append(event)
            tell(event)
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
    with redirect_stdout(sys.stderr):  # data alone goes to stdout
        register_definitions(project.spec, registry, spec, session, graph)
    return graph


def read_event(message: str) -> FlowEvent:
    """Read what Spark says of a run."""
    found = _FLOW.match(message)
    if found is None:
        return FlowEvent("", "", message)
    name = found["flow"].strip("'`")
    return FlowEvent(name, found["state"], found["more"].strip() or message)


def _cause(failures: Sequence[FlowEvent], said: str) -> str:
    """Name the dataset, and what Python or Spark said last."""
    if not failures:
        return cause_of(said)
    names = ", ".join(dict.fromkeys(event.flow for event in failures))
    return f"{names}: {cause_of(said)}"


def cause_of(said: str) -> str:
    """Return the line of an error's text that says why: the last of ours, else of anybody's."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    raised = [line for line in lines if _RAISED.match(line)]
    ours = [line for line in raised if line.startswith("ottla.")]
    return (ours or raised or lines[:1] or ["no reason was given"])[-1]
