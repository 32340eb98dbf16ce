"""The registration requests of a node."""

from collections.abc import Sequence

from ottla.config.loading import Loaded
from ottla.metadata.features import supported_features
from ottla.node.listeners import Bound, advertised_endpoints
from ottla.protocol.messages import broker_registration as broker
from ottla.protocol.messages import controller_registration as controller
from ottla.protocol.types import Uuid
from ottla.storage.directory.log_dir import LogDirectory


def broker_registration(
    loaded: Loaded,
    bound: Bound,
    cluster_id: str,
    incarnation: Uuid,
    directories: Sequence[LogDirectory],
) -> broker.BrokerRegistrationRequest:
    """Return a broker's registration, with its bound ports.

    After a clean shutdown it has the broker epoch from the marker (KIP-966).
    """
    marker = directories[0].last_shutdown
    return broker.BrokerRegistrationRequest(
        broker_id=loaded.broker.node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation,
        listeners=[
            broker.Listener(reply.name, reply.host, reply.port, reply.protocol)
            for reply in advertised_endpoints(loaded, bound, is_controller=False)
        ],
        features=[
            broker.Feature(name, levels.min, levels.max)
            for name, levels in sorted(supported_features().items())
        ],
        rack=loaded.broker.broker_rack,
        log_dirs=[each.directory_id for each in directories],
        previous_broker_epoch=-1 if marker is None else marker.broker_epoch,
    )


def controller_registration(
    loaded: Loaded, bound: Bound, incarnation: Uuid
) -> controller.ControllerRegistrationRequest:
    """Return a controller's registration."""
    return controller.ControllerRegistrationRequest(
        controller_id=loaded.broker.node_id,
        incarnation_id=incarnation,
        listeners=[
            controller.Listener(reply.name, reply.host, reply.port, reply.protocol)
            for reply in advertised_endpoints(loaded, bound, is_controller=True)
        ],
        features=[
            controller.Feature(name, levels.min, levels.max)
            for name, levels in sorted(supported_features().items())
        ],
    )
