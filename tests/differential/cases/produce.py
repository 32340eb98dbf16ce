"""Produce: batches good and bad, idempotent producers, and what the log holds after."""

from collections.abc import Iterator

import zstandard
from tests.differential.batches import TIME_MS, Batch, record
from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import latest, make_topic, new_producer_id, produce

COMPACTED = "produce-compacted"
GOOD = Batch(count=2)
# A batch may be refused for each of these, with an error of its own.
BAD = {
    "wrong crc": GOOD.but(crc=1),
    "magic 0": GOOD.but(magic=0),
    "magic 1": GOOD.but(magic=1),
    "magic 3": GOOD.but(magic=3),
    "magic -1": GOOD.but(magic=-1),
    "length too small": GOOD.but(claimed_length=10),
    "length too large": GOOD.but(claimed_length=1 << 20),
    "negative length": GOOD.but(claimed_length=-1),
    "count too large": GOOD.but(claimed_count=3),
    "count too small": GOOD.but(claimed_count=1),
    "count 0": GOOD.but(claimed_count=0),
    "negative count": GOOD.but(claimed_count=-1),
    "last delta too large": GOOD.but(last_delta=7),
    "last delta negative": GOOD.but(last_delta=-1),
    "no records": GOOD.but(count=0, records=b""),
    "garbage records": GOOD.but(records=b"\xff" * 20),
    "trailing record bytes": GOOD.but(records=record(0) + record(1) + b"\0"),
    "base offset 5": GOOD.but(base_offset=5),
    "leader epoch 7": GOOD.but(leader_epoch=7),
    "control batch": GOOD.but(attributes=0x20),
    "transactional without id": GOOD.but(attributes=0x10),
    "log append time": GOOD.but(attributes=0x08),
    "unused attributes": GOOD.but(attributes=0x100),
    "delete horizon": GOOD.but(attributes=0x40),
    "codec 5": GOOD.but(attributes=5),
    "codec 7": GOOD.but(attributes=7),
    "gzip that is none": GOOD.but(attributes=1),
    "snappy that is none": GOOD.but(attributes=2),
    "lz4 that is none": GOOD.but(attributes=3),
    "zstd that is none": GOOD.but(attributes=4),
    "zstd": GOOD.but(attributes=4, records=zstandard.compress(record(0) + record(1))),
    "timestamp -1": GOOD.but(first_ms=-1, max_ms=-1),
    "timestamp far ahead": GOOD.but(first_ms=1 << 50),
    "max timestamp wrong": GOOD.but(max_ms=TIME_MS - 10),
    "unknown producer": GOOD.but(producer_id=987_654, producer_epoch=0, sequence=0),
    "producer id -2": GOOD.but(producer_id=-2, producer_epoch=0, sequence=0),
    "producer without epoch": GOOD.but(producer_id=1, producer_epoch=-1, sequence=0),
    "producer without sequence": GOOD.but(producer_id=1, producer_epoch=0, sequence=-1),
}


def setup(script: Script) -> None:
    make_topic(script, COMPACTED, configs={"cleanup.policy": "compact"})


def _topic(script: Script) -> str:
    return f"{script.name}-t"


def _prepare(script: Script) -> None:
    make_topic(script, _topic(script))


def _good(script: Script) -> dict[str, object]:
    name = _topic(script)
    part = {"index": 0, "records": GOOD.encode()}
    topic = {"name": name, "topic_id": script.memory[name], "partition_data": [part]}
    return {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [topic]}


def _raw(records: bytes, version: int) -> Play:
    def play(script: Script) -> None:
        _prepare(script)
        produce(script, version, _topic(script), records)
        latest(script, _topic(script))

    return play


def _twice(version: int) -> Play:
    def play(script: Script) -> None:
        _prepare(script)
        name = _topic(script)
        part = {"index": 0, "records": GOOD.encode()}
        topic = {"name": name, "topic_id": script.memory[name], "partition_data": [part, part]}
        script.call("produce", version, acks=-1, timeout=5000, topic_data=[topic])
        script.call("produce", version, acks=-1, timeout=5000, topic_data=[topic, topic])
        latest(script, name)

    return play


def _copies(version: int, *copies: bytes) -> Play:
    """Name a partition once for each copy."""

    def play(script: Script) -> None:
        _prepare(script)
        name = _topic(script)
        parts = [{"index": 0, "records": records} for records in copies]
        topic = {"name": name, "topic_id": script.memory[name], "partition_data": parts}
        script.call("produce", version, acks=-1, timeout=5000, topic_data=[topic])
        latest(script, name)

    return play


def _idempotent(version: int) -> Play:
    """Sequences: in order, again, a gap, an old one, a newer epoch, an older epoch."""

    def play(script: Script) -> None:
        _prepare(script)
        name = _topic(script)
        batch = GOOD.but(producer_id=new_producer_id(script), producer_epoch=0, sequence=0)
        for label, changes in (
            ("first", {}),
            ("again", {}),
            ("next", {"sequence": 2}),
            ("gap", {"sequence": 10}),
            ("an older duplicate", {"sequence": 0}),
            ("another batch at an old sequence", {"sequence": 1}),
            ("newer epoch, wrong sequence", {"producer_epoch": 1, "sequence": 4}),
            ("newer epoch", {"producer_epoch": 1, "sequence": 0}),
            ("older epoch", {"producer_epoch": 0, "sequence": 4}),
            ("sequence at its end", {"producer_epoch": 2, "sequence": (1 << 31) - 1}),
        ):
            produce(script, version, name, batch.but(**changes).encode(), label)
        latest(script, name)
        script.call("describe_producers", 0, topics=[{"name": name, "partition_indexes": [0]}])

    return play


def _compacted(script: Script) -> None:
    for label, batch in (("no key", GOOD), ("a key", GOOD.but(key=b"k"))):
        produce(script, 11, COMPACTED, batch.encode(), label)


def cases(ranges: Ranges) -> Iterator[Case]:
    # Without acknowledgement there is no answer to compare.
    skip = frozenset({"acks=0"})
    yield from cases_of(Plan("produce", _good, skip=skip, prepare=_prepare), "produce", ranges)
    versions = ranges.of("produce")
    for version in (versions[0], 7, 9, 12, versions[-1]):
        for label, batch in BAD.items():
            yield Case(f"produce/batch/{label}/v{version}", _raw(batch.encode(), version))
        two = GOOD.encode() * 2
        yield Case(f"produce/two batches/v{version}", _raw(two, version))
        yield Case(f"produce/half a header/v{version}", _raw(two[:30], version))
        yield Case(f"produce/a batch and a half/v{version}", _raw(two[:-10], version))
        yield Case(f"produce/idempotent/v{version}", _idempotent(version))
        good, corrupt = GOOD.encode(), BAD["wrong crc"].encode()
        for label, copies in (
            ("corrupt last", (good, corrupt)),
            ("corrupt first", (corrupt, good)),
            ("malformed last", (good, two)),
            ("malformed first", (two, good)),
        ):
            yield Case(f"produce/copies: {label}/v{version}", _copies(version, *copies))
    for version in versions:
        yield Case(f"produce/a partition twice/v{version}", _twice(version))
    yield Case("produce/compacted topic", _compacted)
