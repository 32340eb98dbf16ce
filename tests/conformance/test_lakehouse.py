"""Tables in Delta and Iceberg, in environments with a Spark that they are built for.

Each environment has what an extra of ottla installs; Spark downloads the jars itself.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from spark_environments import python_of, requirements_of

from ottla.testing import run_node

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
TOPICS = (
    "append",
    "evolve",
    "evolve-dead",
    "compaction",
    "upsert",
    "latest",
    "debezium",
    "writers",
    "writers-2",
    "lost",
    "old",
    "mode",
)
COMBINATIONS = {
    # name -> format, extra whose newest Spark is used
    "delta on Spark 4.2": ("delta", "delta"),
    "delta on Spark 4.1": ("delta", "iceberg"),
    "iceberg on Spark 4.1": ("iceberg", "iceberg"),
}


@pytest.fixture(scope="module", params=COMBINATIONS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the driver found out with one combination: part -> result."""
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    format, extra = COMBINATIONS[request.param]
    python = python_of(extra, requirements_of(extra))
    place = tmp_path_factory.mktemp(format)
    with run_node(processes=True, directory=place / "node") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for created in admin.create_topics([NewTopic(each, 2, 1) for each in TOPICS]).values():
            created.result(60)
        command = [str(python), str(HERE / "lakehouse_driver.py"), format]
        command += [node.bootstrap, str(place)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, f"{done.stderr[-6000:]}\n{results}"
    return {each["part"]: each["found"] for each in results}


def test_append_writes_every_row_once_after_replays_into_its_partition(found):
    assert found["append"] == sorted(
        ([each, each % 2] for each in range(40)), key=lambda row: [str(cell) for cell in row]
    )


def test_time_travel_reads_every_version(found):
    versions = found["time_travel"]
    assert versions[-1] == 40
    assert 30 in versions
    assert versions == sorted(versions)


def test_new_columns_are_added_and_misfits_stop_the_job_or_become_dead_letters(found):
    rows = [[1, 0.5, None], [2, 1.0, "two"], [3, 1.5, None], [4, 4.5, None]]
    assert found["evolve"] == {
        "rows": rows,
        "stopped": True,
        "letters": ['{"id": 5, "amount": "x"}'],
    }


def test_maintenance_merges_files_and_a_replay_after_it_doubles_nothing(found):
    assert found["compaction"]["before"] == 4
    assert found["compaction"]["after"] < 4
    assert found["compaction"]["rows"] == [[each] for each in range(5)]


def test_upsert_keeps_the_newest_record_of_a_key_and_tombstones_delete(found):
    assert found["upsert"]["first"] == [[1, 0.5], [2, 7.0]]
    assert found["upsert"]["second"] == [[2, 8.0], [3, 9.0]]


def test_latest_is_the_state_of_a_compacted_topic(found):
    assert found["latest"] == [["a", "2"], ["c", "1"]]


def test_debezium_events_lead_to_the_rows_of_the_database(found):
    assert found["debezium"] == [[1, 1.5], [3, 3.0]]


def test_two_queries_on_one_table_are_kept_apart(found):
    assert found["writers"] == [[each] for each in range(10)]


def test_lost_checkpoint_overwrites_nothing(found):
    assert found["lost_checkpoint"] == [[each] for each in range(10)]


def test_old_copy_of_a_checkpoint_is_rejected(found):
    assert found["old_copy"] == {
        "refused": True,
        "rows": [[each] for each in range(10)],
        "then": sorted(([each] for each in range(15)), key=lambda row: str(row[0])),
    }


def test_changed_mode_before_a_replay_is_rejected(found):
    assert found["changed_mode"] == {"refused": True, "rows": [[each] for each in range(5)]}
