"""Streams into Delta and Iceberg on two executors that are killed again and again.

``KILLS=100`` kills as often as that; ``SEED=7`` chooses others.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from spark_environments import ROOT, python_of, requirements_of

from ottla.testing import run_node

sys.path.insert(0, str(ROOT / "tests" / "pipeline"))
from kills import KINDS, Harness

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("SEED", "3"))


@pytest.mark.parametrize("flow", ["delta", "iceberg"])
def test_table_is_exact_after_many_kills(tmp_path: Path, flow: str) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    python = python_of(flow, requirements_of(flow))
    with run_node(processes=True, directory=tmp_path / "node") as node:
        harness = Harness(node, tmp_path, flow, SEED, python=str(python), journal=print)
        try:
            outcome = harness.run(KILLS, KINDS)  # each kind once, then at random
        finally:
            harness.kill_driver()
    print(f"seed {SEED}: {outcome}")
    assert outcome.is_exact, outcome
    assert outcome.kills.total() >= KILLS
