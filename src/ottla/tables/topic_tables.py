"""Tables that topics declare by their own settings, ``ottla.table.*``. Pure.

A topic with ``ottla.table.format`` other than ``none`` is kept as a table by ``ottla pipeline
tables``. `jobs_of` turns settings into jobs; a topic whose settings contradict each other
gets an error of its own and does not affect the others.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ottla.formats.sql_names import table_name
from ottla.tables.job import BadJob, TableFormat, TableJob, parse_job

PREFIX: Final = "ottla.table."
FORMAT: Final = f"{PREFIX}format"
NONE: Final = "none"
KEYS: Final = (
    "ottla.table.format",
    "ottla.table.name",
    "ottla.table.mode",
    "ottla.table.value.format",
    "ottla.table.value.schema",
    "ottla.table.key.schema",
    "ottla.table.partition.by",
    "ottla.table.dead.letters",
    "ottla.table.misfits",
    "ottla.table.compact.files",
    "ottla.table.maintenance.interval.ms",
    "ottla.table.retention.ms",
)
CATALOG: Final = "lake"
"""The Iceberg catalog below the warehouse directory."""
NAMESPACE: Final = "topics"
_KEY_COLUMN: Final = re.compile(
    r"\s*`?(?P<name>[A-Za-z_]\w*)`?\s+"
    r"(?P<type>[A-Za-z]\w*(\s*\(\s*[0-9]+\s*(,\s*[0-9]+\s*)?\))?)\s*\Z",
    re.ASCII,
)


class Place(msgspec.Struct, frozen=True):
    """Where tables are written, and how topics are read."""

    warehouse: str
    bootstrap: str
    source: dict[str, str] = msgspec.field(default_factory=dict)


class Declared(msgspec.Struct, frozen=True):
    """The tables of a cluster: a job, or the reason why there is none, by topic."""

    jobs: dict[str, TableJob]
    errors: dict[str, str]


def jobs_of(settings: Mapping[str, Mapping[str, str]], place: Place) -> Declared:
    """Return the tables that the settings of topics declare."""
    jobs: dict[str, TableJob] = {}
    errors: dict[str, str] = {}
    for topic, theirs in sorted(settings.items()):
        if theirs.get(FORMAT, NONE) == NONE:
            continue
        try:
            jobs[topic] = job_of(topic, theirs, place)
        except BadJob as error:
            errors[topic] = str(error)
    _check_places(jobs, errors)
    return Declared(jobs, errors)


def job_of(topic: str, settings: Mapping[str, str], place: Place) -> TableJob:
    """Return the job of one topic.

    Raises:
        BadJob: the settings are incomplete, or contradict each other.
    """
    own = {key.removeprefix(PREFIX): text for key, text in settings.items() if text != ""}
    name = table_name(own.get("name", topic))
    format = own.get("format", NONE)
    declared: dict[str, object] = {
        "topic": topic,
        "bootstrap": place.bootstrap,
        "mode": own.get("mode", "append"),
        "value": _value(own),
        "table": _table(format, name, own, place),
        "checkpoint": f"{place.warehouse}/_checkpoints/{name}",
        "misfits": own.get("misfits", "stop"),
        "source": place.source,
    }
    if "key.schema" in own:
        declared["key"] = key_expressions(own["key.schema"])
    if "dead.letters" in own:
        declared["dead_letters"] = own["dead.letters"]
    if "maintenance.interval.ms" in own and format != TableFormat.PARQUET.value:
        declared["maintenance"] = {
            "every": f"{own['maintenance.interval.ms']} ms",
            "expire": f"{own.get('retention.ms', '604800000')} ms",
            "vacuum": f"{own.get('retention.ms', '604800000')} ms",
        }
    return parse_job(declared)


def key_expressions(schema: str) -> dict[str, str]:
    """Return the SQL of key columns: the text of one column, or the fields of a JSON object.

    Raises:
        BadJob: it is not a list of columns.
    """
    columns = []
    for each in re.split(r",(?![^(]*\))", schema):
        found = _KEY_COLUMN.match(each)
        if found is None:
            raise BadJob(
                f"{PREFIX}key.schema: {each.strip()!r} is not a column such as 'id bigint'"
            )
        columns.append((found["name"], found["type"]))
    text = "cast(key as string)"
    if len(columns) == 1:
        ((name, kind),) = columns
        return {name: text if kind.lower() == "string" else f"try_cast({text} as {kind})"}
    whole = ", ".join(f"{name} {kind}" for name, kind in columns)
    return {name: f"from_json({text}, '{whole}').{name}" for name, _ in columns}


def _value(own: Mapping[str, str]) -> dict[str, str]:
    value = {"format": own.get("value.format", "raw")}
    if "value.schema" in own:
        value["schema"] = own["value.schema"]
    return value


def _table(format: str, name: str, own: Mapping[str, str], place: Place) -> dict[str, object]:
    table: dict[str, object] = {"format": format}
    if format == TableFormat.ICEBERG.value:
        table |= {"name": f"{CATALOG}.{NAMESPACE}.{name}", "warehouse": place.warehouse}
    else:
        table["path"] = f"{place.warehouse}/{name}"
    columns = [each.strip() for each in own.get("partition.by", "").split(",") if each.strip()]
    table["partition_by"] = columns
    if "compact.files" in own:
        table["compact_files"] = int(own["compact.files"])
    return table


def _check_places(jobs: dict[str, TableJob], errors: dict[str, str]) -> None:
    """Keep the first of several topics that would write the same table."""
    taken: dict[str, str] = {}
    for topic, job in list(jobs.items()):
        other = taken.setdefault(job.checkpoint_path, topic)
        if other != topic:
            del jobs[topic]
            errors[topic] = (
                f"its table has the name of the table of topic {other}: set {PREFIX}name"
            )
