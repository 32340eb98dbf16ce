"""Copies topics between clusters, exactly once: records, settings, ACLs and committed offsets.

Every batch is appended at a known offset of the target: its sequence number is that offset, so a
broker appends it there, recognizes it as a duplicate, or rejects it. The end of a target partition
is therefore the position in the source, and a copy that was killed goes on where the target ends.

Contents: pure rules (`offset_map.py`, `pieces.py`, `records_of_state.py`, `topic_rules.py`), and
the shells that act (`appender.py`, `state_log.py`, `metadata_sync.py`, `copying.py`, `service.py`).
Not here: the commands, which are in `ottla.cli.commands.mirror_command`. Start reading at
`service.py`.
"""
