"""kill -9 under load, again and again: acknowledged records survive, once and in order.

``flush.messages=1`` makes every acknowledgement wait for fsync, which is the guarantee across a
power loss. Here the process crashes, not the machine, so the test covers that recovery keeps a
prefix with everything acknowledged, and that producers continue with their sequences.

    CRASHES=50 python -m pytest tests/faults/test_crashes.py      (or `make crash`)
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from loaded import Load, acknowledged, run_load, violations
from tests.patience import SECONDS_MAX

from ottla.testing import Cluster, run_node

CRASHES = int(os.environ.get("CRASHES", "6"))
LIFE_S_MAX = 0.8
# Small segments, so that crashes also happen while a segment rolls.
SETTINGS = {"segment.bytes": str(1 << 20)}
# A restarted broker is served as soon as its old session has expired.
SESSION = {"broker.session.timeout.ms": 400, "broker.heartbeat.interval.ms": 100}


def make_topic(cluster: Cluster, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for each in admin.create_topics([NewTopic("load", 1, 1, config=settings)]).values():
        each.result(SECONDS_MAX)


def let_live(load: Load, rng: random.Random) -> None:
    """Run for a random moment, which decides where the crash happens."""
    assert load.is_running, load.said.read_text()
    time.sleep(rng.uniform(0.05, LIFE_S_MAX))


@pytest.mark.slow
@pytest.mark.timeout(600 + 12 * CRASHES)
@pytest.mark.parametrize("flush", ["1", "9223372036854775807"], ids=["fsynced", "unflushed"])
def test_acknowledged_records_survive_kill_under_load(tmp_path: Path, flush: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    rng = random.Random(seed)
    deaths = CRASHES if flush == "1" else max(2, CRASHES // 5)
    with run_node(processes=True, directory=tmp_path / "node", config=SESSION) as cluster:
        make_topic(cluster, **{"flush.messages": flush, **SETTINGS})
        with run_load(cluster.bootstrap, tmp_path, rate=1500) as load:
            load.wait_ready()
            for _ in range(deaths):
                let_live(load, rng)
                cluster.kill(1)
                cluster.start(1)
            let_live(load, rng)
            events = load.finish()
        assert violations(events) == "", f"seed {seed}"
        assert acknowledged(events) > 20 * deaths
        cluster.stop(1)
    assert "Traceback" not in cluster.output(1)


@pytest.mark.slow
def test_sigterm_and_sigstop_under_load_lose_nothing(tmp_path: Path) -> None:
    """Rows 72 and 74: SIGTERM ends the node with code 0, and SIGSTOP only delays clients."""
    rng = random.Random(74)
    with run_node(processes=True, directory=tmp_path / "node", config=SESSION) as cluster:
        make_topic(cluster, **SETTINGS)
        with run_load(cluster.bootstrap, tmp_path, rate=1500) as load:
            load.wait_ready()
            for _ in range(2):
                let_live(load, rng)
                cluster.stop(1)  # raises when the exit code differs
                cluster.start(1)
                let_live(load, rng)
                cluster.pause(1)
                time.sleep(2 * SESSION["broker.session.timeout.ms"] / 1000)
                cluster.resume(1)
            let_live(load, rng)
            events = load.finish()
        assert violations(events) == ""
        assert acknowledged(events) > 100
    assert "Traceback" not in cluster.output(1)
