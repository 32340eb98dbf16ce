"""A pipeline's project on disk: its files, and what its runs have left there.

    spark-pipeline.yml           name, storage, settings, where definitions are
    transformations/*.py, *.sql  datasets and flows, in the words of Spark Declarative Pipelines
    state/                       everything that a run keeps, so that the next goes on from it
        storage/_checkpoints/    FLOW/N/{offsets,commits}: one number per micro-batch
        warehouse/, metastore/   tables, and the catalog that knows them
        spark/                   links to the Spark that is installed
        run.json                 the run that is under way, or how the last one ended

The address of the brokers is the setting ``ottla.bootstrap``; definitions read it by
``spark.conf.get("ottla.bootstrap")``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ottla.pipeline.offsets import BadStreamOffset, from_json
from ottla.protocol.types import TopicPartition

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
BOOTSTRAP_SETTING: Final = "ottla.bootstrap"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"


class BadProject(ValueError):
    """There is no project, or it cannot be used; says where and why."""


class Run(msgspec.Struct):
    """A run as ``run.json`` has it. Times are seconds since the epoch; ``ended`` 0: under way."""

    pid: int
    started: float
    ended: float = 0.0
    outcome: str = ""


class FlowProgress(msgspec.Struct, frozen=True):
    """How far a flow is: ``ends`` are of the last micro-batch that is finished."""

    name: str
    batch: int
    finished: float
    ends: dict[TopicPartition, int]


class Project:
    """One project, found by its specification."""

    def __init__(self, spec: Path) -> None:
        self.spec = spec.resolve()
        self.root = self.spec.parent

    @classmethod
    def find(cls, given: Path | None) -> "Project":
        """Return the project of a file or directory; None: of this one or one above it.

        Raises:
            BadProject: there is none.
        """
        start = Path.cwd() if given is None else given
        if start.is_file():
            return cls(start)
        for directory in (start, *start.resolve().parents) if given is None else (start,):
            for name in SPEC_NAMES:
                if (directory / name).is_file():
                    return cls(directory / name)
        raise BadProject(f"{start}: no {SPEC_NAMES[0]} here; `ottla pipeline init NAME` makes one")

    @property
    def state(self) -> Path:
        """Where everything is that runs keep."""
        return self.root / "state"

    @property
    def storage(self) -> Path:
        """Where the checkpoints are."""
        return self.state / "storage"

    def settings(self) -> dict[str, str]:
        """Return the settings of the specification.

        Raises:
            BadProject: it cannot be read.
        """
        found = self._declared().get("configuration") or {}
        if not isinstance(found, Mapping):
            raise BadProject(f"{self.spec}: configuration must be settings and their values")
        return {str(key): str(value) for key, value in found.items()}

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return str(self._declared().get("name") or self.root.name)

    def _declared(self) -> Mapping[str, Any]:
        import yaml

        try:
            declared = yaml.safe_load(self.spec.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise BadProject(f"{self.spec}: {error}") from error
        if not isinstance(declared, Mapping):
            raise BadProject(f"{self.spec}: not a specification: keys and values are expected")
        return declared

    # -- runs ------------------------------------------------------------------

    def write_run(self, run: Run) -> None:
        """Say that a run is under way, or how it ended."""
        self.state.mkdir(exist_ok=True)
        beside = self.state / "run.json.new"
        beside.write_bytes(msgspec.json.encode(run))
        beside.replace(self.state / "run.json")

    def last_run(self) -> Run | None:
        """Return the run that is under way, or the last one."""
        try:
            return msgspec.json.decode((self.state / "run.json").read_bytes(), type=Run)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise BadProject(f"{self.state / 'run.json'}: {error}") from error

    # -- flows -----------------------------------------------------------------

    def flows(self) -> list[FlowProgress]:
        """Return how far every flow is that has finished a micro-batch."""
        return sorted(self._flows(), key=lambda flow: flow.name)

    def _flows(self) -> Iterator[FlowProgress]:
        root = self.storage / "_checkpoints"
        for commits in root.glob("**/commits"):
            attempt = commits.parent
            newer = [each for each in attempt.parent.iterdir() if _is_newer(each, attempt)]
            finished = [each for each in commits.iterdir() if each.name.isdigit()]
            if newer or not finished:  # a full refresh begins with a new attempt
                continue
            last = max(finished, key=lambda each: int(each.name))
            yield FlowProgress(
                ".".join(attempt.parent.relative_to(root).parts),
                int(last.name),
                last.stat().st_mtime,
                _ends(attempt / "offsets" / last.name),
            )


def _is_newer(other: Path, attempt: Path) -> bool:
    return other.name.isdigit() and int(other.name) > int(attempt.name)


def _ends(offsets: Path) -> dict[TopicPartition, int]:
    """Return where each topic partition ended; sources of other kinds have none."""
    found: dict[TopicPartition, int] = {}
    try:
        lines = offsets.read_text().splitlines()[2:]
    except FileNotFoundError:
        return found
    for line in lines:
        try:
            kept = json.loads(line)
            topics = from_json(kept).topics if isinstance(kept, dict) and "topics" in kept else {}
        except (ValueError, BadStreamOffset):
            continue
        for name, topic in topics.items():
            for number, end in topic.end.items():
                found[TopicPartition(name, number)] = end
    return found


# -- a new project -----------------------------------------------------------

_SPEC: Final = """\
# What Spark Declarative Pipelines reads; `ottla pipeline run` fills in storage and catalog.
name: {name}
storage: state/storage
configuration:
  ottla.bootstrap: {bootstrap}
  spark.sql.shuffle.partitions: "4"
libraries:
  - glob:
      include: transformations/**
"""
_PYTHON: Final = '''\
"""A topic into a streaming table: every run takes in what came since the last one."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def events() -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", spark.conf.get("ottla.bootstrap"))
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) key", "cast(value as string) value", "timestamp")
    )
'''
_SQL: Final = """\
CREATE MATERIALIZED VIEW events_by_key AS
SELECT key, count(*) AS events, max(timestamp) AS newest
FROM events
GROUP BY key
"""
_IGNORE: Final = "state/\n"


def write_project(root: Path, name: str, bootstrap: str) -> list[Path]:
    """Write a project that runs as it is; return its files.

    Raises:
        BadProject: there is something at ``root`` already, or it cannot be written.
    """
    files = {
        "spark-pipeline.yml": _SPEC.format(name=name, bootstrap=bootstrap),
        "transformations/events.py": _PYTHON,
        "transformations/events_by_key.sql": _SQL,
        ".gitignore": _IGNORE,
    }
    try:
        root.mkdir(parents=True)
        for relative, content in files.items():
            file = root / relative
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
    except FileExistsError:
        raise BadProject(f"{root} is there already; nothing was changed") from None
    except OSError as error:
        raise BadProject(f"{root}: {error.strerror}") from error
    return [root / relative for relative in files]
