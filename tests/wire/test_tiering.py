"""Tiered storage on one node: copy, local deletion, reads across the border, deletion."""

import json
import re
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from one_node import OneNode, format_one, one_node
from tests.patience import SECONDS_MAX
from tier_node import (
    TIERED,
    T,
    consume,
    create,
    log_of,
    objects,
    offset_at,
    produce,
    tier_settings,
    until,
    with_client,
)
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.client.admin import (
    Change,
    Resource,
    alter_configs,
    delete_topics,
)
from ottla.client.cluster import Cluster, Refused
from ottla.config.problems import ConfigError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TIME = 1_700_000_000_000


def values(count: int, start: int = 0) -> list[tuple[int, bytes]]:
    return [(number, b"%06d" % number + b"x" * 150) for number in range(start, count)]


def tiered(node: OneNode) -> None:
    """Wait until all sealed segments are only in the tier."""
    until(lambda: len(log_of(node).segments) == 1 and log_of(node).local_log_start_offset > 0)


def test_segments_are_copied_once_their_lag_is_over(tmp_path: Path) -> None:
    """KIP-1241; the records are of the year 2023, so a lag of years is over for none of them."""
    with one_node(tier_settings(tmp_path)) as node:
        lag = {"remote.copy.lag.ms": str(100 * 365 * 86_400_000)}
        create(node, {**TIERED, **lag, "local.retention.bytes": "-2"})
        produce(node, 0, 200)
        sealed = log_of(node).segments[-1].base_offset
        size = sum(each.size for each in log_of(node).segments[-3:])
        alter(node, "remote.copy.lag.bytes", str(size))
        until(lambda: log_of(node).remote_end > 0)
        until(lambda: log_of(node).remote_end == log_of(node).segments[-3].base_offset)
        assert log_of(node).remote_end < sealed, "newer segments wait"
        alter(node, "remote.copy.lag.ms", "1000")
        until(lambda: log_of(node).remote_end == sealed)
        assert consume(node) == values(200)


def test_consumers_read_from_offset_0_across_the_border(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path)) as node:
        create(node, {**TIERED, "local.retention.bytes": "-2"})
        produce(node, 0, 200)
        before = consume(node)
        assert before == values(200)
        until(lambda: log_of(node).remote_end > 100)
        assert log_of(node).local_log_start_offset == 0  # copied and kept
        alter(node, "local.retention.bytes", "1")
        tiered(node)
        log = log_of(node)
        assert log.log_start_offset == 0
        assert consume(node) == before
        # ListOffsets: earliest, earliest local, latest tiered, by timestamp, the largest one.
        assert offset_at(node, -2) == 0
        assert offset_at(node, -4) == log.local_log_start_offset
        assert offset_at(node, -5) == log.local_log_start_offset - 1
        assert offset_at(node, -6) == log.local_log_start_offset
        assert offset_at(node, TIME + 3) == 3
        assert offset_at(node, TIME + 57) == 57
        assert offset_at(node, TIME + 199) == 199
        assert offset_at(node, -3) == 199
        assert offset_at(node, TIME + 200) is None
        # A read that begins in the middle of a batch.
        assert consume(node, 57) == values(200, 57)
        # The largest timestamp is that of the local segments, as in Kafka.
        produce(node, 200, 60, TIME - 10_000)
        until(lambda: log_of(node).local_log_start_offset >= 200)
        assert (offset_at(node, -3) or 0) >= 200


def alter(node: OneNode, key: str, value: str) -> None:
    def change(cluster: Cluster):  # type: ignore[no-untyped-def]
        return alter_configs(cluster, Resource.TOPIC, "t", [Change(key, value)])

    with_client(node.address, change)


def metrics(node: OneNode) -> dict[str, float]:
    """Return the metrics without labels."""
    at = node.node.metrics_addr
    assert at is not None
    with urllib.request.urlopen(
        f"http://127.0.0.1:{at.port}/metrics", timeout=SECONDS_MAX
    ) as reply:
        lines = reply.read().decode().splitlines()
    return {
        line.split()[0]: float(line.split()[1])
        for line in lines
        if not line.startswith("#") and "{" not in line
    }


def test_metadata_topic_survives_a_restart(tmp_path: Path) -> None:
    shown_at = "ottla.metrics.listener=127.0.0.1:0"
    settings = format_one(tier_settings(tmp_path, shown_at, metadata="topic"))
    node = OneNode(settings)
    try:
        create(node)
        produce(node, 0, 120)
        tiered(node)
        stored = objects(tmp_path)
        until(lambda: list((tmp_path / "data" / "remote-log-metadata").glob("*.snapshot")))
    finally:
        node.stop()
    node = OneNode(settings)
    try:
        assert log_of(node).log_start_offset == 0
        assert consume(node) == values(120)
        assert objects(tmp_path) == stored  # nothing was copied twice
        produce(node, 120, 80)
        tiered(node)
        assert consume(node) == values(200)
        shown = metrics(node)
        assert shown["tiered_storage_rlmm_topic_backed"] == 1
        assert shown["tiered_storage_rlmm_bootstrap_attempts"] >= 1
        assert shown["ottla_tiered_storage_segments_copied_total"] > 0
        assert shown["kafka_server_brokertopicmetrics_remotecopybytes_total"] > 80 * 150
        assert shown["kafka_server_brokertopicmetrics_remotefetchbytes_total"] > 120 * 150
    finally:
        node.stop()


def test_deleted_topic_leaves_no_objects(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path, metadata="topic")) as node:
        create(node)
        produce(node, 0, 100)
        tiered(node)
        assert objects(tmp_path)
        with_client(node.address, lambda cluster: delete_topics(cluster, ["t"]))
        until(lambda: not objects(tmp_path))


def test_delete_records_below_the_border_deletes_remote_segments(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path)) as node:
        create(node)
        produce(node, 0, 200)
        tiered(node)
        before = len(objects(tmp_path))
        asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 75)])

        async def delete(cluster: Cluster) -> DeleteRecordsResponse:
            leader = await cluster.leader_of(T)
            request = DeleteRecordsRequest([asked], 10_000)
            return await cluster.send_to(leader.node_id, request, DeleteRecordsResponse)

        response = with_client(node.address, delete)
        assert response.topics[0].partitions[0].low_watermark == 75
        assert offset_at(node, -2) == 75
        until(lambda: len(objects(tmp_path)) < before)
        assert consume(node, 75) == values(200, 75)
        with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
            consume(node, 74)


def test_remote_retention_moves_the_log_start(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path)) as node:
        create(node)
        produce(node, 0, 200)
        tiered(node)
        alter(node, "retention.bytes", "9000")
        until(lambda: log_of(node).log_start_offset > 0)
        start = log_of(node).log_start_offset
        assert start < 200
        assert consume(node, start) == values(200, start)
        alter(node, "retention.ms", "1000")  # the records are years old
        until(lambda: not objects(tmp_path))


def test_disabling_with_deletion_keeps_the_local_log_only(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path)) as node:
        create(node)
        produce(node, 0, 100)
        tiered(node)
        with pytest.raises(Refused, match="INVALID_CONFIG"):
            alter(node, "remote.storage.enable", "false")
        alter(node, "remote.log.delete.on.disable", "true")
        alter(node, "remote.storage.enable", "false")
        until(lambda: not objects(tmp_path))
        start = log_of(node).local_log_start_offset
        assert offset_at(node, -2) == start > 0
        assert consume(node, start) == values(100, start)


def test_copy_disabled_keeps_remote_segments_readable(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path)) as node:
        create(node)
        produce(node, 0, 100)
        tiered(node)
        count = len(objects(tmp_path))
        change = [Change("local.retention.bytes", "-2"), Change("remote.log.copy.disable", "true")]
        with_client(
            node.address, lambda cluster: alter_configs(cluster, Resource.TOPIC, "t", change)
        )
        produce(node, 100, 100)
        until(lambda: len(log_of(node).segments) > 1)
        assert consume(node) == values(200)
        assert len(objects(tmp_path)) == count


def test_compacted_topic_cannot_be_tiered(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path)) as node, pytest.raises(Refused, match="INVALID_CONFIG"):
        create(node, {**TIERED, "cleanup.policy": "compact"})


def test_store_without_settings_stops_the_start(tmp_path: Path) -> None:
    bad = tier_settings(tmp_path, "remote.log.storage.manager.class.name=s3")
    with pytest.raises(ConfigError, match=r"rsm\.config\.bucket"):
        OneNode(format_one(bad))


def test_read_committed_is_the_same_across_the_border(tmp_path: Path) -> None:
    """Aborted and committed transactions, with markers in later segments than their records."""
    extra = ("transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
             "transaction.state.log.num.partitions=1")  # fmt: skip
    with one_node(tier_settings(tmp_path, *extra)) as node:
        create(node, {**TIERED, "local.retention.bytes": "-2"})
        bootstrap = str(node.address)
        producers = []
        for name in ("a", "b"):
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
            producer.init_transactions(SECONDS_MAX)
            producers.append(producer)
        for turn in range(12):
            for producer in producers:
                producer.begin_transaction()
            for number in range(15):
                for name, producer in zip("ab", producers, strict=True):
                    producer.produce("t", f"{turn} {name} {number}".encode() + b"x" * 150)
                    producer.flush(SECONDS_MAX)
            producers[0].commit_transaction(SECONDS_MAX)
            (producers[1].commit_transaction if turn % 3 else producers[1].abort_transaction)(60)
        produce(node, 0, 40)
        before = consume(node, committed=True)
        everything = consume(node)
        assert len(before) == 12 * 15 + 8 * 15 + 40
        assert len(everything) == 2 * 12 * 15 + 40
        alter(node, "local.retention.bytes", "1")
        tiered(node)
        assert log_of(node).log_start_offset == 0
        assert consume(node, committed=True) == before
        assert consume(node) == everything


def test_tier_commands_show_and_verify_segments(tmp_path: Path) -> None:
    with one_node(tier_settings(tmp_path, metadata="topic")) as node:
        create(node)
        produce(node, 0, 100)
        tiered(node)
        end = log_of(node).local_log_start_offset
        settings = tmp_path / "server.properties"
        lines = ("process.roles=broker,controller", "node.id=1", "listeners=PLAINTEXT://:1,C://:2",
                 "controller.listener.names=C", "controller.quorum.bootstrap.servers=localhost:2",
                 "log.dirs=/unused", "remote.log.storage.system.enable=true",
                 "remote.log.storage.manager.class.name=directory",
                 f"rsm.config.directory={tmp_path / 'tier'}")  # fmt: skip
        settings.write_text("\n".join(lines))

        def ottla(*arguments: str) -> tuple[int, str]:
            env = {"OTTLA_BOOTSTRAP": str(node.address)}
            done = CliRunner().invoke(app, ["tier", *arguments, "-o", "json"], env=env)
            return done.exit_code, done.stdout

        create(node, topic="waits")
        code, text = ottla("status")
        row, waits = json.loads(text)
        assert (waits["topic"], waits["segments"], waits["last_offset"]) == ("waits", 0, None)
        assert (code, row["topic"], row["first_offset"], row["last_offset"]) == (0, "t", 0, end - 1)
        assert json.loads(ottla("status", "t")[1]) == [row]
        segments = json.loads(ottla("list", "t")[1])
        assert len(segments) == row["segments"] > 1
        assert ottla("verify", "--settings", str(settings)) == (0, "[]\n")
        env = {"OTTLA_BOOTSTRAP": str(node.address)}
        done = CliRunner().invoke(app, ["tier", "verify", "--settings", str(settings)], env=env)
        assert done.stderr.startswith(f"verified {row['segments']} segments, "), done.stderr
        assert done.stderr.endswith(": no problems found\n")
        table = CliRunner().invoke(app, ["tier", "status"], env=env).stdout
        assert re.search(r" [\d.]+ [KM]iB ", table), table
        exact = CliRunner().invoke(app, ["tier", "status", "--bytes"], env=env).stdout
        assert str(row["size"]) in exact.split()
        # A changed object and one without metadata are found.
        log = next(path for path in objects(tmp_path) if path.suffix == ".log")
        data = log.read_bytes()
        log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        (log.parent / "stray.log").write_bytes(b"x")
        code, text = ottla("verify", "--settings", str(settings))
        problems = [each["problem"] for each in json.loads(text)]
        assert code == 1
        assert any("checksum" in each for each in problems)
        assert any("no metadata" in each for each in problems)
