"""The active controller: which records to write for a request, and what to answer.

What is here: decisions, each a pure function of the newest state, committed or not, and of a
request, that returns records and a reply (`decision.py`). What is not here: how records become
durable and shared (`raft`), and what they mean (`metadata`).

Start reading at `decision.py`, then `brokers.py` and `topic_creation.py`.
"""
