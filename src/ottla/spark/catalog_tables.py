"""Topics as tables of Spark's catalog: ``CREATE TABLE orders USING ottla OPTIONS (...)``.

Spark passes the options of a new table to `DataSource.schema`, each also under a name that begins
with ``option.``, and keeps the schema in its catalog. A reader of the table gets the schema but not
the options. They are therefore stored in the metadata of every column, as JSON under `METADATA`,
and read back from there.

A catalog shows this metadata to everybody who may describe the table, and Spark copies it into
tables made from the columns: passwords and tokens are rejected.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from ottla.spark.option_values import OptionError
from ottla.spark.options import SINK_NAMES, SOURCE_NAMES, SourceOptions

METADATA: Final = "ottla.options"
"""The key of a column's metadata that has the options of its table."""
_PREFIX: Final = "option."
_SECRET: Final = re.compile(
    r"password|passphrase|secret|jaas|user\.info|auth\.token|access\.key|keystore\.key"
)
_NOT_DECLARED: Final = (
    "this table has no options: Spark keeps them only with a schema that it asked for; create the "
    "table without a list of columns: CREATE TABLE name USING ottla OPTIONS (...)"
)


def declared_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None outside of CREATE TABLE.

    Raises:
        OptionError: an option is a secret.
    """
    found = {
        key[len(_PREFIX) :]: value
        for key, value in options.items()
        if key.lower().startswith(_PREFIX)
    }
    if not found:
        return None
    for key in found:
        if _SECRET.search(key.lower()):
            raise OptionError(
                f"option {key!r} is a secret, and a catalog would show it: read the topic with "
                "spark.read.format('ottla'), or use ottla.spark.views.register_views"
            )
    # A stream and a batch read have different rules: a table must fit both.
    for is_stream in (False, True):
        SourceOptions.parse(found, is_stream=is_stream)
    return _with_proper_names(found)


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema whose columns carry the options of their table."""
    text = json.dumps(dict(options), sort_keys=True)
    return StructType(
        [
            StructField(each.name, each.dataType, each.nullable, {**each.metadata, METADATA: text})
            for each in schema.fields
        ]
    )


def options_of(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: those of its table, replaced by those of the query.

    Raises:
        OptionError: this is a table whose options are not known.
    """
    stored = _stored(schema)
    if stored is None and not options:
        raise OptionError(_NOT_DECLARED)
    given = {key.lower() for key in options}
    kept = {key: value for key, value in (stored or {}).items() if key.lower() not in given}
    return {**kept, **options}


def sink_options_of(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write: for INSERT INTO a table, its connection and its only topic.

    Raises:
        OptionError: the table has several topics, or its options are not known.
    """
    stored = _stored(schema)
    if stored is None or _has(options, "kafka.bootstrap.servers"):
        return dict(options)
    names = {each.lower() for each in SINK_NAMES}
    kept = {
        key: value
        for key, value in stored.items()
        if key.lower() in names or key.lower().startswith("kafka.")
    }
    if not _has(options, "topic"):
        topics = stored.get("subscribe", "")
        if not topics or "," in topics:
            raise OptionError("INSERT INTO needs a table with one topic in its option 'subscribe'")
        kept["topic"] = topics.strip()
    return {**kept, **options}


def _stored(schema: StructType) -> dict[str, str] | None:
    for each in schema.fields:
        text = (each.metadata or {}).get(METADATA)
        if isinstance(text, str):
            found: dict[str, str] = json.loads(text)
            return found
    return None


def _has(options: Mapping[str, str], name: str) -> bool:
    return any(key.lower() == name for key in options)


def _with_proper_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the names of the documentation: Spark passes lower case."""
    proper = {each.lower(): each for each in SOURCE_NAMES}
    return {proper.get(key.lower(), key.lower()): value for key, value in options.items()}
