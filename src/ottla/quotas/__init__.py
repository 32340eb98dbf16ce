"""Rate limits: client quotas and replication throttles.

Start reading at `client_quotas.py`, then `replication_throttle.py`. Not here: throttling itself
(`server`, `replication`), and how quotas are set (`controller`).
"""
