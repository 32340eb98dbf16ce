"""A mirror that is killed again and again while the source is written copies exactly once."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.mirror_processes import (
    PLAIN,
    SECONDS_MAX,
    TXNS,
    Load,
    assert_equal,
    contents,
    create_topics,
    kill_repeatedly,
)
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster, run_node

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

KILLS = 12


def client(cluster: Cluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap, **cluster.access.client_config}


def properties(cluster: Cluster, path: Path) -> str:
    java: Mapping[str, str] = {
        "bootstrap.servers": cluster.bootstrap,
        **cluster.access.java_config,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in java.items()))
    return str(path)


@pytest.mark.parametrize("security", ["plaintext", "sasl_ssl"])
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_mirror_copies_every_record_once(tmp_path: Path, security: str, seed: int) -> None:
    with (
        run_node(directory=tmp_path / "source", security=security) as one,
        run_node(directory=tmp_path / "target", security=security) as other,
    ):
        source, target = client(one), client(other)
        files = ["--from", properties(one, tmp_path / "from.properties")]
        files += ["--to", properties(other, tmp_path / "to.properties")]
        create_topics(source)
        load = Load(source, seed)
        try:
            run = ["run", *files, "--refresh", "0.5"]
            kill_repeatedly(run, tmp_path, target, KILLS, seed)
        finally:
            written = load.stop()
        reader = Consumer({**source, "group.id": "readers"})
        middle = contents(source, TXNS, 0, committed=True)[7]
        wanted = [TopicPartition(PLAIN, 1, 50), TopicPartition(TXNS, 0, middle[0])]
        reader.commit(offsets=wanted, asynchronous=False)
        reader.close()
        done = CliRunner().invoke(app, ["mirror", "switch-over", *files, "--quiet", "0.5"])
        assert done.exit_code == 0, done.output
        assert_equal(source, target, written)
        moved = Consumer({**target, "group.id": "readers"})
        try:
            found = moved.committed(
                [TopicPartition(PLAIN, 1), TopicPartition(TXNS, 0)], SECONDS_MAX
            )
        finally:
            moved.close()
        assert [each.offset for each in found] == [50, 7]
