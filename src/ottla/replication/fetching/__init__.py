"""The follower's side of partitions: fetches from leaders, and what is applied to logs."""
