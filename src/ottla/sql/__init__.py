"""SQL over topics with DuckDB, in this process and without Spark: ``ottla sql``.

`session.py` finds the topics of a query and shows them as views; `scan.py` fetches what a query
reads, `pushdown.py` and `used_columns.py` say what it need not read. `topics.py` decides how keys
and values are read. Start reading at `session.py`.
"""
