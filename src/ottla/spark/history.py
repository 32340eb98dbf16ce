"""The history of a pipeline's flows: one line of JSON per finished micro-batch and flow.

    {"at": 1794918557.0, "flow": "orders", "batch": 7, "records": 1200, "seconds": 0.8, "lag": 30}

The file is bounded: when it is full, its older half is dropped.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

NAME: Final = "history.jsonl"
BYTES_MAX: Final = 8 << 20


class Sample(msgspec.Struct, frozen=True):
    """A flow after a micro-batch. ``records`` counts from the start of the topic."""

    at: float
    flow: str
    batch: int
    records: int | None = None
    seconds: float | None = None
    lag: int | None = None


def append(file: Path, samples: Iterable[Sample], bytes_max: int = BYTES_MAX) -> None:
    """Add samples to a history.

    Raises:
        OSError: it cannot be written.
    """
    lines = [msgspec.json.encode(each) + b"\n" for each in samples]
    if not lines:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > bytes_max:
        kept = file.read_bytes()[-bytes_max // 2 :].split(b"\n", 1)[-1]
        beside = file.with_suffix(".new")
        beside.write_bytes(kept)
        beside.replace(file)
    with file.open("ab") as out:
        out.write(b"".join(lines))


def read(file: Path) -> list[Sample]:
    """Return all samples; a line that a crash has cut off is skipped.

    Raises:
        OSError: it cannot be read.
    """
    found = []
    for line in file.read_bytes().splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Sample))
        except msgspec.MsgspecError:
            continue
    return found


def rates(samples: Iterable[Sample]) -> list[tuple[float, float]]:
    """Return time and records per second between the samples of one flow."""
    found: list[tuple[float, float]] = []
    before: Sample | None = None
    for each in samples:
        if before is not None and before.records is not None and each.records is not None:
            seconds = each.at - before.at
            if seconds > 0 and each.records >= before.records:
                found.append((each.at, (each.records - before.records) / seconds))
        before = each
    return found


def seconds_to_catch_up(lag: int, before: int | None, seconds: float) -> float | None:
    """Return when a flow will have no lag, by how its lag has changed in ``seconds``.

    0 if it has none, None if the lag does not shrink or is not known from before.
    """
    if lag == 0:
        return 0.0
    if before is None or seconds <= 0 or before <= lag:
        return None
    return lag / ((before - lag) / seconds)
