"""The replica's settings and first voters, derived from a node's configuration."""

from ottla.config.generated import BrokerConfig
from ottla.protocol.types import NodeId, Uuid
from ottla.raft.configuration import (
    bootstrap_servers,
    log_config,
    raft_settings,
    retention,
    static_voters,
)
from ottla.raft.core.voters import Endpoint, ReplicaKey

OWN = ReplicaKey(NodeId(1), Uuid(b"d" * 16))


def config(**changed: object) -> BrokerConfig:
    given = {
        "node_id": 1,
        "process_roles": ("controller",),
        "controller_listener_names": ("ctrl",),
        "controller_quorum_voters": ("1@a:1", "2@b:2"),
    }
    return BrokerConfig(**(given | changed))  # type: ignore[arg-type]


def test_static_voters_know_their_own_directory_only() -> None:
    found = static_voters(config(), OWN)
    assert [voter.key for voter in found] == [OWN, ReplicaKey(NodeId(2))]
    assert [voter.endpoints for voter in found] == [
        (Endpoint("CTRL", "a", 1),),
        (Endpoint("CTRL", "b", 2),),
    ]


def test_dynamic_quorum_has_no_static_voters() -> None:
    dynamic = config(
        controller_quorum_voters=(), controller_quorum_bootstrap_servers=("b:2", "c:3")
    )
    assert len(static_voters(dynamic, OWN)) == 0
    assert [server.host for server in bootstrap_servers(dynamic, "CTRL")] == ["b", "c"]


def test_bootstrap_servers_include_the_other_static_voters() -> None:
    assert [server.host for server in bootstrap_servers(config(), "CTRL")] == ["b"]


def test_raft_settings_come_from_the_configuration() -> None:
    given = config(
        controller_quorum_election_timeout_ms=7000,
        controller_quorum_fetch_timeout_ms=8000,
        controller_quorum_request_timeout_ms=9000,
        ottla_observer_lag_bound=5,
    )
    found = raft_settings(given, "cluster", OWN.directory_id, (Endpoint("CTRL", "me", 4),))
    assert found.key == OWN
    assert (found.election_timeout_ms, found.fetch_timeout_ms) == (7000, 8000)
    assert (found.request_timeout_ms, found.observer_lag_records_max) == (9000, 5)
    assert (found.listener, found.may_become_voter) == ("CTRL", True)
    broker = raft_settings(config(process_roles=("broker",)), "c", OWN.directory_id, ())
    assert not broker.may_become_voter


def test_retention_and_segment_settings_come_from_the_configuration() -> None:
    given = config(metadata_max_retention_bytes=5, metadata_log_segment_bytes=9_000_000)
    assert retention(given).bytes_max == 5
    assert log_config(given).segment_bytes == 9_000_000
    assert log_config(config(internal_metadata_log_segment_bytes=77)).segment_bytes == 77
