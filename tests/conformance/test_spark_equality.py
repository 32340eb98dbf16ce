"""Every row of mixed topics is equal to that of Spark's own Kafka source, from both brokers.

``ROWS=5000000`` writes as many records (default 50000).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mixed_topics import BROKER_CONFIG, fill_mixed

from ottla.testing import run_node
from ottla.testing.apache_kafka import NoApacheKafka, run_apache_kafka

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(7200)]

DRIVER = Path(__file__).parent / "spark_equality_driver.py"
ROWS = int(os.environ.get("ROWS", "50000"))
CASES = ["batch committed", "batch uncommitted", "stream committed"]


@contextmanager
def run_broker(name: str, place: Path) -> Iterator[str]:
    if name == "ottla":
        with run_node(processes=True, directory=place, config=BROKER_CONFIG) as node:
            yield node.bootstrap
        return
    try:
        with run_apache_kafka(directory=place, config=BROKER_CONFIG) as kafka:
            yield kafka.bootstrap
    except NoApacheKafka as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("broker", ["ottla", "apache kafka"])
def test_rows_of_mixed_topics_are_equal_in_batches_and_streams(tmp_path: Path, broker: str) -> None:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; Spark's connector cannot be fetched or run")
    with run_broker(broker, tmp_path / "node") as bootstrap:
        mixed = fill_mixed(bootstrap, ROWS)
        command = [sys.executable, str(DRIVER), bootstrap, str(tmp_path), str(mixed.written)]
        with (tmp_path / "found").open("w") as out, (tmp_path / "log").open("w") as log:
            subprocess.run(command, stdout=out, stderr=log, timeout=7000, check=False)
    found_text = (tmp_path / "found").read_text()
    lines = [line for line in found_text.splitlines() if line.startswith("FOUND ")]
    print(broker, mixed, *lines, sep="\n")
    found = {each["case"]: each for each in (json.loads(line[6:]) for line in lines)}
    assert list(found) == CASES, (tmp_path / "log").read_text()[-3000:]
    for each in found.values():
        assert each["different"] == 0, each
        rows = each["rows"]
        assert (rows["mixed"], rows["expired"]) == (mixed.rows["mixed"], mixed.rows["expired"])
        assert 0 < rows["compacted"] < mixed.rows["compacted"]
        is_committed = not each["case"].endswith("uncommitted")
        assert (rows["transacted"] == mixed.rows["transacted"]) == is_committed
    committed, uncommitted = (
        found[f"batch {each}"]["rows"] for each in ("committed", "uncommitted")
    )
    assert committed["transacted"] < uncommitted["transacted"]
