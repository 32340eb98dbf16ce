"""One file of one replica of three real processes is damaged in any way; nothing is lost."""

import os
from pathlib import Path

import pytest
from file_damage import CONFIG, FILES, DamageRun, Trial, all_trials

from ottla.testing import run_cluster

SEED = int(os.environ.get("SEED", "0"))
# Each of them was lost, hung or served wrongly before; all kinds and all states of the node.
SELECTED = (
    Trial("sealed .log", "swap", "stopped"),
    Trial("sealed .txnindex", "empty", "running"),
    Trial("log-start-offset-checkpoint", "garbage", "killed"),
    Trial("active .log", "cut", "killed"),
    Trial("sealed .index", "cut", "running"),
    Trial("segment-inventory", "stale", "stopped"),
    Trial("first .log", "remove", "stopped"),
    Trial("leader-epoch-checkpoint", "flip", "killed"),
)


def run(directory: Path, trials: list[Trial]) -> None:
    with run_cluster(3, processes=True, config=CONFIG, directory=directory) as cluster:
        damages = DamageRun(cluster, SEED)
        damages.run(trials)
    assert sorted(map(str, damages.done)) == sorted(map(str, trials))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_replicas_are_equal_and_hold_what_was_acknowledged_after_damage(tmp_path: Path) -> None:
    run(tmp_path, list(SELECTED))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("file", FILES)
def test_replicas_are_equal_after_any_damage_of_a_file(tmp_path: Path, file: str) -> None:
    run(tmp_path, list(all_trials((file,))))
