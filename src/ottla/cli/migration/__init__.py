"""The rules of ``ottla migrate``: what a node takes over, in which order, and when to go on.

Contents: pure functions from gathered facts to findings, steps and decisions (`settings_check.py`,
`directory_check.py`, `cluster_check.py`, `roll_plan.py`, `roll_status.py`), and the modules that
gather the facts (`gathering.py`, `directory_facts.py`). Not here: the commands themselves, which
are in `ottla.cli.commands.migrate_command`.
"""
