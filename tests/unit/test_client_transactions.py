"""Hanging transactions: open in a partition and unknown to every coordinator."""

import pytest

from ottla.client.admin_transactions import OpenTransaction, hanging
from ottla.protocol.types import TopicPartition

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def open_(producer_id: int = 7, last_timestamp: int = 100) -> OpenTransaction:
    return OpenTransaction(PLACE, producer_id, 0, -1, 40, last_timestamp)


@pytest.mark.parametrize(
    ("known", "last_timestamp", "is_hanging"),
    [
        ({}, 100, True),
        ({7: {OTHER}}, 100, True),
        ({8: {PLACE}}, 100, True),
        ({7: {PLACE, OTHER}}, 100, False),
        ({}, 500, False),
        ({}, 499, True),
    ],
)
def test_transaction_unknown_to_the_coordinator_is_reported_hanging(
    known: dict[int, set[TopicPartition]], last_timestamp: int, is_hanging: bool
) -> None:
    found = open_(last_timestamp=last_timestamp)
    assert hanging([found], known, before=500) == ([found] if is_hanging else [])
