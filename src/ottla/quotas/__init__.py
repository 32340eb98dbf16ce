"""How much somebody may do: rates, and who is held to them.

So far the throttles of replication: start reading at `replication_throttle.py`. Not here: what is
done to whoever exceeds one (`server`, `replication`), and how quotas are set (`controller`).
"""
