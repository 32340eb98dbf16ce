"""What happens to the logs of a broker, for the services that react to it.

A service subscribes in its constructor. So a partition, or a service that changes logs, needs no
service that is constructed after it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.protocol.types import Offset
from ottla.storage.directory.log_dir import LogDirectory

if TYPE_CHECKING:
    from ottla.replication.leading.isr_state import Proposal
    from ottla.replication.partition import Partition

OfPartition = Callable[["Partition"], None]
Proposed = Callable[["Partition", "Proposal"], None]
Suspected = Callable[["Partition", Offset], None]
Check = Callable[["Partition", Callable[[], None]], None]
Moved = Callable[["Partition", LogDirectory], None]


class LogEvents:
    """The subscribers of each event; they are called in the order in which they subscribed."""

    def __init__(self) -> None:
        self._truncated: list[OfPartition] = []
        self._deleted: list[OfPartition] = []
        self._repaired: list[OfPartition] = []
        self._released: list[OfPartition] = []
        self._placed: list[OfPartition] = []
        self._usable: list[OfPartition] = []
        self._lost: list[OfPartition] = []
        self._moved: list[Moved] = []
        self._proposed: list[Proposed] = []
        self._suspected: list[Suspected] = []
        self._checks: list[Check] = []

    # -- subscribe -----------------------------------------------------------------

    def on_truncated(self, callback: OfPartition) -> None:
        """Call back whenever a log was truncated, before anything is appended to it."""
        self._truncated.append(callback)

    def on_deleted(self, callback: OfPartition) -> None:
        """Call back whenever a log was deleted."""
        self._deleted.append(callback)

    def on_moved(self, callback: Moved) -> None:
        """Call back whenever a log has moved to another directory, with the old directory."""
        self._moved.append(callback)

    def on_repaired(self, callback: OfPartition) -> None:
        """Call back whenever a log has no known damage any more."""
        self._repaired.append(callback)

    def on_released(self, callback: OfPartition) -> None:
        """Call back whenever a replica that was held may lead and follow."""
        self._released.append(callback)

    def on_placed(self, callback: OfPartition) -> None:
        """Call back whenever a replica is in another directory than the image says."""
        self._placed.append(callback)

    def on_usable(self, callback: OfPartition) -> None:
        """Call back whenever a replica that was lost or damaged can be used."""
        self._usable.append(callback)

    def on_lost(self, callback: OfPartition) -> None:
        """Call back whenever a replica cannot be used, as if its directory had failed."""
        self._lost.append(callback)

    def on_proposed(self, callback: Proposed) -> None:
        """Call back whenever a leader proposes another ISR."""
        self._proposed.append(callback)

    def on_suspected(self, callback: Suspected) -> None:
        """Call back whenever the stored batches at an offset may be damaged."""
        self._suspected.append(callback)

    def on_check(self, callback: Check) -> None:
        """Call back to have a whole log checked, with what to call afterwards."""
        self._checks.append(callback)

    # -- notify --------------------------------------------------------------------

    def truncated(self, partition: "Partition") -> None:
        """Notify that a log was truncated."""
        for callback in self._truncated:
            callback(partition)

    def deleted(self, partition: "Partition") -> None:
        """Notify that a log was deleted."""
        for callback in self._deleted:
            callback(partition)

    def moved(self, partition: "Partition", left: LogDirectory) -> None:
        """Notify that a log has moved, before it is deleted from its old directory."""
        for callback in self._moved:
            callback(partition, left)

    def repaired(self, partition: "Partition") -> None:
        """Notify that a log has no known damage any more."""
        for callback in self._repaired:
            callback(partition)

    def release(self, partition: "Partition") -> None:
        """Let a replica that was held lead and follow."""
        partition.is_held = False
        for callback in self._released:
            callback(partition)

    def placed(self, partition: "Partition") -> None:
        """Notify that a replica is in another directory than the image says."""
        for callback in self._placed:
            callback(partition)

    def usable(self, partition: "Partition") -> None:
        """Notify that a replica can be used where it is."""
        for callback in self._usable:
            callback(partition)

    def lost(self, partition: "Partition") -> None:
        """Notify that a replica cannot be used: another one has to lead."""
        for callback in self._lost:
            callback(partition)

    def proposed(self, partition: "Partition", proposal: "Proposal") -> None:
        """Notify that a leader proposes another ISR."""
        for callback in self._proposed:
            callback(partition, proposal)

    def suspected(self, partition: "Partition", offset: Offset) -> None:
        """Notify that the stored batches at ``offset`` may be damaged."""
        for callback in self._suspected:
            callback(partition, offset)

    def check(self, partition: "Partition", done: Callable[[], None]) -> bool:
        """Have a whole log checked soon; False if nothing here checks logs."""
        for callback in self._checks:
            callback(partition, done)
        return bool(self._checks)
