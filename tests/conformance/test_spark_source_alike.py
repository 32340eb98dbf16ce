"""The same options give the same rows as from Spark's own Kafka source, column by column."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import run_node

pytestmark = pytest.mark.jvm

DRIVER = Path(__file__).parent / "spark_source_driver.py"
MINUTE = 60_000


def fill(bootstrap: str, base: int) -> None:
    """Two topics of ten records, a second apart, and one written in transactions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic("plain", 2, 1), NewTopic("plainer", 1, 1), NewTopic("transacted", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in range(10):
        stamp = base + number * 1000
        headers = [("h", b"%d" % number), ("none", None)] if number % 3 else None
        key = f"k{number}" if number % 2 else None
        value = f"v{number}" if number != 4 else None
        producer.produce("plain", value, key, number % 2, timestamp=stamp, headers=headers)
        producer.produce("plainer", f"p{number}", timestamp=stamp)
    assert producer.flush(60) == 0
    transacting = Producer({"bootstrap.servers": bootstrap, "transactional.id": "spark"})
    transacting.init_transactions(60)
    for value, is_kept in (("kept", True), ("void", False), ("also", True)):
        transacting.begin_transaction()
        transacting.produce("transacted", value)
        transacting.flush(60)
        (transacting.commit_transaction if is_kept else transacting.abort_transaction)(60)


def cases(base: int) -> dict[str, dict[str, str]]:
    plain = {"subscribe": "plain"}
    committed = {"subscribe": "transacted", "kafka.isolation.level": "read_committed"}
    times = {"0": base + 2000, "1": base + 5000}
    return {
        "subscribe": {"subscribe": "plain,plainer"},
        "pattern": {"subscribePattern": "plain.*"},
        "assign": {"assign": '{"plain": [1], "plainer": [0]}'},
        "headers": plain | {"includeHeaders": "true"},
        "offsets": plain
        | {
            "startingOffsets": '{"plain": {"0": 2, "1": -2}}',
            "endingOffsets": '{"plain": {"0": 4, "1": -1}}',
        },
        "timestamp": {
            "subscribePattern": "plain.*",
            "startingTimestamp": str(base + 2500),
            "endingTimestamp": str(base + 7000),
        },
        "timestamps": plain
        | {
            "startingOffsetsByTimestamp": json.dumps({"plain": times}),
            "endingTimestamp": str(base + 10 * MINUTE),
        },
        "no match": plain
        | {
            "startingTimestamp": str(base + 10 * MINUTE),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "committed": committed,
        "uncommitted": committed | {"kafka.isolation.level": "read_uncommitted"},
        "pieces": plain | {"minPartitions": "5", "maxRecordsPerPartition": "2"},
    }


def test_equal_options_give_equal_rows(tmp_path: Path) -> None:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed; Spark's connector cannot be fetched or run")
    base = int(time.time()) * 1000 - MINUTE
    (tmp_path / "cases.json").write_text(json.dumps(cases(base)))
    with run_node(processes=True, directory=tmp_path / "node") as node:
        fill(node.bootstrap, base)
        command = [sys.executable, str(DRIVER), node.bootstrap, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = [json.loads(line.removeprefix("FOUND ")) for line in lines]
    assert [name for name, _, _ in found] == list(cases(base)), done.stderr[-3000:]
    assert [name for name, is_alike, _ in found if not is_alike] == [], done.stderr[-3000:]
    counts = {name: count for name, _, count in found}
    assert (counts["subscribe"], counts["offsets"], counts["no match"]) == (20, 7, 0)
    assert (counts["committed"], counts["uncommitted"]) == (2, 3)
