"""The Spark settings of Delta and Iceberg tables: jars, extensions, catalogs. Pure.

Both formats are jars that are built for particular versions of Spark. Spark downloads them itself
(``spark.jars.packages``) when a session starts; the coordinates depend on its version, and the
versions in `RUNTIMES` are tested together (``make conformance``). In your own program, before the
session is created::

    from ottla.tables.lakehouse import settings_for

    for key, value in settings_for(["delta"], pyspark.__version__, {}).items():
        builder = builder.config(key, value)

Settings that are given are kept: with ``spark.jars`` or ``spark.jars.packages`` that name a runtime
of the format, none is chosen.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

PACKAGES: Final = "spark.jars.packages"
_JARS: Final = ("spark.jars", PACKAGES)
_EXTENSIONS: Final = "spark.sql.extensions"
_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_CATALOG: Final = "spark.sql.catalog."
_DELTA: Final = {
    _SESSION_CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta plans for large clusters: 50 tasks for each read of a table's log, and 10,000 to list
    # files for VACUUM, which takes minutes on two cores.
    "spark.databricks.delta.snapshotPartitions": "4",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


class NoRuntime(ValueError):
    """No release of a table format works with this Spark; the message says which Spark to use."""


class Runtime(msgspec.Struct, frozen=True):
    """The newest release of a table format, and the versions of Spark that it is built for."""

    title: str
    version: str
    spark: tuple[str, ...]
    artifact: str
    extension: str
    extra: str

    def coordinates(self, spark: str) -> str:
        """Return what Spark downloads."""
        return f"{self.artifact.format(spark=spark)}:{self.version}"


RUNTIMES: Final[dict[str, Runtime]] = {
    "delta": Runtime(
        "Delta",
        "4.4.0",
        ("4.1", "4.2"),
        "io.delta:delta-spark_{spark}_2.13",
        "io.delta.sql.DeltaSparkSessionExtension",
        "ottla[delta]",
    ),
    "iceberg": Runtime(
        "Iceberg",
        "1.12.0",
        ("4.1",),
        "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "ottla[iceberg]",
    ),
}


def unavailable(
    formats: Iterable[str], spark_version: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the formats that have no release for this Spark, each with the reason."""
    found = {}
    for name in dict.fromkeys(formats):
        try:
            settings_for([name], spark_version, given)
        except NoRuntime as error:
            found[name] = str(error)
    return found


def settings_for(
    formats: Iterable[str],
    spark_version: str,
    given: Mapping[str, str],
    warehouses: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the settings that a session with tables of these formats needs besides ``given``.

    ``warehouses`` are Iceberg catalogs in a file system: name -> directory. Formats that need no
    jar, such as parquet, need no settings.

    Raises:
        NoRuntime: no release of a format is built for this Spark, and none is given.
    """
    found = {key: given[key] for key in (PACKAGES, _EXTENSIONS) if key in given}
    for name in dict.fromkeys(each for each in formats if each in RUNTIMES):
        runtime = RUNTIMES[name]
        if not _has_runtime(name, given):
            _append(found, PACKAGES, runtime.coordinates(_spark_of(runtime, spark_version)))
        _append(found, _EXTENSIONS, runtime.extension)
        if name == "delta":
            found |= {key: value for key, value in _DELTA.items() if key not in given}
    for catalog, directory in (warehouses or {}).items():
        found[_CATALOG + catalog] = "org.apache.iceberg.spark.SparkCatalog"
        found[f"{_CATALOG}{catalog}.type"] = "hadoop"
        found[f"{_CATALOG}{catalog}.warehouse"] = directory
        # Each session would see its own old version of a table for 30 s.
        found[f"{_CATALOG}{catalog}.cache-enabled"] = "false"
    return {**found, **{key: value for key, value in given.items() if key not in found}} | {
        key: value for key, value in given.items() if key.startswith(_CATALOG)
    }


def _has_runtime(name: str, given: Mapping[str, str]) -> bool:
    listed = ",".join(given.get(key, "") for key in _JARS)
    return f"{name}-spark" in listed


def _append(found: dict[str, str], key: str, value: str) -> None:
    values = [each for each in found.get(key, "").split(",") if each]
    if value not in values:
        values.append(value)
    found[key] = ",".join(values)


def _spark_of(runtime: Runtime, version: str) -> str:
    matched = _VERSION.match(version)
    short = matched[0] if matched else version
    if short not in runtime.spark:
        raise NoRuntime(
            f"{runtime.title} {runtime.version}, the newest release, is built for Spark "
            f"{' and '.join(runtime.spark)}, and this is Spark {version}: "
            f"install PySpark {runtime.spark[-1]} (pip install '{runtime.extra}'), or set "
            f"{PACKAGES} to a runtime that fits"
        )
    return short
