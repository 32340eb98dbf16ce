"""Small micro-batches of a stream are read beside the driver. Pure.

Spark starts a Python worker for each task of a source in Python, which takes longer than reading a
few records. It has a way around them: a reader may pass rows together with the one partition of a
batch (`row_handover`). Spark keeps them in its block manager, and the task takes them from there.
Without the rows (a replay, a lost block) the task reads the partition as usual, so both ways must
give the same rows.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from ottla.client.offset_spec import Range
from ottla.spark.options import SourceOptions, Tier

BYTES_MAX: Final = 1 << 20
"""Most bytes of a prefetched batch, in Arrow's form: a bound of the driver's memory."""
RANGES_MAX: Final = 8
"""Most partitions of a prefetched batch: they are fetched one after another, in a round trip each,
and 8 of 5 ms take half of the 80 ms that tasks take longer."""
SEVERAL: Final = 10
"""Records of several partitions count this many times: tasks would process them in parallel."""


class Prefetched(msgspec.Struct, frozen=True):
    """All rows of a batch."""

    ranges: tuple[Range, ...]
    batches: tuple[pa.RecordBatch, ...]


def is_small(planned: Sequence[Range], options: SourceOptions) -> bool:
    """Return whether to read a batch beside the driver.

    With ``minPartitions``, tasks in parallel are asked for. ``tier=direct`` reads files that may
    not be there.
    """
    splitting, records_max = options.splitting, options.prefetch_records
    if splitting.partitions_min is not None or options.tier is Tier.DIRECT:
        return False
    records = sum(each.size for each in planned)
    if splitting.records_max is not None and records > splitting.records_max:
        return False
    weight = 1 if len(planned) == 1 else SEVERAL
    return 0 < len(planned) <= RANGES_MAX and records * weight <= records_max


def collect(batches: Iterable[pa.RecordBatch], bytes_max: int) -> tuple[pa.RecordBatch, ...] | None:
    """Return all batches; None, without reading on, if they exceed ``bytes_max``."""
    found, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > bytes_max:
            return None
        found.append(batch)
    return tuple(found)
