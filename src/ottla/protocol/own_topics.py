"""The names of topics in which tools of Ottla keep their state."""

from typing import Final

MIRROR_PREFIX: Final = "ottla-mirror."
"""The state of `ottla mirror`, on the target."""

SINK_MARKERS: Final = "__ottla_sink_markers"
"""Which micro-batches of a Spark stream were written."""

_PREFIXES: Final = ("__ottla_", MIRROR_PREFIX)


def is_own_topic(name: str) -> bool:
    """Say whether a topic holds state of a tool, not records of a user."""
    return name.startswith(_PREFIXES)
