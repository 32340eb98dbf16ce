"""The nodes of a test cluster, and their settings."""

import pytest

from ottla.config.loading import load
from ottla.testing.layout import (
    ClusterPlan,
    NodePlan,
    initial_controllers,
    listeners_of,
    pairs_between,
    settings_text,
    voters_of,
)


def plan(nodes: int, **config: str) -> ClusterPlan:
    voters = voters_of(nodes)
    return ClusterPlan(
        cluster_id="c",
        nodes={
            i: NodePlan(
                i,
                i <= voters,
                {name: 1000 * n + i for n, name in enumerate(listeners_of(i, voters), 20)},
            )
            for i in range(1, nodes + 1)
        },
        config={key.replace("_", "."): value for key, value in config.items()},
    )


@pytest.mark.parametrize(("nodes", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (16, 3)])
def test_number_of_voters_is_odd(nodes: int, voters: int) -> None:
    assert voters_of(nodes) == voters
    assert len(plan(nodes).controllers) == voters


def test_settings_of_every_node_are_valid_and_distinct() -> None:
    four = plan(4)
    loaded = {
        i: load(settings_text(four, node, f"/d/{i}")).broker for i, node in four.nodes.items()
    }
    assert [each.node_id for each in loaded.values()] == [1, 2, 3, 4]
    assert [sorted(each.process_roles) for each in loaded.values()] == [
        *[["broker", "controller"]] * 3,
        ["broker"],
    ]
    assert list(loaded[4].controller_quorum_bootstrap_servers) == [
        "127.0.0.1:21001",
        "127.0.0.1:21002",
        "127.0.0.1:21003",
    ]
    assert {each.default_replication_factor for each in loaded.values()} == {3}


def test_single_node_keeps_one_replica() -> None:
    one = plan(1)
    broker = load(settings_text(one, one.nodes[1], "/d")).broker
    assert broker.default_replication_factor == 1
    assert broker.offsets_topic_replication_factor == 1
    assert broker.transaction_state_log_min_isr == 1


def test_settings_of_the_caller_win() -> None:
    one = plan(1, broker_session_timeout_ms="4321", log_dirs="/other")
    broker = load(settings_text(one, one.nodes[1], "/d")).broker
    assert broker.broker_session_timeout_ms == 4321
    assert list(broker.log_dirs) == ["/other"]


def test_value_with_newline_and_backslash_is_escaped() -> None:
    one = plan(1, log_dirs="/a\\b\nnode.id=7")
    broker = load(settings_text(one, one.nodes[1], "/d")).broker
    assert broker.node_id == 1
    assert list(broker.log_dirs) == ["/a\\b\nnode.id=7"]


def test_first_nodes_are_the_voters() -> None:
    text = initial_controllers(plan(4), {1: "a", 2: "b", 3: "c"})
    assert text == "1@127.0.0.1:21001:a,2@127.0.0.1:21002:b,3@127.0.0.1:21003:c"


def test_cut_closes_both_directions_by_default() -> None:
    assert pairs_between([1], [2, 3]) == [(1, 2), (1, 3), (2, 1), (3, 1)]
    assert pairs_between([1], [2, 3], is_one_way=True) == [(1, 2), (1, 3)]
    with pytest.raises(ValueError, match=r"\[2\] cannot be cut off from themselves"):
        pairs_between([1, 2], [2, 3])
