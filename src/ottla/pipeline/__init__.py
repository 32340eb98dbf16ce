"""Spark through PySpark: topics as a data source and sink, tables, pipelines, audits.

What is here: the source and sinks of ``format("ottla")``, on a blocking client of their own
(`broker.py`) that fetches raw batches (`fetch.py`) and decodes them compiled (`decode.py`,
`arrow.py`). Not here: anything of the broker; a pipeline knows a cluster by its protocol, or by
the files of its log. Start reading at `source.py`.
"""
