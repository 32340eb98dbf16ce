"""How the nodes and clients of a test cluster authenticate. The default is plaintext."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.client.connection import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Settings of all nodes, users, and the options of a connection to a node.

    ``scram`` are users as ``ottla format --add-scram`` takes them.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    scram: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)


PLAINTEXT = ClusterAccess()
