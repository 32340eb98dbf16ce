"""The languages of the schema registry, without I/O: Avro, JSON Schema and Protobuf.

Start reading at `contract.py` (what the registry sees of every language), then `languages.py`
(``parse`` and ``differences``). Each language is a package of the same shape: `parsing.py` (text to
a model), `printing.py` (the model to canonical text), `normalising.py`, `tags.py`, `schema.py` (the
parsed schema that joins them), `compatibility.py` (what a reader cannot read).

Text comes from clients: size, depth and number of elements are bounded (`bounds.py`), and the only
exception is ``InvalidSchema``. Not here: subjects, versions, ids and levels (`registry`).
"""
