"""Batches of the log onto an image, with transactions of records kept out of sight (KIP-868).

    Begin  record  record  ...  End        all of them count, from the end on
    Begin  record  record  ...  Abort      none of them counts

A transaction may span batches. Outside of one, every batch counts when it is there. The image
that others see never contains a record of an open transaction, and its provenance never
reaches into one: a snapshot of it, together with the log behind it, is the whole state.

The active controller decides on more: `newest` has the records of the open transaction, since
it wrote them itself.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from ottla.metadata.delta import Delta, delta_between, delta_of
from ottla.metadata.image import EMPTY, Image, Provenance
from ottla.metadata.replay import replay_tracked
from ottla.metadata.replay_fault import ReplayFault
from ottla.metadata.touched import Touched
from ottla.protocol.internal.metadata_cluster import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset


class BatchLoader:
    """Follows a log, batch by batch. Pure: what it is told determines all.

    A `ReplayFault` leaves the loader unfit for use; drop it.
    """

    def __init__(self, image: Image = EMPTY) -> None:
        self._visible = image
        self._newest = image
        self._touched = Touched()
        # Of an open transaction: the image it started from, and what was touched since.
        self._before: Image | None = None
        self._touched_since = Touched()

    @property
    def image(self) -> Image:
        """The image that others may see."""
        return self._visible

    @property
    def newest(self) -> Image:
        """The image with the records of an open transaction, if there is one."""
        return self._newest

    def is_in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._before is not None

    def load(self, records: Sequence[Message], provenance: Provenance) -> Delta | None:
        """Take a batch; ``provenance`` is of its last record.

        Returns:
            What others now see changed, empty perhaps; None if they see no more than before,
            since all of the batch is in an open transaction.
        """
        offset_first = provenance.offset - len(records) + 1
        for offset, record in enumerate(records, offset_first):
            if isinstance(record, BeginTransactionRecord):
                self._begin(replace(provenance, offset=Offset(offset - 1)))
            else:
                self._take(record)
        if self._before is None:
            self._newest = replace(self._newest, provenance=provenance)
            return self._show(self._newest)
        if self._before.provenance.offset > self._visible.provenance.offset:
            return self._show(self._before)
        return None

    def reset(self, image: Image) -> Delta:
        """Take ``image``, read from a snapshot, in place of all so far."""
        delta = delta_between(self._visible, image)
        self._visible = self._newest = image
        self._touched, self._touched_since = Touched(), Touched()
        self._before = None
        return delta

    def _begin(self, before: Provenance) -> None:
        """Begin a transaction; ``before`` is the provenance of all that stands before it."""
        if self._before is not None:
            raise ReplayFault("a transaction begins within another")
        if before.offset > self._visible.provenance.offset:
            self._newest = replace(self._newest, provenance=before)
        self._before = self._newest

    def _take(self, record: Message) -> None:
        match record:
            case EndTransactionRecord():
                self._started("ends")
                self._touched.include(self._touched_since)
                self._before, self._touched_since = None, Touched()
            case AbortTransactionRecord():
                self._newest = self._started("is aborted")
                self._before, self._touched_since = None, Touched()
            case _:
                touched = self._touched if self._before is None else self._touched_since
                self._newest = replay_tracked(self._newest, record, touched)

    def _started(self, what: str) -> Image:
        if self._before is None:
            raise ReplayFault(f"a transaction {what} that has not begun")
        return self._before

    def _show(self, image: Image) -> Delta:
        delta = delta_of(self._visible, image, self._touched)
        self._visible = image
        self._touched = Touched()
        return delta
