"""Read, wait or look: what a fetch does about one partition."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api.fetch.decision import LOOK, READ, WAIT, LastRead, Way, decide
from ottla.api.fetch.partitions import FetchedPartition
from ottla.replication.partition_reads import Isolation

IMAGE: Any = object()


def partition_of(**changes: Any) -> Any:
    """A leader whose log has offsets 3 to 9, committed below 7."""
    log = SimpleNamespace(log_start_offset=3, log_end_offset=9, high_watermark=7)
    partition = SimpleNamespace(log=log, leader_epoch=4, is_closed=False, offline=None)
    ends = {Isolation.LOG_END: "log_end_offset", Isolation.HIGH_WATERMARK: "high_watermark"}
    partition.readable_end = lambda isolation: getattr(log, ends[isolation])
    for name, value in changes.items():
        setattr(log if hasattr(log, name) else partition, name, value)
    return partition


def fetched_at(offset: int) -> FetchedPartition:
    return FetchedPartition("orders", cast("Any", SimpleNamespace(partition=0, offset=offset)))


def decided(offset: int, isolation: Isolation, **changes: Any) -> Way:
    """The decision after the partition was read at ``offset`` and then changed."""
    fetched, partition = fetched_at(offset), partition_of()
    last = LastRead(fetched, partition, IMAGE, 4, cast("Any", None))
    for name, value in changes.items():
        setattr(partition.log if hasattr(partition.log, name) else partition, name, value)
    return decide(fetched, partition, isolation, last, IMAGE)


@pytest.mark.parametrize(
    ("offset", "isolation", "way"),
    [
        (6, Isolation.HIGH_WATERMARK, READ),
        (7, Isolation.HIGH_WATERMARK, WAIT),
        (8, Isolation.HIGH_WATERMARK, WAIT),
        (8, Isolation.LOG_END, READ),
        (9, Isolation.LOG_END, WAIT),
        (10, Isolation.LOG_END, LOOK),
    ],
)
def test_records_below_the_readable_end_are_read(
    offset: int, isolation: Isolation, way: Way
) -> None:
    assert decided(offset, isolation) is way


@pytest.mark.parametrize(
    "change",
    [{"leader_epoch": 5}, {"is_closed": True}, {"offline": "disk"}, {"log_start_offset": 8}],
)
def test_changed_partition_is_looked_at(change: dict[str, Any]) -> None:
    assert decided(7, Isolation.HIGH_WATERMARK, **change) is LOOK


def test_partition_without_a_last_read_under_this_image_is_looked_at() -> None:
    fetched, partition = fetched_at(7), partition_of()
    last = LastRead(fetched, partition, IMAGE, 4, cast("Any", None))
    at_end = Isolation.HIGH_WATERMARK
    assert decide(fetched, partition, at_end, None, IMAGE) is LOOK
    assert decide(fetched, partition, at_end, last, cast("Any", object())) is LOOK
    assert decide(fetched_at(7), partition, at_end, last, IMAGE) is LOOK
