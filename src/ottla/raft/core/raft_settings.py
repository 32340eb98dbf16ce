"""The fixed settings of a replica: its identity and its timeouts. Times are milliseconds."""

import msgspec

from ottla.protocol.types import NodeId, Uuid
from ottla.raft.core.voters import (
    ALL_KRAFT_VERSIONS,
    Endpoint,
    Endpoints,
    ReplicaKey,
    VersionRange,
    Voter,
)


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's settings, with the defaults of Kafka's ``controller.quorum.*`` keys."""

    node_id: NodeId
    directory_id: Uuid
    cluster_id: str
    endpoints: Endpoints = ()
    # Servers to ask for the leader if none is known, beside the voters in the log.
    bootstrap: tuple[Endpoint, ...] = ()
    listener: str = "CONTROLLER"
    kraft_versions: VersionRange = ALL_KRAFT_VERSIONS
    # A broker's observer need not flush each append: it never counts for the majority.
    may_become_voter: bool = True
    # It lost records that it had acknowledged: no votes until it has caught up with a leader.
    is_rejoining: bool = False

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    election_backoff_ms_max: int = 1000
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 8 * 1024 * 1024
    # How far behind a prospective voter may be. Kafka requires only one full catch-up within the
    # last hour; a voter that lags would delay the high watermark at once.
    observer_lag_records_max: int = 1000
    # Give up a leader whose port refuses connections before the fetch timeout.
    is_refusal_evidence: bool = True

    def __post_init__(self) -> None:
        assert any(self.directory_id), "the replica's own directory id is missing"
        for name in ("election_timeout_ms", "fetch_timeout_ms", "request_timeout_ms"):
            assert getattr(self, name) > 0, f"{name} must be positive"

    @property
    def key(self) -> ReplicaKey:
        """This replica's key."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def voter(self) -> Voter:
        """This replica as its entry in a VotersRecord should be."""
        return Voter(self.key, self.endpoints, self.kraft_versions)

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader leads without contact with a majority: 1.5 fetch timeouts."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def update_voter_ms(self) -> int:
        """How often a voter compares its entry with its current settings: 3 fetch timeouts."""
        return self.fetch_timeout_ms * 3
