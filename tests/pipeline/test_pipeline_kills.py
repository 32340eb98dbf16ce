"""Streams that are killed again and again neither lose nor double a row (short form).

``make kills`` and the tests in `tests/conformance` kill more often, and write Delta and Iceberg.
"""

import sys

import pytest
import stall_check
from kills import CLUSTER, KINDS, LOCAL, Harness
from spark_session import java_missing

from ottla.testing import run_node

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.skipif(java_missing() is not None, reason=str(java_missing())),
]


def check(tmp_path, flow: str, kills: int, order: tuple[str, ...], master: str, seed: int) -> None:
    with run_node(processes=True, directory=tmp_path / "node") as node:
        harness = Harness(node, tmp_path, flow, seed, master=master, journal=print)
        try:
            outcome = harness.run(kills, order)
        finally:
            harness.kill_driver()
    print(f"seed {seed}: {outcome}")
    assert outcome.is_exact, outcome
    assert outcome.kills.total() == kills
    assert outcome.kills.keys() >= {*order}
    assert outcome.produced > 20


def test_table_is_exact_though_worker_broker_and_driver_are_killed(tmp_path):
    check(tmp_path, "parquet", 3, ("worker", "broker", "driver"), LOCAL, 1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flow", ["topic", "parquet"])
def test_stream_is_exact_after_many_kills(tmp_path, flow):
    check(tmp_path, flow, 25, KINDS, CLUSTER, 2)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flow", ["topic", "parquet"])
def test_stream_is_exact_and_does_not_stall_in_an_independent_check(flow):
    assert stall_check.run(flow, 12, 5, sys.executable, stall_check.LIMIT_S, 1800)
