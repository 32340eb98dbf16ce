"""The metadata.version of a mixed cluster: the newest that both kinds know."""

LEVELS = {"4.0": "4.0-IV3", "4.1": "4.1-IV1", "4.2": "4.2-IV1"}
NEWEST = "4.3-IV0"


def level(version: str) -> str:
    """Return the level for a cluster with nodes of this release of Kafka."""
    return LEVELS.get(".".join(version.split(".")[:2]), NEWEST)
