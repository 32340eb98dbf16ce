"""How each handler class of the controller listener is constructed.

The handlers of the quorum are imported by their first request: the only voter of a quorum receives
none. A controller describes its own settings and loggers (``--bootstrap-controller``) and sets its
log levels itself (KIP-412); every other change is a decision of the active controller.
"""

from typing import TYPE_CHECKING

import msgspec

from ottla.api.cluster import controller_decisions
from ottla.api.cluster.controller_decisions import ControllerContext
from ottla.api.cluster.controller_handlers import ControllerHandlers
from ottla.api.cluster.metadata import CONTROLLERS, ClusterHandlers
from ottla.api.surface.constructors import Constructors
from ottla.controller.active_controller import Controller
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.metadata.image import Image
from ottla.metadata.image_watch import ImageWatch
from ottla.node.context import NodeContext
from ottla.node.controller.quorum import NodeQuorum
from ottla.node.security.token_services import token_descriptions
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.api.cluster.config_changes import ControllerConfigChanges
    from ottla.api.cluster.describe_settings import DescribeHandlers
    from ottla.api.cluster.quorum_requests import RaftHandlers
    from ottla.api.security.delegation_tokens import TokenDescriptions
    from ottla.api.surface.unconfigured import SaslHandlers


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


class ControllerConstructors(Constructors):
    """Constructs what a controller serves; `with_envelope` adds the Envelope."""

    def __init__(self, node: ControllerDependencies) -> None:
        self._node = node

    def controller(self) -> ControllerHandlers:
        """The decisions of the active controller."""
        return ControllerHandlers(
            self._node.controller, self._node.quorum, self._node.decisions, self._node.recovery
        )

    def cluster(self) -> ClusterHandlers:
        """Metadata and DescribeCluster."""
        leader_id = self._node.quorum.leader_id
        return ClusterHandlers(
            self._node.context.cluster_id,
            self._node.image,
            leader_id,
            CONTROLLERS,
            access=self._node.context.access,
        )

    def raft(self) -> "RaftHandlers":
        """Requests between voters, and changes of them."""
        from ottla.api.cluster.quorum_requests import RaftHandlers

        return RaftHandlers(self._node.quorum.driver, self._node.quorum.listener)

    def controller_config_changes(self) -> "ControllerConfigChanges":
        """IncrementalAlterConfigs, on a controller."""
        from ottla.api.cluster.config_changes import ControllerConfigChanges

        decided = self.controller().handler_of(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, controller_decisions.incremental_alter_configs
        )
        return ControllerConfigChanges(
            self._node.context.node_id, decided, access=self._node.context.access
        )

    def settings(self) -> "DescribeHandlers":
        """Descriptions of configurations, quotas, ACLs and SCRAM credentials."""
        from ottla.api.cluster.describe_settings import DescribeHandlers

        context = self._node.context
        return DescribeHandlers(
            context.node_id, self._node.image, context.loaded.static, context.access
        )

    def sasl(self) -> "SaslHandlers":
        """SASL on a listener without it."""
        from ottla.api.surface.unconfigured import SaslHandlers

        return SaslHandlers()

    def token_descriptions(self) -> "TokenDescriptions":
        """DescribeDelegationToken."""
        return token_descriptions(self._node.context, self._node.image)
