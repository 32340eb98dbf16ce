"""Tables that Spark keeps of topics: parquet, Delta and Iceberg, each record exactly once.

`job.py` is the declaration of a table, from a file (`job_file.py`) or from the settings of a topic
(`topic_tables.py`). `table_writer.py` runs one, `application.py` all that topics declare.
`value_decoding.py` makes rows of records, `targets.py` writes them, `owner.py` says which query may
write a parquet table, and `compaction.py` merges its small files. Start at `table_writer.py`.
"""
