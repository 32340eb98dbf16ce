"""What `ottla top` shows of two looks at a cluster."""

from ottla.cli.commands.top_view import Seen, view
from ottla.protocol.types import TopicPartition

HOT, COLD, NEW = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def seen(at: float, hot: int, committed: int) -> Seen:
    return Seen(
        at,
        {HOT: hot, COLD: 5, NEW: 7} if at else {HOT: hot, COLD: 5},
        {HOT: 1, COLD: 2, NEW: -1},
        {HOT: (2, 3), COLD: (3, 3), NEW: (0, 1)},
        {("slow", "a", 0): (committed, hot), ("idle", "a", 1): (5, 5)},
        (3,),
    )


def test_rates_lag_and_replicas_are_those_between_two_looks() -> None:
    found = view(seen(2.0, 300, 150), seen(0.0, 100, 50))
    assert found["records_per_s"] == 100 and found["partitions"] == 3
    assert found["without_leader"] == 1 and found["under_replicated"] == 2
    assert found["fenced_brokers"] == [3]
    assert found["brokers"] == [
        {"broker": 1, "leads": 1, "records/s": 100.0},
        {"broker": 2, "leads": 1, "records/s": 0.0},
    ]
    hot = {"topic": "a", "partition": 0, "records/s": 100.0, "leader": 1, "in_sync": "2/3"}
    assert found["hot_partitions"] == [hot]
    assert found["groups"] == [
        {"group": "slow", "lag": 150, "read/s": 50.0},
        {"group": "idle", "lag": 0, "read/s": 0.0},
    ]


def test_first_look_has_no_rates() -> None:
    found = view(seen(2.0, 300, 150), None)
    assert found["records_per_s"] is None and found["hot_partitions"] == []
    assert [each["read/s"] for each in found["groups"]] == [None, None]  # type: ignore[union-attr,index,call-overload]


def test_only_the_wanted_rows_are_shown() -> None:
    found = view(seen(2.0, 300, 150), seen(0.0, 100, 50), rows=1)
    assert [each["group"] for each in found["groups"]] == ["slow"]  # type: ignore[union-attr,index,call-overload]


def test_deleted_and_recreated_topic_has_no_negative_rate() -> None:
    assert view(seen(2.0, 0, 0), seen(0.0, 100, 0))["records_per_s"] == 0
