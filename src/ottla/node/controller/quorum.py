"""This node's replica of the metadata quorum: a voter, or an observer on a broker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ottla.client.connection import Options
from ottla.config.addresses import parse_host_port, parse_voter
from ottla.config.loading import Loaded
from ottla.node.context import NodeContext
from ottla.node.listeners import advertised_endpoints
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.types import NO_LEADER, LeaderEpoch, NodeId, Offset
from ottla.raft.applier import MetadataListener
from ottla.raft.configuration import log_config, raft_settings, retention, static_voters
from ottla.raft.core.messages import VoterChangeReply
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.voters import Endpoint, ReplicaKey
from ottla.raft.driver import RaftDriver, RaftParts
from ottla.raft.metadata_log import DIRECTORY_NAME, MetadataLog
from ottla.raft.peers import WirePeers
from ottla.raft.quorum_state_file import QuorumStateFile
from ottla.raft.repair import RejoinMark, repair_log
from ottla.runtime.ports import Address

if TYPE_CHECKING:
    from ottla.raft.auto_join import AutoJoin


class NodeQuorum(msgspec.Struct, frozen=True):
    """The replica of the metadata log, as the rest of the node uses it."""

    driver: RaftDriver
    log: MetadataLog
    settings: RaftSettings

    @property
    def listener(self) -> str:
        """The name of the controller listener."""
        return self.settings.listener

    async def propose(self, records: Sequence[Versioned], epoch: LeaderEpoch) -> Offset:
        """Append one batch as the leader of an epoch."""
        return await self.driver.propose(records, epoch)

    def end_offset(self) -> Offset:
        """Return the offset of the next record."""
        return self.driver.describe().log_end_offset

    def resign(self, epoch: LeaderEpoch) -> None:
        """Give up the leadership of an epoch."""
        self.driver.resign(epoch)

    def kraft_version(self) -> int:
        """Return the level in force."""
        return self.driver.describe().kraft_version

    async def upgrade_kraft_version(
        self, level: int, *, is_validate_only: bool = False
    ) -> VoterChangeReply:
        """Raise kraft.version; the reply says why not."""
        return await self.driver.upgrade_kraft_version(level, is_validate_only=is_validate_only)

    def leader_id(self) -> int:
        """Return the id of the leader; -1 while it is unknown."""
        leader = self.driver.describe().leader_id
        return NO_LEADER if leader is None else leader

    def voter_ids(self) -> tuple[NodeId, ...]:
        """Return the ids of the current voters."""
        return self.driver.describe().voters.ids


def build_quorum(context: NodeContext, listener: MetadataListener) -> NodeQuorum:
    """Open the metadata log and construct the replica. Raises as `build_node`."""
    config, ports = context.loaded.broker, context.ports
    directory = context.metadata_directory
    own = ReplicaKey(context.node_id, directory.directory_id)
    static, mark = static_voters(config, own), RejoinMark(ports.disk, directory.path)
    repair_log(ports.disk, directory.path, context.repair, static, context.node_id)
    log = MetadataLog.open(
        ports.disk,
        directory.path,
        ports.clock,
        log_config(config),
        is_clean=directory.last_shutdown is not None,
    )
    settings = raft_settings(
        config,
        context.cluster_id,
        directory.directory_id,
        tuple(
            Endpoint(at.name, at.host, at.port)
            for at in advertised_endpoints(context.loaded, context.bound, is_controller=True)
        ),
    )
    settings = msgspec.structs.replace(settings, is_rejoining=mark.is_set)
    driver = RaftDriver(
        RaftParts(
            settings=settings,
            log=log,
            state=QuorumStateFile(ports.disk, _log_path(context), settings.key),
            committer=context.committer,
            peers=WirePeers(
                ports.network,
                f"ottla-quorum-{context.node_id}",
                config.controller_quorum_request_timeout_ms,
                lambda address: msgspec.structs.replace(
                    _options(context), traffic=context.meters.channel
                ),
            ),
            clock=ports.clock,
            random=ports.random,
            listener=listener,
            static=static,
            retention=retention(config),
            rejoining=mark,
        )
    )
    return NodeQuorum(driver, log, settings)


def build_auto_join(context: NodeContext, quorum: NodeQuorum) -> "AutoJoin | None":
    """Return the service that adds this controller to the voters; None where that is off."""
    config = context.loaded.broker
    if not config.controller_quorum_auto_join_enable or not context.has_role("controller"):
        return None
    servers = map(parse_host_port, config.controller_quorum_bootstrap_servers)
    from ottla.raft.auto_join import AutoJoin, AutoJoinedFile  # few controllers join by themselves

    return AutoJoin(
        quorum.settings,
        quorum.driver,
        AutoJoinedFile(context.ports.disk, _log_path(context), quorum.settings),
        context.ports.network,
        [Address(server.host, server.port) for server in servers],
        lambda address: _options(context),
    )


def _options(context: NodeContext) -> Options:
    """Return how to connect to a controller: as its first listener asks for."""
    return context.security.peer_options(context.loaded.broker.controller_listener_names[0])


def _log_path(context: NodeContext) -> str:
    return f"{context.metadata_directory.path}/{DIRECTORY_NAME}"


def voter_address(loaded: Loaded, node_id: int) -> Address | None:
    """Return the configured address of a voter."""
    for voter in map(parse_voter, loaded.broker.controller_quorum_voters):
        if voter.id == node_id:
            return Address(voter.address.host, voter.address.port)
    return None
