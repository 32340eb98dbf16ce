"""Histories of clients, checked against Kafka's guarantees. Pure, and linear in the history.

Contents: the events that clients write as JSON lines (`events.py`), the facts gathered from them
(`facts.py`), one module of rules per subject, and `check.py`, which applies them all. Not here:
clients, and the faults injected meanwhile.

    from ottla.testing.history.check import check

Values are unique, so offsets give the order of a log and nothing has to be searched. Start reading
at `events.py`.
"""
