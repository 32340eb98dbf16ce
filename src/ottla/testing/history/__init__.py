"""What clients saw, checked against what Kafka promises. Pure, and linear in the history.

What is here: the events that clients write down as JSON lines (`events.py`), the facts gathered
from them (`facts.py`), one module of rules for each subject, and `check.py`, which applies them
all. What is not here: clients, and whatever breaks the cluster meanwhile.

    from ottla.testing.history.check import check

Values are unique, so the order of a log is given by its offsets and nothing has to be searched.
Start reading at `events.py`.
"""
