"""The APIs of the cluster: metadata, changes that the active controller decides, the quorum."""
