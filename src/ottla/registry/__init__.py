"""The schema registry of a node: Confluent's REST API over the topic ``_schemas``.

Start reading at `rules/state.py` (what a registry holds) and `rules/registration.py` (the decision
behind most requests). The shells: `store.py` follows the topic and writes to it where this node
leads it, `forwarding.py` passes writes to the leader, `http_app.py` answers HTTP, `work.py` parses
and compares schemas on a thread. `node` constructs them where ``schema.registry.listeners`` is set.

Not here: the schema languages (`schemas`), and clients of registries (`pipeline.registry`).
"""
