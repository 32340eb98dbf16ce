"""Topics as a source and sink of Spark, audits, and projects of Declarative Pipelines.

The source and sinks of ``format("ottla")`` use the blocking client (`ottla.client.blocking`), which
fetches raw batches, and decode them with compiled code (`ottla.formats`). Nothing here is code of a
broker: Spark reads a cluster through its protocol, or from the files of its log (`tier.py`). Start
reading at `stream_reader.py` and `sink_task.py`; the rules of reads are in `plan.py`.
"""
