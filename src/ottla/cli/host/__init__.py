"""Several nodes of one machine under one supervisor process: ``ottla server --nodes``.

Contents: the settings of each node, derived from one file (`plan.py`); when nodes are started,
restarted and stopped, as a pure state machine (`supervision.py`); what nodes report to it
(`node_states.py`); the combined log (`lines.py`); and the process that carries it out
(`supervisor.py`). Not here: the nodes themselves. Each is a process of its own that runs
`ottla.cli.commands.serving`.
"""
