"""The options of `ottla up`: which of the given, kept and default ones count."""

import pytest

from ottla.cli.up.options import GivenOptions, UpOptions, describe_options, merge_options
from ottla.cli.up.plan import BadPlan, plan_nodes, settings_of
from ottla.config.properties import from_text

KEPT = UpOptions(
    nodes=3,
    port=19092,
    host="0.0.0.0",
    advertised_host="box",
    is_secure=True,
    settings={"num.partitions": "4", "log.retention.hours": "5"},
)


def merged(given: GivenOptions, kept: UpOptions | None = None) -> UpOptions:
    return merge_options(given, kept, "/data", "machine")


def test_new_cluster_gets_the_defaults() -> None:
    assert merged(GivenOptions()) == UpOptions()


def test_kept_options_count_until_others_are_given() -> None:
    assert merged(GivenOptions(), KEPT) == KEPT
    found = merged(
        GivenOptions(port=9, settings={"num.partitions": "", "min.insync.replicas": "1"}), KEPT
    )
    assert (found.port, found.nodes, found.advertised_host) == (9, 3, "box")
    assert found.settings == {"log.retention.hours": "5", "min.insync.replicas": "1"}


@pytest.mark.parametrize(
    ("host", "advertised", "told"),
    [
        (None, None, "127.0.0.1"),
        ("0.0.0.0", None, "machine"),
        ("10.0.0.7", None, "10.0.0.7"),
        ("0.0.0.0", "box.example", "box.example"),
        (None, "box.example", "box.example"),
    ],
)
def test_advertised_host_can_be_reached_by_clients(
    host: str | None, advertised: str | None, told: str
) -> None:
    assert merged(GivenOptions(host=host, advertised_host=advertised)).advertised_host == told


def test_new_bind_host_drops_the_kept_advertised_one() -> None:
    assert merged(GivenOptions(host="127.0.0.1"), KEPT).advertised_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (GivenOptions(nodes=2), "contains a cluster of 3"),
        (GivenOptions(settings={"node.id": "1"}), "is set by `ottla up`"),
        (GivenOptions(settings={"num.partitons": "1"}), "did you mean num.partitions?"),
    ],
)
def test_impossible_options_are_refused(given: GivenOptions, says: str) -> None:
    with pytest.raises(BadPlan, match=says.replace("?", "\\?")):
        merged(given, KEPT)
    if given.nodes is None:
        with pytest.raises(BadPlan, match="without security"):
            merged(GivenOptions(is_secure=True), UpOptions(nodes=1))


def test_keys_that_a_node_knows_outside_its_table_are_accepted() -> None:
    settings = {
        "super.users": "User:alice",
        "rsm.config.directory": "/tier",
        "listener.name.plaintext.max.connections": "10",
    }
    assert merged(GivenOptions(settings=settings)).settings == settings


def test_settings_of_the_user_count_more_than_planned_ones() -> None:
    nodes = plan_nodes(3, 9092, "/data", lambda port: True, ("0.0.0.0", "box"))
    text = settings_of(nodes[1], nodes, None, {"min.insync.replicas": "1"})
    found = {each.key: each.value for each in from_text(text)}
    assert found["min.insync.replicas"] == "1"
    assert found["listeners"].startswith("PLAINTEXT://0.0.0.0:9093,CONTROLLER://127.0.0.1:")
    assert found["advertised.listeners"] == "PLAINTEXT://box:9093"


def test_options_are_described_as_they_are_given() -> None:
    assert describe_options(UpOptions()) == []
    assert describe_options(KEPT) == [
        "--host 0.0.0.0",
        "--advertised-host box",
        "--secure",
        "-c num.partitions=4",
        "-c log.retention.hours=5",
    ]
