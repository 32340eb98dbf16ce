"""Applies batches of the log to an image, hiding open metadata transactions (KIP-868).

    Begin  record  record  ...  End        all of them count, from the end on
    Begin  record  record  ...  Abort      none of them counts

A transaction may span batches. Outside of one, every batch counts at once. The published image
never contains a record of an open transaction, and its provenance never reaches into one: a
snapshot of it, together with the log after it, is the whole state.

The active controller decides on a newer state: `newest` includes the records of the open
transaction, since it wrote them itself.
"""

from collections.abc import Generator, Sequence
from typing import Final

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

# Records of a batch that are replayed between two steps; each takes about 0.01 ms.
STEP_RECORDS: Final = 256


class BatchLoader:
    """Follows a log, batch by batch. Pure: the batches determine the result.

    After a `ReplayFault` the loader is unusable; drop it.
    """

    def __init__(self, image: Image = EMPTY) -> None:
        self._visible = image
        self._newest = image
        self._touched = Touched()
        # Of an open transaction: the image it started from, and the keys touched since.
        self._before: Image | None = None
        self._touched_since = Touched()

    @property
    def image(self) -> Image:
        """The image that may be published."""
        return self._visible

    @property
    def newest(self) -> Image:
        """The image with the records of an open transaction, if there is one."""
        return self._newest

    def is_in_transaction(self) -> bool:
        """Return whether a transaction has begun and not ended."""
        return self._before is not None

    def load(self, records: Sequence[Message], provenance: Provenance) -> Delta | None:
        """Apply a batch; ``provenance`` is that of its last record.

        Returns:
            The change of the published image, perhaps empty; None if it did not change because all
            of the batch is in an open transaction.
        """
        steps = self.loading(records, provenance)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                delta: Delta | None = end.value
                return delta

    def loading(
        self, records: Sequence[Message], provenance: Provenance
    ) -> Generator[None, None, Delta | None]:
        """Apply a batch in steps and return what `load` returns.

        `image` does not change before the end; nothing else may be loaded until then.
        """
        offset_first = provenance.offset - len(records) + 1
        for offset, record in enumerate(records, offset_first):
            if offset > offset_first and (offset - offset_first) % STEP_RECORDS == 0:
                yield
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
        """Replace everything by ``image``, read from a snapshot."""
        delta = delta_between(self._visible, image)
        self._visible = self._newest = image
        self._touched, self._touched_since = Touched(), Touched()
        self._before = None
        return delta

    def _begin(self, before: Provenance) -> None:
        """Begin a transaction; ``before`` is the provenance of everything before it."""
        if self._before is not None:
            raise ReplayFault("a transaction began within another")
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
