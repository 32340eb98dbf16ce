"""The APIs of share groups: fetching and acknowledging records, their state and offsets
(KIP-932)."""
