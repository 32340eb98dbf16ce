"""The services of a node, in the order they start; they stop in reverse.

The log is recovered before anybody may ask; a controller answers its peers before there can be
a leader, and there is a leader before a broker can register; a broker has caught up and opened
its logs before its clients come, and only then asks to be unfenced. Backwards: no client is
served by a node that no longer hears its controller, and a node that is stopping votes until
the very end.
"""

from ottla.node.broker_lifecycle import Unfencing
from ottla.node.build import NodeParts
from ottla.runtime.supervisor import Service


def services_of(parts: NodeParts) -> list[Service]:
    """Return the list; what a node's roles do not have is left out."""
    listed: list[Service | None] = [
        parts.meters.loop,
        parts.metrics,
        parts.quorum.driver,
        parts.controller,
        parts.recovery,
        parts.snapshotter,
        parts.controller_listener,
        parts.auto_join,
        parts.controller_registration,
        parts.lifecycle,
        *(() if parts.hosting is None else parts.hosting.services),
        parts.coordinators,
        parts.topic_creation,
        parts.client_listener,
        None if parts.lifecycle is None else Unfencing(parts.lifecycle),
    ]
    return [service for service in listed if service is not None]
