"""The APIs of groups: joins, heartbeats, descriptions, committed offsets, and finding a
coordinator."""
