"""The services of a node, in the order they start; they stop in reverse.

The metadata log is recovered before anything reads it. A controller answers its peers before there
can be a leader, and there is a leader before a broker can register. A broker has caught up and
opened its logs before clients connect, and only then asks to be unfenced. In reverse: no client is
served by a node that has left its controller, and a node that is stopping votes until the end.
"""

from ottla.node.broker.broker_lifecycle import Unfencing
from ottla.node.build import NodeParts
from ottla.runtime.supervisor import Service


def services_of(parts: NodeParts) -> list[Service]:
    """Return the services; those of a role that the node does not have are left out."""
    controller, broker = parts.controller, parts.broker
    services: list[Service | None] = [parts.meters.loop, *parts.security.services, parts.metrics]
    services += [parts.audit_log, parts.otlp, parts.quorum.driver]
    if controller is not None:
        services += [controller.controller, controller.recovery, controller.probes]
    services.append(parts.snapshotter)
    if controller is not None:
        services += [controller.listener, controller.auto_join, controller.registration]
    if broker is not None:
        services += [broker.lifecycle, *broker.replica_manager.services, broker.coordinators]
        services += [
            broker.topic_creation,
            broker.telemetry,
            broker.listener,
            Unfencing(broker.lifecycle),
        ]
        if broker.registry is not None:
            services += broker.registry.services
    return [service for service in services if service is not None]
