"""`ottla log` on files that are right, and on files that were damaged on purpose."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.cli.commands.log_verify import LogProblem, verify
from ottla.operations.sizes import human
from ottla.protocol.records.batch import patch_crc, read_header
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.storage.directory.log_dir import LogDirectory, LogDirPorts, format_directory
from ottla.storage.log.log_config import LogConfig

FIRST = "00000000000000000000"


def make_log(root: Path) -> Path:
    """A log directory with one partition: several segments, an aborted transaction, two epochs."""
    ports = LogDirPorts(RealDisk(), SystemClock(), SystemRandom())
    format_directory(ports, str(root), node_id=NodeId(1), cluster_id="a-cluster")
    directory = LogDirectory.open(ports, str(root), node_id=NodeId(1), cluster_id=None)
    directory.open_all(lambda _: LogConfig())
    name = TopicPartition("words", 0)
    config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    directory.create_log(name, ports.random.uuid(), config)
    log = directory.logs[name].log
    now = ports.clock.now()
    for n in range(12):
        records = [Record(Offset(0), Millis(now + n), b"k%d" % n, b"v" * 60, (Header("h", b"x"),))]
        log.append_as_leader(build_batch(records), leader_epoch=LeaderEpoch(n // 6), now=now)
    open_txn = build_batch(
        [Record(Offset(0), now, b"t", b"v")], producer=Producer(5, 0, 0), is_transactional=True
    )
    log.append_as_leader(open_txn, leader_epoch=LeaderEpoch(1), now=now)
    marker = build_end_txn_marker(EndTxnMarker(False, 0), Producer(5, 0), now)
    log.append_as_leader(marker, leader_epoch=LeaderEpoch(1), now=now, from_client=False)
    log.flush()
    directory.close()
    return root / "words-0"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


def found(path: Path) -> list[LogProblem]:
    return list(verify(RealDisk(), str(path)))


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    return done.stdout


def segments(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def test_what_a_log_wrote_is_right(partition: Path) -> None:
    assert len(segments(partition)) > 2
    assert found(partition.parent) == []
    assert found(partition) == []
    for path in segments(partition):
        assert found(path) == []
    assert json.loads(run("log", "verify", str(partition.parent), "-o", "json")) == []


def test_verify_ends_with_a_summary(partition: Path) -> None:
    count = len(segments(partition))
    done = CliRunner().invoke(app, ["log", "verify", str(partition.parent)])
    size = sum(path.stat().st_size for path in segments(partition))
    start = f"verified {count} segments, {human(size)}, in "
    assert done.stderr.startswith(start) and done.stderr.endswith(": no problems found\n")
    rewrite(segments(partition)[0], lambda data: data[:-1])
    done = CliRunner().invoke(app, ["log", "verify", str(partition.parent)])
    assert re.search(r" in .* s: \d+ problems? found$", done.stderr), done.stderr


def test_missing_path_is_a_usage_error(tmp_path: Path) -> None:
    for command in ("verify", "dump"):
        done = CliRunner().invoke(
            app, ["log", command, str(tmp_path / "nowhere")], env={"COLUMNS": "500"}
        )
        assert done.exit_code == 2 and "does not exist" in done.stderr


def test_batches_and_records_are_shown(partition: Path) -> None:
    rows = [
        json.loads(line)
        for line in run("log", "dump", str(partition), "-o", "json").split("\n")
        if line
    ]
    assert [row["first_offset"] for row in rows] == list(range(14))
    assert {row["crc"] for row in rows} == {"ok"}
    assert rows[-1]["kind"] == ["control", "transactional"] and rows[-2]["producer_id"] == 5
    lines = run("log", "dump", str(partition), "--records", "-o", "json").splitlines()
    records = [json.loads(line) for line in lines]
    assert records[0]["key"] == "k0" and records[0]["headers"] == "h=x"
    assert records[-1]["control"] == "abort"
    assert "FIRST-OFFSET" in run("log", "dump", str(segments(partition)[0]))


def test_every_other_file_is_shown(partition: Path) -> None:
    shown: dict[str, list] = {}
    for path in [*partition.iterdir(), *partition.parent.iterdir()]:
        if path.is_file() and path.stat().st_size and path.suffix not in (".log", ".lock"):
            if path.name.startswith(".") or path.name == "bootstrap.checkpoint":
                continue
            rows = run("log", "dump", str(path), "-o", "json").splitlines()
            shown.setdefault(path.suffix or path.name, []).extend(map(json.loads, rows))
    assert shown[".index"] and shown[".timeindex"] and shown[".snapshot"]
    assert shown[".txnindex"][0]["producer_id"] == 5
    assert shown[".properties"][0]["cluster"] == "a-cluster"
    assert shown["leader-epoch-checkpoint"] == [
        {"epoch": 0, "start_offset": 0}, {"epoch": 1, "start_offset": 6},
    ]  # fmt: skip
    done = CliRunner().invoke(app, ["log", "dump", __file__])
    assert done.exit_code == 1 and "not a file of a log directory" in done.stderr


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def falsify_epoch(partition: Path) -> None:
    """A batch of an epoch that nobody knows, with everything else right."""
    path = segments(partition)[1]
    data = bytearray(path.read_bytes())
    data[12:16] = (77).to_bytes(4)
    path.write_bytes(data)


def falsify_records(partition: Path) -> None:
    """A batch that says it has one record more, with a CRC that agrees."""
    path = segments(partition)[0]
    data = bytearray(path.read_bytes())
    data[57:61] = (2).to_bytes(4)
    patch_crc(data, 0, read_header(data).size)
    path.write_bytes(data)


def duplicate_first(partition: Path) -> None:
    path = segments(partition)[0]
    data = path.read_bytes()
    path.write_bytes(data[: read_header(data).size] + data)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a byte of a record": (lambda p: flip(segments(p)[0], 80), "wrong CRC"),
    "a count": (falsify_records, "record"),
    "an offset": (lambda p: flip(segments(p)[2], 7), "offset"),
    "a batch twice": (duplicate_first, "comes after offset"),
    "a cut in the middle": (lambda p: rewrite(segments(p)[0], lambda d: d[:-3]), "bytes:"),
    "a torn end": (lambda p: rewrite(segments(p)[-1], lambda d: d + b"\0\1"), "recovery truncates"),
    "an unknown epoch": (falsify_epoch, "leader epoch 77 is not in it"),
    "half an index entry": (
        lambda p: rewrite(p / f"{FIRST}.index", lambda d: d[:-1]), "whole number"),
    "a position": (lambda p: flip(p / f"{FIRST}.index", 7), "no batch begins at position"),
    "an index backwards": (
        lambda p: rewrite(p / f"{FIRST}.index", lambda d: d + d[:8]), "do not increase"),
    "a time": (lambda p: flip(p / f"{FIRST}.timeindex", 7), "the largest by offset"),
    "a missing index": (lambda p: (p / f"{FIRST}.index").unlink(), "is missing"),
    "a producer snapshot": (lambda p: flip(sorted(p.glob("*.snapshot"))[-1], 12), "CRC"),
    "an aborted transaction": (
        lambda p: flip(next(q for q in p.glob("*.txnindex") if q.stat().st_size), 25),
        "abort marker"),
    "the epochs": (
        lambda p: rewrite(p / "leader-epoch-checkpoint", lambda d: d + b"x\n"), ""),
    "whose it is": (
        lambda p: rewrite(p.parent / "meta.properties", lambda d: b"version=9\n"), ""),
    "which topic": (lambda p: rewrite(p / "partition.metadata", lambda d: b"nonsense"), ""),
    "a checkpoint": (
        lambda p: (p.parent / "replication-offset-checkpoint").write_text("0\n9\n") and None, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DAMAGES))
def test_damage_is_found(partition: Path, name: str) -> None:
    damage, said = DAMAGES[name]
    damage(partition)
    findings = found(partition.parent)
    assert any(said in each.problem for each in findings), findings
    rows = json.loads(run("log", "verify", str(partition.parent), "-o", "json", code=1))
    assert len(rows) == len(findings) > 0


def test_room_made_ahead_is_no_damage(partition: Path) -> None:
    rewrite(segments(partition)[-1], lambda data: data + bytes(5000))
    assert found(partition) == []
    rewrite(segments(partition)[0], lambda data: data + bytes(5000))
    assert {each.path for each in found(partition)} == {str(segments(partition)[0])}
