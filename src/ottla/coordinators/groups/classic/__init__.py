"""Classic groups: members agree on a protocol, and the leader among them assigns partitions."""
