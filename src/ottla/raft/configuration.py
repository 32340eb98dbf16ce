"""Derives the settings of a quorum replica from a node's configuration. Pure.

``controller.quorum.voters`` defines a static quorum: the voters never change, and each knows its
own directory id and none of the others'. Without it, voters come from the log, and a node with none
in its log asks ``controller.quorum.bootstrap.servers``. A static list is also used to find the
other voters, whatever the log says: it is how a node connects before it has received anything.
"""

from ottla.config.addresses import parse_host_port, parse_voter
from ottla.config.generated import BrokerConfig
from ottla.protocol.types import NodeId, Uuid
from ottla.raft.core.raft_settings import RaftSettings
from ottla.raft.core.voters import (
    ALL_KRAFT_VERSIONS,
    Endpoint,
    Endpoints,
    ReplicaKey,
    Voter,
    VoterSet,
)
from ottla.raft.metadata_log import Retention, metadata_log_config
from ottla.storage.log.log_config import LogConfig


def raft_settings(
    config: BrokerConfig, cluster_id: str, directory_id: Uuid, endpoints: Endpoints
) -> RaftSettings:
    """Return a replica's settings. ``endpoints`` are the actual addresses of its listeners."""
    listener = config.controller_listener_names[0].upper()
    return RaftSettings(
        node_id=NodeId(config.node_id),
        directory_id=directory_id,
        cluster_id=cluster_id,
        endpoints=endpoints,
        bootstrap=bootstrap_servers(config, listener),
        listener=listener,
        may_become_voter="controller" in config.process_roles,
        election_timeout_ms=max(1, config.controller_quorum_election_timeout_ms),
        fetch_timeout_ms=max(1, config.controller_quorum_fetch_timeout_ms),
        request_timeout_ms=max(1, config.controller_quorum_request_timeout_ms),
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        election_backoff_ms_max=config.controller_quorum_election_backoff_max_ms,
        observer_lag_records_max=config.ottla_observer_lag_bound,
        is_refusal_evidence=config.ottla_liveness_probe_enable,
    )


def bootstrap_servers(config: BrokerConfig, listener: str) -> tuple[Endpoint, ...]:
    """Return the servers to ask for the leader, in the order of the configuration."""
    found = [parse_host_port(text) for text in config.controller_quorum_bootstrap_servers]
    others = [parse_voter(text) for text in config.controller_quorum_voters]
    found += [voter.address for voter in others if voter.id != config.node_id]
    return tuple(Endpoint(listener, each.host, each.port) for each in dict.fromkeys(found))


def static_voters(config: BrokerConfig, own: ReplicaKey) -> VoterSet:
    """Return the voters of the configuration; none if the quorum is dynamic."""
    listener = config.controller_listener_names[0].upper()
    voters = [parse_voter(text) for text in config.controller_quorum_voters]
    return VoterSet(
        tuple(
            Voter(
                own if voter.id == own.node_id else ReplicaKey(voter.id),
                (Endpoint(listener, voter.address.host, voter.address.port),),
                ALL_KRAFT_VERSIONS,
            )
            for voter in voters
        )
    )


def retention(config: BrokerConfig) -> Retention:
    """Return how much of the metadata log to keep behind its snapshots."""
    return Retention(config.metadata_max_retention_bytes, config.metadata_max_retention_ms)


def log_config(config: BrokerConfig) -> LogConfig:
    """Return the settings of the metadata log's segments."""
    return metadata_log_config(
        config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
        config.metadata_log_segment_ms,
    )
