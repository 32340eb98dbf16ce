"""How each handler class of the controller listener is constructed.

`ottla.api.surface.table` names the classes; `CONSTRUCTORS` has one function for each. The handlers
of the quorum are imported by their first request: the only voter of a quorum receives none. A
controller describes its own settings and loggers (``--bootstrap-controller``) and sets its log
levels itself (KIP-412); every other change is a decision of the active controller.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from ottla.api.cluster import controller_decisions
from ottla.api.cluster.controller_decisions import ControllerContext
from ottla.api.cluster.controller_handlers import ControllerHandlers
from ottla.api.cluster.metadata import CONTROLLERS, ClusterHandlers
from ottla.api.surface.binding import Handlers
from ottla.controller.active_controller import Controller
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.context import NodeContext
from ottla.node.controller.quorum import NodeQuorum
from ottla.node.security.token_services import token_descriptions
from ottla.protocol.api_keys import ApiKey


class ControllerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers of the controller listener are constructed from."""

    context: NodeContext
    watch: ImageWatch
    quorum: NodeQuorum
    controller: Controller
    decisions: ControllerContext
    recovery: UncleanRecovery

    def image(self) -> Image:
        """Return the newest image."""
        return self.watch.image


Construct = Callable[[ControllerDependencies], object]


def controller_handlers(dependencies: ControllerDependencies) -> Handlers:
    """Return the handlers of the controller listener."""
    return Handlers(
        {name: partial(construct, dependencies) for name, construct in CONSTRUCTORS.items()}
    )


def _decisions(node: ControllerDependencies) -> ControllerHandlers:
    return ControllerHandlers(node.controller, node.quorum, node.decisions, node.recovery)


def _cluster(node: ControllerDependencies) -> object:
    leader_id = node.quorum.leader_id
    return ClusterHandlers(
        node.context.cluster_id,
        node.image,
        leader_id,
        CONTROLLERS,
        access=node.context.access,
    )


def _raft(node: ControllerDependencies) -> object:
    from ottla.api.cluster.quorum_requests import RaftHandlers

    return RaftHandlers(node.quorum.driver, node.quorum.listener)


def _config_changes(node: ControllerDependencies) -> object:
    from ottla.api.cluster.config_changes import ControllerConfigChanges

    decided = _decisions(node).handler_of(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, controller_decisions.incremental_alter_configs
    )
    return ControllerConfigChanges(node.context.node_id, decided, access=node.context.access)


def _describe(node: ControllerDependencies) -> object:
    from ottla.api.cluster.describe_settings import DescribeHandlers

    context = node.context
    return DescribeHandlers(context.node_id, node.image, context.loaded.static, context.access)


def _sasl(node: ControllerDependencies) -> object:
    from ottla.api.surface.unconfigured import SaslHandlers

    return SaslHandlers()


def _token_descriptions(node: ControllerDependencies) -> object:
    return token_descriptions(node.context, node.image)


CONSTRUCTORS: Final[Mapping[str, Construct]] = MappingProxyType(
    {
        "ottla.api.cluster.controller_handlers:ControllerHandlers": _decisions,
        "ottla.api.cluster.metadata:ClusterHandlers": _cluster,
        "ottla.api.cluster.quorum_requests:RaftHandlers": _raft,
        "ottla.api.cluster.config_changes:ControllerConfigChanges": _config_changes,
        "ottla.api.cluster.describe_settings:DescribeHandlers": _describe,
        "ottla.api.surface.unconfigured:SaslHandlers": _sasl,
        "ottla.api.security.delegation_tokens:TokenDescriptions": _token_descriptions,
    }
)
"""One function per class, by its name in the surface; the Envelope's is constructed apart."""
