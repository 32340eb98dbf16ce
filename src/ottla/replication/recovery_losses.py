"""What recovery could not keep, told to the operator: in the log, as a metric, and to the doctor.

Whether a loss matters depends on who else has the records, which only the image says. So losses are
told once the first image is taken in:

    error     records that were acknowledged or durable, and this was the only replica
    warning   anything else: the torn tail of a crash, or records that other replicas have

    recovery-losses.json     in each log directory: the losses of its last start, for `ottla doctor`
"""

import json
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.runtime.atomic_file import replace_file
from ottla.runtime.ports import Disk
from ottla.storage.log_recovery import Loss

log = logging.getLogger(__name__)

FILE_NAME: Final = "recovery-losses.json"
# In the file; the log has them all. A disk that has damaged so many logs is to be replaced.
NOTED_MAX: Final = 1000


class ReportedLoss(msgspec.Struct, frozen=True):
    """A loss of one partition. ``directory`` is the partition's."""

    partition: str
    directory: str
    loss: Loss
    is_only_replica: bool

    @property
    def is_error(self) -> bool:
        """Whether records are gone that nobody else has."""
        return self.loss.is_known and self.is_only_replica

    def text(self) -> str:
        """Return all of it, and what to do, in one line."""
        loss = self.loss
        upto = f" to {loss.known_end - 1} at least" if loss.is_known else " on"
        what = (
            f"partition={self.partition} offsets={loss.first_offset}{upto} bytes={loss.length} "
            f"file={loss.path} position={loss.position} cause={loss.reason}"
        )
        kept = f" The damaged bytes are in {', '.join(loss.kept)}." if loss.kept else ""
        return f"{what}.{kept} {self._advice()}"

    def _advice(self) -> str:
        if self.is_error:
            return (
                "These records were acknowledged and this is the only replica: stop the node, "
                f"check the rest with `ottla log verify {self.directory}`, and restore a backup."
            )
        if self.loss.is_known:
            return "Nothing is to be done: they are fetched again from the other replicas."
        if self.loss.kept:
            return "Nothing is to be done: what it would have replaced is kept."
        return "Nothing is to be done: a crash leaves such a tail, and it was not acknowledged."

    def row(self) -> dict[str, object]:
        """Return what the doctor reads."""
        return {
            "partition": self.partition,
            "severity": "error" if self.is_error else "warning",
            "text": self.text(),
        }


class RecoveryLosses:
    """The losses of this start. Counters never fall."""

    def __init__(self) -> None:
        self.errors = 0
        self.warnings = 0
        self.bytes = 0

    @property
    def counts(self) -> tuple[int, int, int]:
        """Errors, warnings, and the bytes of both."""
        return self.errors, self.warnings, self.bytes

    def tell(self, disk: Disk, directory: str, notes: Iterable[ReportedLoss]) -> None:
        """Log and count the losses of a log directory, and write them down for the doctor.

        Raises:
            OSError: they could not be written down.
        """
        told = list(notes)
        for note in told:
            self.errors += note.is_error
            self.warnings += not note.is_error
            self.bytes += note.loss.length
            if note.is_error:
                log.error("recovery lost records %s", note.text())
            else:
                log.warning("recovery cut a log %s", note.text())
        path = f"{directory}/{FILE_NAME}"
        if told:
            rows = [note.row() for note in told[:NOTED_MAX]]
            replace_file(disk, path, json.dumps(rows, indent=1).encode())
        elif disk.exists(path):
            disk.remove(path)
