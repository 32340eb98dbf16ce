"""Makes ``format("ottla")`` known to Spark, which looks for packages called ``pyspark_*``.

Every session imports this, whether it reads a topic or not: what does the work is imported when a
source or sink is asked for. Everything else is in `ottla.spark`.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics as a source and a sink, in batches and as streams."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in ``format(...)``."""
        return "ottla"

    def schema(self) -> "StructType":
        """Return all columns of a record. Raises OptionError.

        Spark also calls this for CREATE TABLE, and then the columns carry the table's options.
        """
        from ottla.spark.catalog_tables import declared_options, with_options

        declared = declared_options(self.options)
        if declared is not None:
            return with_options(_columns(declared), declared)
        return _columns(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return what reads once. Raises OptionError, BadSchema."""
        from ottla.spark.catalog_tables import options_of
        from ottla.spark.options import SourceOptions
        from ottla.spark.source import BatchReader

        return BatchReader(SourceOptions.parse(options_of(self.options, schema)), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        """Return what reads on and on. Raises OptionError, BadSchema."""
        from ottla.spark.catalog_tables import options_of
        from ottla.spark.options import SourceOptions
        from ottla.spark.stream_reader import stream_reader

        options = options_of(self.options, schema)
        return stream_reader(SourceOptions.parse(options, is_stream=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """Return what writes once. Raises OptionError."""
        from ottla.spark.catalog_tables import sink_options_of
        from ottla.spark.sink_writers import batch_writer

        return batch_writer(sink_options_of(self.options, schema), schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        """Return what writes batch after batch. Raises OptionError."""
        from ottla.spark.catalog_tables import sink_options_of
        from ottla.spark.sink_writers import stream_writer

        return stream_writer(sink_options_of(self.options, schema), schema)


def _columns(options: "Mapping[str, str]") -> "StructType":
    """Return the columns that these options ask for. Raises OptionError."""
    from ottla.spark.columns import full_schema
    from ottla.spark.options import include_headers, is_decoding

    if not is_decoding(options):
        return full_schema(include_headers(options))
    from ottla.spark.options import SourceOptions
    from ottla.spark.source_decoding import source_schema

    return source_schema(SourceOptions.parse(options, is_stream=True))
