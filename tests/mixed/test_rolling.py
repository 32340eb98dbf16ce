"""A cluster rolls from Apache Kafka to Ottla and back, in place and under load."""

from pathlib import Path

import pytest
from tests.mixed.cluster import run_mixed
from tests.mixed.kinds import KAFKA, OTTLA, need
from tests.mixed.rolling import roll, there_and_back

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]


@pytest.mark.parametrize("count", [3, 5])
def test_nodes_roll_from_kafka_to_ottla_and_back_without_losing_a_record(
    count: int, tmp_path: Path
) -> None:
    need()
    nodes = range(1, count + 1)
    with run_mixed(dict.fromkeys(nodes, KAFKA), tmp_path) as cluster:
        outcome = roll(cluster, list(there_and_back(nodes, OTTLA, KAFKA)), tmp_path)
        assert outcome.is_good, str(outcome)
        assert outcome.acknowledged > 1000 and outcome.seen >= outcome.acknowledged
        assert set(cluster.kinds.values()) == {KAFKA}
        assert cluster.killed == {KAFKA: count // 2, OTTLA: (count + 1) // 2}
        print(outcome)
