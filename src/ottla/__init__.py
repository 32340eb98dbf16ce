"""Ottla: an Apache Kafka-compatible broker in Python.

The rooms of this package and who may know whom are drawn in ARCHITECTURE.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.node.handle import Node

__all__ = ["Node", "__version__"]
__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> object:
    """Load the node when it is first asked for: the package itself costs nothing to import."""
    if name != "Node":
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from ottla.node.handle import Node

    return Node
