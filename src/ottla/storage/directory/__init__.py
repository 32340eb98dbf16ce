"""A log directory: its owner, its checkpoints, its logs, and the health of its disk."""
