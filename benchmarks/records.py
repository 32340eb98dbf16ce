"""The cost of a walk over the records of a batch, compiled and as plain Python.

Records of 100 bytes with a key, 10,000 in a region: both forms walk the same bytes, the plain
one in an interpreter of its own from a copy of the package without compiled modules.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ottla
from benchmarks.report import Row, seconds
from ottla.protocol.records.crc import crc32c
from ottla.protocol.records.reader import Record
from ottla.protocol.records.walker import IS_COMPILED, Spans, check_records, walk_into
from ottla.protocol.records.writer import encode_records
from ottla.protocol.types import Millis, Offset

COUNT = 10_000
ROUNDS = 31
PLAIN_ROUNDS = 3
NS_PER_RECORD_MAX = 10.0


def region() -> bytes:
    """Return the records, unpacked."""
    records = [
        Record(Offset(index), Millis(1_700_000_000_000 + index), b"key%06d" % index, b"v" * 80)
        for index in range(COUNT)
    ]
    return bytes(encode_records(records, 0, records[0].timestamp))


def nanoseconds(rounds: int) -> tuple[float, float]:
    """Return the cost of filling spans and of checking, in ns per record; the median round."""
    data = region()
    spans = Spans(COUNT)
    fill = seconds(lambda: walk_into(spans, data), rounds)
    check = seconds(lambda: check_records(data, COUNT, Millis(0)), rounds)
    return fill * 1e9 / COUNT, check * 1e9 / COUNT


def plain_nanoseconds() -> tuple[float, float]:
    """Return the same of the plain form."""
    package = Path(ottla.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(package, f"{folder}/ottla", ignore=shutil.ignore_patterns("*.so"))
        root = Path(__file__).parents[1]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.records"],
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{root}"},
            check=True,
            capture_output=True,
            text=True,
        )
    fill, check = done.stdout.split()
    return float(fill), float(check)


def crc_row() -> Row:
    """Compare the CRC of a writable range with that of the same bytes alone."""
    size = 1_000_000
    buffer = bytearray(size + 2)
    alone = bytes(size)
    ours = seconds(lambda: crc32c(buffer, 1, size + 1), ROUNDS)
    copied = seconds(lambda: crc32c(alone, 0, size), ROUNDS)
    ratio = copied / ours
    return Row(
        "records",
        "CRC of a 1 MB batch in a connection's buffer",
        f"{ours * 1e6:.0f} us",
        f"{copied * 1e6:.0f} us, copied in pieces",
        ratio,
        "not slower than copying",
        ratio >= 1,
    )


def run() -> list[Row]:
    """Return the rows of this area."""
    plain = plain_nanoseconds()
    form = "compiled" if IS_COMPILED else "plain"
    walks = zip(
        ("walk into columns (10,000 x 100 B)", "check of a producer's batch"),
        nanoseconds(ROUNDS if IS_COMPILED else PLAIN_ROUNDS),
        plain,
        (NS_PER_RECORD_MAX, None),
        strict=True,
    )
    return [
        Row(
            "records",
            what,
            f"{ours:.1f} ns per record, {form}",
            f"{theirs:.0f} ns plain",
            theirs / ours,
            "reported" if limit is None else f"at most {limit:.0f} ns",
            limit is None or ours <= limit,
        )
        for what, ours, theirs, limit in walks
    ] + [crc_row()]


if __name__ == "__main__":
    assert not IS_COMPILED, "this entry measures the plain form"
    sys.stdout.write("{} {}\n".format(*nanoseconds(PLAIN_ROUNDS)))
