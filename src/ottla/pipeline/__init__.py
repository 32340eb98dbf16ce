"""Spark through PySpark: topics as a data source and sink, tables, pipelines, audits.

The source and sinks of ``format("ottla")`` use a blocking client of their own (`broker.py`), which
fetches raw batches (`fetch.py`) and decodes them with compiled code (`decode.py`, `arrow.py`). This
package contains no broker code: a pipeline reads a cluster through its protocol or from the files
of its log. Start reading at `source.py`; `sql_session.py` shows topics to DuckDB instead of Spark.
"""
