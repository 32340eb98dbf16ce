"""Batches, good, bad and damaged: Kafka's validator and ours say the same of each.

Three differences are meant, and let pass here: packed bytes that do not unpack, unknown codecs
and the like are a server error in Kafka and INVALID_RECORD with us; offset deltas that are not
0, 1, 2 .. are refused; and a negative timestamp survives recompression.
"""

import importlib
import random
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.api.produce.record_validation import (
    RecordRules,
    RecordsRejected,
    TimestampsRejected,
    take_batch,
    validate_batch,
)
from ottla.protocol.faults import Fault
from ottla.protocol.records.batch import Compression, patch_append_time, patch_crc, read_header
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset
from ottla.storage.log.batch_checks import check_leader_batch
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.jvm

NOW = 1_700_000_000_000
CASES = 3000
AGREED_MIN = 0.995  # a flipped bit in a packed stream may make sense to one codec library alone
INT64_MAX = 2**63 - 1
CODECS = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
AWAY = [0, 0, 0, -5, 100, -(10**6), 10**7, -NOW - 1, -NOW - 5, -(10**10)]


class Case(NamedTuple):
    version: int
    codec: str
    is_compacted: bool
    timestamp_type: str
    before_ms: int
    after_ms: int
    records: bytes

    def line(self) -> str:
        flags = f"{self.version} {self.codec} {str(self.is_compacted).lower()}"
        times = f"{self.timestamp_type} {self.before_ms} {self.after_ms} {NOW}"
        return f"{flags} {times} {self.records.hex()}"


def some_batch(rng: random.Random) -> bytearray:
    stamps = [NOW + rng.choice(AWAY) for _ in range(rng.choice([1, 1, 2, 3, 5]))]
    records = [
        Record(
            Offset(index),
            Millis(stamp),
            rng.choice([None, b"k", b"k"]),
            rng.choice([None, b"v" * rng.randrange(50)]),
        )
        for index, stamp in enumerate(stamps)
    ]
    fields = {}
    if rng.random() < 0.3:
        fields["producer"] = Producer(7, 1, rng.choice([0, 5, -1]))
    if rng.random() < 0.1:
        fields["is_control"] = True
    if rng.random() < 0.1:
        fields["append_time"] = rng.choice([NOW, -1, NOW + 10**9])
    return build_batch(records, compression=rng.choice(list(Compression)), **fields)


def changed(rng: random.Random, batch: bytearray) -> bytes:
    """Return the batch as it is, or with one thing wrong."""
    match rng.randrange(12):
        case 0:
            batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
        case 1:
            batch[rng.choice([22, 23, 26, 34, 42, 57, 60, 7])] = rng.randrange(256)
            patch_crc(batch, 0, len(batch))
        case 2:
            batch[rng.randrange(61, len(batch))] = rng.randrange(256)
            patch_crc(batch, 0, len(batch))
        case 3:
            batch[16] = rng.choice([0, 1, 3, 255])
        case 4:
            batch += rng.randbytes(rng.randrange(40))
        case 5:
            batch += some_batch(rng)
        case 6:
            del batch[rng.randrange(len(batch) + 1) :]
        case 7:
            lengths = [0, 13, 14, 20, 48, 49, len(batch) - 13, len(batch) - 11, -1]
            batch[8:12] = rng.choice(lengths).to_bytes(4, "big", signed=True)
    return bytes(batch)


def some_case(rng: random.Random) -> Case:
    return Case(
        rng.choice([3, 6, 7, 8, 13]),
        rng.choice(["producer", *CODECS]),
        rng.random() < 0.3,
        rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        rng.choice([INT64_MAX, INT64_MAX, 10**6]),
        rng.choice([3_600_000, INT64_MAX]),
        changed(rng, some_batch(rng)),
    )


def judged(case: Case) -> tuple[str, str]:
    """Return our result in Kafka's words, and the reason where it is a refusal."""
    rules = RecordRules(
        1 << 30,
        case.is_compacted,
        case.timestamp_type == "LogAppendTime",
        case.before_ms,
        case.after_ms,
        CODECS[case.codec],
        None,
    )
    try:
        batch = take_batch(memoryview(bytearray(case.records)), case.version)
        kept = validate_batch(batch, rules, Millis(NOW))
        header = read_header(kept)
        check_leader_batch(kept, 0, header, LogConfig(), from_client=True)
    except (RecordsRejected, TimestampsRejected) as fault:
        indexes = "".join(f"{each.batch_index}," for each in fault.errors)
        return f"{fault.code.name} {indexes}", str(fault)
    except Fault as fault:
        return f"{fault.code.name} ", str(fault)
    if rules.is_log_append_time:
        patch_append_time(kept, 0, header, Millis(NOW))
        header = read_header(kept)
    codec = "none" if not header.compression else header.compression.name.lower()
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    records = "".join(f"{each.offset}:{each.timestamp}," for each in read_records(kept))
    return f"OK {codec} {header.max_timestamp} {kind} {records}", ""


def is_meant(ours: tuple[str, str], theirs: str) -> bool:
    result, reason = ours
    if "offset delta" in reason or "transactional" in reason:
        return True
    return theirs == "UNKNOWN_SERVER_ERROR " and result.startswith(("INVALID_RECORD", "OK"))


@pytest.mark.parametrize("seed", [1, 2])
def test_every_batch_is_judged_as_kafka_does(kafka, seed: int) -> None:
    rng = random.Random(seed)
    cases = [some_case(rng) for _ in range(CASES)]
    source = str(Path(__file__).with_name("RecordJudge.java"))
    output = kafka.run(source, stdin="\n".join(each.line() for each in cases)).splitlines()
    assert len(output) == CASES
    differ = [
        (ours, theirs, case.line())
        for case, theirs in zip(cases, output, strict=True)
        if (ours := judged(case))[0] != theirs and not is_meant(ours, theirs)
    ]
    assert sum(each.startswith("OK") for each in output) > CASES / 10, "not all is wrong"
    assert len(differ) <= CASES * (1 - AGREED_MIN), differ[:5]
    assert not [each for each in differ if each[0][0].startswith("OK")], "taken, and not alike"


def test_every_frame_that_is_taken_is_one_that_kafka_takes(kafka) -> None:
    """And frames that Kafka takes alone are those listed: not every client could read them."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
    frames = importlib.import_module("codec_frames").all_frames()
    cases = [
        Case(13, "producer", False, "CreateTime", INT64_MAX, INT64_MAX, bytes(each.batch()))
        for each in frames
    ]
    source = str(Path(__file__).with_name("RecordJudge.java"))
    output = kafka.run(source, stdin="\n".join(each.line() for each in cases)).splitlines()
    found = {
        each.name: (judged(case)[0].startswith("OK"), theirs.startswith("OK"))
        for each, case, theirs in zip(frames, cases, output, strict=True)
    }
    assert found == {each.name: (each.is_taken, each.by_kafka) for each in frames}
