"""What operators ask of a cluster, through its client: health, groups, resets, dead letters.

The command line and the console print the same answers, so the rules are here and not in either.
Start reading at `health.py` (pure) and `cluster_state.py` (its shell).

Not here: single requests (`client`), options and tables of commands (`cli`), pages (`console`).
"""
