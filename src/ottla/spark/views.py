"""Registers the topics of a cluster as views of a Spark session.

    from ottla.spark.views import register_views

    register_views(spark, "localhost:9092")
    spark.sql("select cast(value as string) from orders").show()

Views are temporary: they exist as long as their session, and their options are nowhere else. Tables
that outlive a session are created with ``CREATE TABLE name USING ottla OPTIONS (...)``; see
`statements`.
"""

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.formats.sql_names import spark_name, spark_text, table_name
from ottla.spark.option_values import OptionError
from ottla.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS_MAX: Final = 1000
"""Most topics to register: Spark asks for the schema of each."""


class BadViews(ValueError):
    """Topics that cannot be registered; the message says which and what to do."""


def register_views(
    spark: "SparkSession",
    bootstrap: str,
    *,
    pattern: str = ".*",
    prefix: str = "",
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Create or replace a temporary view of each topic; return the topics by view.

    ``pattern`` is a regular expression that matches whole names of topics; internal topics are left
    out. A view has the topic's name after ``prefix``, with ``_`` for dots and dashes. ``options``
    are those of the source, also for connections (``kafka.security.protocol``).

    Raises:
        BadViews: two topics have the same view, or there are more than `VIEWS_MAX`. OptionError: an
            option is invalid. NoBroker: no broker answers.
    """
    given = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
    views = view_names(topics_of(given, pattern), prefix)
    for view, topic in views.items():
        reader = spark.read.format("ottla").options(**given)
        reader.option("subscribe", topic).load().createOrReplaceTempView(view)
    return views


def topics_of(options: Mapping[str, str], pattern: str = ".*") -> list[str]:
    """Return the topics of a cluster that match, without internal ones.

    Raises:
        OptionError: an option or the pattern is invalid. NoBroker: no broker answers.
    """
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise OptionError(f"pattern {pattern!r} is not a regular expression: {error}") from error
    settings = SourceOptions.parse({**options, "subscribePattern": ".*"}).client
    found = client_for(_named(settings)).topics(None)
    return sorted(each for each in found if not each.startswith("__") and matches(each))


def view_names(topics: Collection[str], prefix: str = "") -> dict[str, str]:
    """Return the topics by the name of their view.

    Raises:
        BadViews: two topics have the same view, or there are too many.
    """
    if len(topics) > VIEWS_MAX:
        raise BadViews(
            f"{len(topics)} topics match, at most {VIEWS_MAX} can be registered: give a pattern"
        )
    views: dict[str, str] = {}
    for topic in topics:
        view = table_name(f"{prefix}{topic}")
        if view in views:
            raise BadViews(
                f"topics {views[view]} and {topic} would both be the view {view}: give a pattern "
                "that matches one of them"
            )
        views[view] = topic
    return views


def statements(views: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
    """Return the SQL that creates a table of Spark's catalog for each topic."""
    return [
        f"CREATE TABLE IF NOT EXISTS {spark_name(view)} USING ottla OPTIONS ("
        + ", ".join(
            f"{spark_text(key)} {spark_text(value)}"
            for key, value in {**options, "subscribe": topic}.items()
        )
        + ");"
        for view, topic in views.items()
    ]


def _named(settings: ClientSettings) -> ClientSettings:
    return ClientSettings(settings.bootstrap, "ottla-views", settings.properties)
