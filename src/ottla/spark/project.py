"""A pipeline project on disk: its files, and the state of its runs.

    spark-pipeline.yml           name, storage, settings, location of definitions
    transformations/*.py, *.sql  datasets and flows of Spark Declarative Pipelines
    state/                       persistent state, from which the next run continues
        storage/_checkpoints/    FLOW/N/{offsets,commits}: one number per micro-batch
        warehouse/, metastore/   tables, and their catalog
        spark/                   links to the installed Spark
        history.jsonl            progress of all runs, for `ottla pipeline report`
        spark.log                the output of Spark in the last run
        run.json                 the current run, or the outcome of the last one

The address of the brokers is the setting ``ottla.bootstrap``; definitions read it by
``spark.conf.get("ottla.bootstrap")``.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ottla.protocol.types import TopicPartition
from ottla.spark.stream_offsets import BadStreamOffset, from_json

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
BOOTSTRAP_SETTING: Final = "ottla.bootstrap"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"


class BadProject(ValueError):
    """A missing or invalid project; the message says where and why."""


class Run(msgspec.Struct):
    """A run in ``run.json``. Times are seconds since the epoch; ``ended`` 0: running."""

    pid: int
    started: float
    ended: float = 0.0
    outcome: str = ""


class FlowProgress(msgspec.Struct, frozen=True):
    """The progress of a flow: ``ends`` are the end offsets of the last finished micro-batch.

    ``started`` and ``finished`` are its times in seconds since the epoch; 0: unknown.
    """

    name: str
    batch: int
    finished: float
    ends: dict[TopicPartition, int]
    started: float = 0.0


class Project:
    """One project, identified by its specification file."""

    def __init__(self, spec: Path) -> None:
        self.spec = spec.resolve()
        self.root = self.spec.parent

    @classmethod
    def find(cls, path: Path | None) -> "Project":
        """Return the project of a file or directory; None: the working directory or a parent.

        Raises:
            BadProject: there is no project.
        """
        start = Path.cwd() if path is None else path
        if start.is_file():
            return cls(start)
        for directory in (start, *start.resolve().parents) if path is None else (start,):
            for name in SPEC_NAMES:
                if (directory / name).is_file():
                    return cls(directory / name)
        raise BadProject(
            f"{start}: no {SPEC_NAMES[0]} here; create one with `ottla pipeline init NAME`"
        )

    @property
    def state(self) -> Path:
        """The directory of persistent state."""
        return self.root / "state"

    @property
    def storage(self) -> Path:
        """The directory of checkpoints."""
        return self.state / "storage"

    def settings(self) -> dict[str, str]:
        """Return the settings of the specification.

        Raises:
            BadProject: it cannot be read.
        """
        found = self._declared().get("configuration") or {}
        if not isinstance(found, Mapping):
            raise BadProject(f"{self.spec}: configuration must be a mapping of settings to values")
        return {str(key): str(value) for key, value in found.items()}

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return str(self._declared().get("name") or self.root.name)

    def _declared(self) -> Mapping[str, Any]:
        import yaml

        try:
            declared = yaml.safe_load(self.spec.read_text())
        except OSError as error:
            raise BadProject(f"{self.spec}: {error.strerror}") from error
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadProject(f"{self.spec}: {error}") from error
        if not isinstance(declared, Mapping):
            raise BadProject(f"{self.spec}: not a specification: expected keys and values")
        return declared

    # -- runs ------------------------------------------------------------------

    def write_run(self, run: Run) -> None:
        """Write the current run, or its outcome."""
        self.state.mkdir(exist_ok=True)
        beside = self.state / "run.json.new"
        beside.write_bytes(msgspec.json.encode(run))
        beside.replace(self.state / "run.json")

    def last_run(self) -> Run | None:
        """Return the current run, or the last one."""
        try:
            return msgspec.json.decode((self.state / "run.json").read_bytes(), type=Run)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise BadProject(f"{self.state / 'run.json'}: {error}") from error

    # -- flows -----------------------------------------------------------------

    def flows(self) -> list[FlowProgress]:
        """Return the progress of every flow that has finished a micro-batch."""
        return sorted(self._flows(), key=lambda flow: flow.name)

    def _flows(self) -> Iterator[FlowProgress]:
        root = self.storage / "_checkpoints"
        for commits in root.glob("**/commits"):
            attempt = commits.parent
            newer = [each for each in attempt.parent.iterdir() if _is_newer(each, attempt)]
            finished = [each for each in commits.iterdir() if each.name.isdigit()]
            if newer or not finished:  # a full refresh starts a new attempt
                continue
            last = max(finished, key=lambda each: int(each.name))
            yield FlowProgress(
                ".".join(attempt.parent.relative_to(root).parts),
                int(last.name),
                last.stat().st_mtime,
                _ends(attempt / "offsets" / last.name),
                _modified(attempt / "offsets" / last.name),
            )


def _is_newer(other: Path, attempt: Path) -> bool:
    return other.name.isdigit() and int(other.name) > int(attempt.name)


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _ends(offsets: Path) -> dict[TopicPartition, int]:
    """Return the end offset of each topic partition; none for other kinds of sources."""
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
"""Reads a topic into a streaming table: every run adds the new records."""

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
    """Write a project that can be run unchanged; return its files.

    Raises:
        BadProject: ``root`` already exists, or cannot be written.
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
        raise BadProject(f"{root} already exists; nothing was changed") from None
    except OSError as error:
        raise BadProject(f"{root}: {error.strerror}") from error
    return [root / relative for relative in files]
