"""What every part of a node is constructed from."""

from typing import TYPE_CHECKING

import msgspec

from ottla.api.security.access import OPEN, Access
from ottla.config.loading import Loaded
from ottla.node.broker.dynamic_config import DynamicConfig
from ottla.node.directories.node_directories import log_directories
from ottla.node.listeners import Bound
from ottla.node.metrics.meters import Meters, new_meters
from ottla.node.ports import NodePorts
from ottla.node.security.security_port import NoSecurity, Security
from ottla.protocol.types import NodeId
from ottla.raft.repair import NO_REPAIR, Repair
from ottla.runtime.ports import Committer
from ottla.server.connection_close_hooks import ConnectionCloseHooks
from ottla.storage.directory.log_dir import LogDirectory

if TYPE_CHECKING:
    from ottla.node.security.authorization import AclPublisher


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node, its ports, its locked directories and its bound sockets.

    ``directories`` begins with that of the metadata log.
    """

    loaded: Loaded
    ports: NodePorts
    directories: list[LogDirectory]
    bound: Bound
    committer: Committer
    dynamic: DynamicConfig
    security: Security = msgspec.field(default_factory=NoSecurity)
    meters: Meters = msgspec.field(default_factory=new_meters)
    close_hooks: ConnectionCloseHooks = msgspec.field(default_factory=ConnectionCloseHooks)
    access: Access = OPEN
    """Who may do what, on all listeners."""
    acls: "AclPublisher | None" = None
    """Keeps the authorizer up to date; None for a node without one."""
    repair: Repair = NO_REPAIR
    offline_paths: tuple[str, ...] = ()
    """Directories that could not be opened."""

    @property
    def node_id(self) -> NodeId:
        """This node's id."""
        return NodeId(self.loaded.broker.node_id)

    @property
    def cluster_id(self) -> str:
        """The cluster that its directories are formatted for."""
        return self.directories[0].meta.cluster_id

    @property
    def log_directories(self) -> list[LogDirectory]:
        """The directories of clients' partitions; that of the metadata log may be apart."""
        paths = log_directories(self.loaded.broker)
        return [each for each in self.directories if each.path in paths]

    @property
    def metadata_directory(self) -> LogDirectory:
        """The directory of the metadata log."""
        return self.directories[0]

    def has_role(self, role: str) -> bool:
        """Say whether the node is a ``broker`` or a ``controller``."""
        return role in self.loaded.broker.process_roles
