"""Simulations of clusters whose followers append every batch as soon as it arrives.

Simulated clients write less than a follower would append on its own, so here the threshold is zero.
All invariants of `test_cluster_simulation.py` hold.
"""

import logging
from collections.abc import Iterator

import pytest
from tests.seeds import seeds

from ottla.client import connection
from ottla.replication.fetching import fetch_append, partial_fetch
from ottla.replication.fetching.partial_fetch import PartialFetchResponse
from ottla.server import send_queue
from simulation.runner import play

SEEDS = seeds(3, deep=6)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes that are appended before the fetch response is complete."""
    logging.disable(logging.CRITICAL)
    monkeypatch.setattr(
        fetch_append, "PartialFetchResponse", lambda version: PartialFetchResponse(version, 1)
    )
    monkeypatch.setattr(partial_fetch, "_BETWEEN_BYTES_MAX", 100)
    monkeypatch.setattr(connection, "_HEADER_BYTES_MAX", 24)
    # Small replies are sent at once, and arrive at once; here each part is sent on its own.
    monkeypatch.setattr(send_queue, "READ_BYTES_MAX", 0)
    found: list[int] = []
    next_part = PartialFetchResponse.next

    def noted(self: PartialFetchResponse, body: memoryview) -> partial_fetch.Part | None:
        part = next_part(self, body)
        if part is not None:
            found.append(len(part.batches))
        return part

    monkeypatch.setattr(PartialFetchResponse, "next", noted)
    yield found
    logging.disable(logging.NOTSET)


def test_invariants_hold_when_followers_append_each_batch_on_arrival(early: list[int]) -> None:
    for seed in SEEDS:
        outcome = play("cluster", seed)
        if outcome.error is not None:
            raise AssertionError(outcome.describe()) from outcome.error
    assert len(early) > 80 * len(SEEDS)
