"""What `ottla cluster quorum` and `cluster features` decide before they ask the controller."""

import pytest

from ottla.cli.commands.cluster_features import BadFeature, changes_of, level_text, parse_levels
from ottla.cli.commands.cluster_quorum import (
    BadVoter,
    directory_to_add,
    replica_rows,
    voter_to_remove,
)
from ottla.client.admin_quorum import DescribedQuorum, FeatureChange, FeatureRange
from ottla.operations.cluster_state import ClusterState
from ottla.protocol.messages.describe_quorum import ReplicaState, ResponsePartitionData
from ottla.protocol.types import Millis, Uuid
from ottla.runtime.ports import Address

NOW = Millis(100_000)
FRESH, SILENT = 99_500, 80_000


def directory(node: int) -> Uuid:
    return Uuid(bytes([node] * 16))


def quorum(
    leader: int, fetched: dict[int, int], observers: tuple[int, ...] = ()
) -> DescribedQuorum:
    def replica(node: int, at: int) -> ReplicaState:
        return ReplicaState(node, directory(node), 50 if node == leader else 48, at, at)

    voters = [replica(node, at) for node, at in fetched.items()]
    others = [replica(node, FRESH) for node in observers]
    state = ResponsePartitionData(leader_id=leader, current_voters=voters, observers=others)
    return DescribedQuorum(state, {1: [Address("h", 9093)]})


def test_voter_is_removed_if_the_others_have_a_majority() -> None:
    healthy = quorum(1, {1: FRESH, 2: FRESH, 3: SILENT})
    assert voter_to_remove(healthy, 3, None, NOW, force=False).replica_directory_id == directory(3)
    assert voter_to_remove(healthy, 3, directory(3), NOW, force=False).replica_id == 3


def test_removal_that_leaves_no_majority_needs_force() -> None:
    lame = quorum(1, {1: FRESH, 2: FRESH, 3: SILENT})
    with pytest.raises(BadVoter, match="without node 2 the quorum would have no majority: 3 did"):
        voter_to_remove(lame, 2, None, NOW, force=False)
    assert voter_to_remove(lame, 2, None, NOW, force=True).replica_id == 2


def test_unknown_and_last_voters_are_not_removed() -> None:
    with pytest.raises(BadVoter, match="the voters are 1, 2"):
        voter_to_remove(quorum(1, {1: FRESH, 2: FRESH}), 9, None, NOW, force=True)
    with pytest.raises(BadVoter, match="no voter with this directory id"):
        voter_to_remove(quorum(1, {1: FRESH, 2: FRESH}), 2, directory(9), NOW, force=True)
    with pytest.raises(BadVoter, match="the only voter"):
        voter_to_remove(quorum(1, {1: FRESH}), 1, None, NOW, force=True)


def test_voters_of_a_quorum_without_a_leader_are_not_changed() -> None:
    lost = quorum(-1, {1: FRESH, 2: -1, 3: -1}, observers=(4,))
    with pytest.raises(BadVoter, match="has no leader"):
        voter_to_remove(lost, 2, None, NOW, force=True)
    with pytest.raises(BadVoter, match="has no leader"):
        directory_to_add(lost, 4)


def test_directory_of_a_controller_to_add_is_that_of_the_observer() -> None:
    running = quorum(1, {1: FRESH}, observers=(4,))
    assert directory_to_add(running, 4) == directory(4)
    with pytest.raises(BadVoter, match="is a voter already"):
        directory_to_add(running, 1)
    with pytest.raises(BadVoter, match="does not follow the metadata log"):
        directory_to_add(running, 5)


def test_replicas_are_described_with_role_and_lag() -> None:
    state = ClusterState(
        cluster_id="c",
        brokers=[],
        topics=[],
        quorum=quorum(2, {1: FRESH, 2: FRESH}, observers=(3,)),
        reached_voters=frozenset({2}),
    )
    rows = replica_rows(state, NOW)
    assert [(row["node"], row["role"], row["lag"], row["reachable"]) for row in rows] == [
        (1, "voter", 2, False),
        (2, "leader", 0, True),
        (3, "observer", 2, None),
    ]
    assert [row["address"] for row in rows] == ["h:9093", None, None]
    assert rows[0]["fetched_ms_ago"] == 500


def test_levels_are_parsed_by_feature_or_release() -> None:
    parsed = parse_levels(["share.version=1", "metadata.version=4.1"], None, FeatureChange.UPGRADE)
    assert parsed == {"share.version": 1, "metadata.version": 27}
    release = parse_levels([], "4.0", FeatureChange.UPGRADE)
    assert release["metadata.version"] == 25 and "share.version" not in release
    assert parse_levels([], "4.0", FeatureChange.SAFE_DOWNGRADE)["share.version"] == 0


@pytest.mark.parametrize(
    ("texts", "release", "reason"),
    [
        (["share.versoin=1"], None, "did you mean 'share.version'"),
        (["share.version=x"], None, "a level is a number"),
        (["share.version=-1"], None, "a level is a number"),
        (["share.version=1", "share.version=0"], None, "given twice"),
        ([], "9.9", "no known release"),
        ([], None, "give --release-version"),
        (["share.version=1"], "4.2", "give --release-version"),
    ],
)
def test_malformed_levels_are_refused(texts: list[str], release: str | None, reason: str) -> None:
    with pytest.raises(BadFeature, match=reason):
        parse_levels(texts, release, FeatureChange.UPGRADE)


def test_only_features_at_another_level_change() -> None:
    features = {"share.version": FeatureRange(0, 1, 1), "group.version": FeatureRange(0, 1, 0)}
    levels = {"share.version": 1, "group.version": 1, "streams.version": 1}
    assert changes_of(levels, features) == {"group.version": (0, 1), "streams.version": (0, 1)}
    assert level_text("metadata.version", 29) == "4.2-IV1"
    assert level_text("metadata.version", 999) == "999"
