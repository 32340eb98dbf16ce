"""Apache Kafka's dump tool reads every file that a log of ours consists of, without complaint."""

import re
from pathlib import Path

import pytest

from ottla.protocol.records.batch import Compression
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import LeaderEpoch, Millis
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.jvm

EPOCH = LeaderEpoch(3)
BEGAN = Millis(1_700_000_000_000)
COMPLAINTS = re.compile(
    r"isvalid: false|mismatch|non-consecutive|out of order|misindexed|Exception", re.I
)


def records(count: int, word: str, at: int = 0) -> list[Record]:
    return [
        Record(
            offset=i,
            timestamp=Millis(BEGAN + at + i),
            key=f"{word}-{i}".encode() if i % 3 else None,
            value=None if i % 7 == 6 else f"value of {word}-{i}".encode() * 5,
            headers=(Header("who", b"ottla"), Header("none", None)) if i % 2 else (),
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with every kind of batch, several segments, and transactions both ways."""
    directory = tmp_path_factory.mktemp("ours") / "topic-0"
    directory.mkdir()
    config = LogConfig(segment_bytes=65_536, index_interval_bytes=512)
    log = Log.open(RealDisk(), str(directory), config, clock=SystemClock())
    for turn in range(60):
        codec = list(Compression)[turn % 5]
        batch = build_batch(records(40, f"{codec.name}-{turn}", turn * 1000), compression=codec)
        log.append_as_leader(batch, leader_epoch=EPOCH, now=BEGAN)
    for turn in range(6):
        producer = Producer(id=4000, epoch=turn, base_sequence=0)
        data = build_batch(
            records(10, f"txn-{turn}", 100_000 + turn), producer=producer, is_transactional=True
        )
        log.append_as_leader(data, leader_epoch=EPOCH, now=BEGAN)
        marker = EndTxnMarker(is_commit=turn % 2 == 0, coordinator_epoch=7)
        end = build_end_txn_marker(marker, producer, Millis(BEGAN + 200_000))
        log.append_as_leader(end, leader_epoch=EPOCH, now=BEGAN, from_client=False)
    log.roll()
    log.close()
    return directory


def test_batches_are_valid_down_to_their_records(kafka, ours: Path) -> None:
    files = sorted(ours.glob("*.log"))
    assert len(files) > 2
    out = kafka.dump("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)))
    assert not COMPLAINTS.search(out), COMPLAINTS.search(out)
    assert len(re.findall(r"^\| offset: ", out, re.M)) == 60 * 40 + 6 * 10 + 6
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", out, re.M)]
    assert offsets == list(range(len(offsets)))
    assert out.count("endTxnMarker: COMMIT") == out.count("endTxnMarker: ABORT") == 3
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in out
    assert "payload: value of SNAPPY-2-1value of SNAPPY-2-1" in out


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_indexes_pass_the_sanity_check(kafka, ours: Path, kind: str) -> None:
    files = [path for path in sorted(ours.glob(f"*.{kind}")) if path.stat().st_size]
    assert files
    listed = ",".join(map(str, files))
    sanity = kafka.dump("--index-sanity-check", "--files", listed)
    assert sanity.count("passed sanity check") == len(files), sanity
    verified = kafka.dump("--verify-index-only", "--files", listed)
    assert not COMPLAINTS.search(verified), verified


def test_aborted_transactions_are_read_from_the_transaction_index(kafka, ours: Path) -> None:
    out = "".join(kafka.dump("--files", str(path)) for path in sorted(ours.glob("*.txnindex")))
    assert len(re.findall(r"producerId: 4000", out)) == 3, out


def test_producer_snapshots_are_read(kafka, ours: Path) -> None:
    files = sorted(ours.glob("*.snapshot"))
    assert files
    out = kafka.dump("--files", str(files[-1]))
    assert "producerId: 4000" in out and "coordinatorEpoch: 7" in out, out
    assert not COMPLAINTS.search(out), out
