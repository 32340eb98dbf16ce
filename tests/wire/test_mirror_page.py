"""The walk through "Mirror" of docs/migration.md works as written, also with a kill on the way."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.mirror_processes import SECONDS_MAX, MirrorProcess, contents, end_of, wait_until
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.testing import Cluster, run_node

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# More often than the page says, for a quick test.
OFTEN = ["--refresh", "0.3"]
pytestmark = [pytest.mark.xdist_group("mirror")]


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Cluster]]:
    monkeypatch.chdir(tmp_path)
    with (
        run_node(directory=tmp_path / "source", config=QUICK) as source,
        run_node(directory=tmp_path / "target", config=QUICK) as target,
    ):
        yield source, target


def blocks(language: str) -> list[str]:
    """Return the blocks of a language in the section about the mirror."""
    section = PAGE.read_text().partition("\n## Mirror\n")[2]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


def write_properties(source: Cluster, target: Cluster) -> None:
    (example,) = blocks("properties")
    for name, cluster in (("from", source), ("to", target)):
        address = f"bootstrap.servers={cluster.bootstrap}"
        Path(f"{name}.properties").write_text(
            re.sub(r"^bootstrap\.servers=.*$", address, example, flags=re.M)
        )


def arguments(block: str) -> list[str]:
    program, command, *rest = shlex.split(block)
    assert (program, command) == ("ottla", "mirror")
    return rest


def invoke(block: str, *more: str) -> Result:
    return CliRunner().invoke(app, ["mirror", *arguments(block), *more])


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "1"})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def prepare(source: Cluster) -> None:
    config = {"bootstrap.servers": source.bootstrap}
    names = ("orders", "payments.eu", "other")
    topics = [NewTopic(name, 1, 1) for name in names]
    admin = AdminClient(config)
    for future in admin.create_topics(topics).values():
        future.result(SECONDS_MAX)
    for name in names:
        produce(source.bootstrap, name, range(200))
    reader = Consumer({**config, "group.id": "readers"})
    reader.commit(offsets=[TopicPartition("orders", 0, 60)], asynchronous=False)
    reader.close()


def rows_of(status: Result) -> dict[str, tuple[object, ...]]:
    assert status.exit_code == 0, status.output
    return {
        row["partition"]: (row["position"], row["lag"], row["offsets"])
        for row in json.loads(status.stdout)
    }


def test_mirror_is_killed_run_again_and_switched_over_as_the_page_says(
    nodes: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    source, target = nodes
    run, status, switch_over = blocks("sh")
    write_properties(source, target)
    missing = invoke(status)
    assert (missing.exit_code, "no mirror" in missing.stderr) == (1, True)
    prepare(source)
    config = {"bootstrap.servers": target.bootstrap}
    log = tmp_path / "mirror.log"
    first = MirrorProcess([*arguments(run), *OFTEN], log)
    try:
        wait_until(lambda: end_of(config, "orders") > 0, "the first records")
        first.kill()
    finally:
        first.discard()
    produce(source.bootstrap, "orders", range(200, 400))
    second = MirrorProcess([*arguments(run), *OFTEN], log)
    try:
        # The mirror reports what it has done, and `status` where it is.
        wait_until(lambda: end_of(config, "orders") >= 400, "the rest")
        wait_until(lambda: "lag 0" in log.read_text(), "its report")
        found = rows_of(invoke(status, "--sample", "0", "-o", "json"))
        assert found["orders-0"] == (400, 0, "preserved") and len(found) == 2
        produce(source.bootstrap, "payments.eu", range(200, 300))
        done = invoke(switch_over, "--quiet", "0.2")
        assert done.exit_code == 0 and "switched over" in done.stderr, done.output
        assert second.wait() == 1 and "another process" in log.read_text()
    finally:
        second.discard()
    theirs = {"bootstrap.servers": source.bootstrap}
    for topic in ("orders", "payments.eu"):
        assert contents(config, topic, 0, committed=False) == contents(
            theirs, topic, 0, committed=True
        )
    assert "other" not in AdminClient(config).list_topics(timeout=SECONDS_MAX).topics
    go_on(config)
    repeat(run, status, switch_over, source)


def go_on(config: dict[str, str]) -> None:
    """Check that a consumer and a producer go on in the target."""
    consumer = Consumer({**config, "group.id": "readers", "auto.offset.reset": "error"})
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.error() is None and message.offset() == 60
    finally:
        consumer.close()
    produce(config["bootstrap.servers"], "orders", range(50))


def repeat(run: str, status: str, switch_over: str, source: Cluster) -> None:
    """Check that nothing is copied after the switch-over, and that repeating it is harmless."""
    again = invoke(switch_over)
    assert again.exit_code == 0 and "already" in again.stderr, again.output
    assert rows_of(invoke(status, "--sample", "0", "-o", "json"))["orders-0"][:2] == (400, 0)
    refused = invoke(run)
    assert refused.exit_code == 1 and "switched over" in refused.stderr
    produce(source.bootstrap, "orders", range(7))
    late = invoke(switch_over)
    assert late.exit_code == 1 and "orders-0: 7" in late.stderr, late.output
