"""What a replica is told once: who it is, and how long it waits. Times are milliseconds."""

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
    # Where to ask for a leader when none is known, beside the voters in the log.
    bootstrap: tuple[Endpoint, ...] = ()
    listener: str = "CONTROLLER"
    kraft_versions: VersionRange = ALL_KRAFT_VERSIONS
    # A broker's observer need not flush each append: it is never counted.
    may_become_voter: bool = True
    # It lost records that it had acknowledged: no votes before it has caught up with a leader.
    is_rejoining: bool = False

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    election_backoff_ms_max: int = 1000
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 8 * 1024 * 1024
    # How far behind a would-be voter may be. Kafka asks only for one full catch-up within the
    # last hour; a voter that lags would hold the high watermark back at once.
    observer_lag_records_max: int = 1000

    def __post_init__(self) -> None:
        assert any(self.directory_id), "a replica knows its own directory"
        for name in ("election_timeout_ms", "fetch_timeout_ms", "request_timeout_ms"):
            assert getattr(self, name) > 0, f"{name} is positive"

    @property
    def key(self) -> ReplicaKey:
        """This replica's key."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def voter(self) -> Voter:
        """This replica as a voter record should have it."""
        return Voter(self.key, self.endpoints, self.kraft_versions)

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader leads without hearing from a majority: 1.5 fetch timeouts."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def update_voter_ms(self) -> int:
        """How often a voter compares its own entry with what it is: 3 fetch timeouts."""
        return self.fetch_timeout_ms * 3
