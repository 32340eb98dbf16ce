"""Report what recovery could not keep: in the log, as a metric, and to `ottla doctor`.

Whether a loss matters depends on which other replicas have the records, which only the image says.
So losses are reported once the first image has been applied:

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
from ottla.storage.log.log_recovery import Loss

log = logging.getLogger(__name__)

FILE_NAME: Final = "recovery-losses.json"
# Limit of the file; the log has them all. A disk that damaged so many logs must be replaced.
REPORTED_MAX: Final = 1000


class ReportedLoss(msgspec.Struct, frozen=True):
    """A loss of one partition. ``directory`` is the partition's."""

    partition: str
    directory: str
    loss: Loss
    is_only_replica: bool

    @property
    def is_error(self) -> bool:
        """Whether records are lost that no other replica has."""
        return self.loss.is_known and self.is_only_replica

    def text(self) -> str:
        """Return the loss, and what to do about it, in one line."""
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
            return "No action needed: they are fetched again from the other replicas."
        if self.loss.kept:
            return "No action needed: the segments that it would have replaced are kept."
        return "No action needed: a crash leaves such a tail, and it was not acknowledged."

    def row(self) -> dict[str, object]:
        """Return the entry for `ottla doctor`."""
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

    def report(self, disk: Disk, directory: str, losses: Iterable[ReportedLoss]) -> None:
        """Log and count the losses of a log directory, and write them to its file.

        Raises:
            OSError: the file could not be written.
        """
        reported = list(losses)
        for each in reported:
            self.errors += each.is_error
            self.warnings += not each.is_error
            self.bytes += each.loss.length
            if each.is_error:
                log.error("recovery lost records %s", each.text())
            else:
                log.warning("recovery cut a log %s", each.text())
        path = f"{directory}/{FILE_NAME}"
        if reported:
            rows = [each.row() for each in reported[:REPORTED_MAX]]
            replace_file(disk, path, json.dumps(rows, indent=1).encode())
        elif disk.exists(path):
            disk.remove(path)
