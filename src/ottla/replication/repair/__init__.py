"""Finds and repairs damage: scrubbing, lost records, batches of other replicas."""
