"""The request and the result of reading a partition."""

import enum
from typing import Final, NamedTuple

from ottla.protocol.types import NO_EPOCH, LeaderEpoch, Offset
from ottla.storage.log.read import Slice
from ottla.storage.log.transaction_index import AbortedTxn

CONSUMER: Final = -1
"""The replica id of a consumer."""
DEBUGGER: Final = -2
"""The replica id of a debugging client, to which any replica shows all it has."""


class Isolation(enum.Enum):
    """The end of what a reader may see."""

    LOG_END = "log end"  # a follower, or a debugger
    HIGH_WATERMARK = "high watermark"  # read_uncommitted
    LAST_STABLE = "last stable offset"  # read_committed


class ReadRequest(NamedTuple):
    """A fetch of one partition. Epochs of -1 are not checked.

    ``minimum_one``: a first batch larger than ``bytes_max`` is returned whole. ``allow_follower``:
    a replica that does not lead may answer too (KIP-392).
    """

    offset: Offset
    bytes_max: int
    minimum_one: bool = True
    isolation: Isolation = Isolation.HIGH_WATERMARK
    current_leader_epoch: LeaderEpoch = NO_EPOCH
    last_fetched_epoch: LeaderEpoch = NO_EPOCH
    replica_id: int = CONSUMER
    allow_follower: bool = False


class ReadResult(NamedTuple):
    """The batches as a position in a file, and the partition's offsets just before the read.

    ``aborted`` is None unless read_committed. ``diverging`` is ``(epoch, end offset)`` if the
    reader's history differs from this log's: it has to truncate, and the slice is empty.
    """

    slice: Slice
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    log_end_offset: Offset
    aborted: list[AbortedTxn] | None = None
    diverging: tuple[LeaderEpoch, Offset] | None = None
