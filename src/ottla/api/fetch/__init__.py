"""Fetch: what consumers and followers read, now or when there is more. Start with `handler.py`.

`decision.py`   pure: read, wait, or look by a pass; the same rule for every step below
`reading.py`    a pass over the partitions, or the end of the only one that has changed
`wait.py`       until a change of a partition makes the decision another one
`sessions.py`   which partitions a request fetches; `partitions.py`: which of them are idle
`request.py`, `reply.py`    the bytes
"""
