"""The interface of the node to a hosted partition; `host.py` implements it."""

from typing import TYPE_CHECKING, Protocol

from ottla.protocol.types import NodeId, Offset, Uuid
from ottla.replication.leading.isr_state import Proposal
from ottla.runtime.ports import Clock
from ottla.storage.directory.log_dir import LogDirectory

if TYPE_CHECKING:
    from ottla.replication.partition import Partition


class PartitionHost(Protocol):
    """What a partition needs of its node."""

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        ...

    @property
    def clock(self) -> Clock:
        """The node's clocks."""
        ...

    @property
    def lag_ms_max(self) -> int:
        """``replica.lag.time.max.ms``."""
        ...

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Whether a broker that fetches with this epoch may be in an ISR (KIP-903)."""
        ...

    def is_online(self, broker: int, directory: Uuid) -> bool:
        """Whether a broker's log directory is online, as far as is known."""
        ...

    def is_alive(self, broker: int) -> bool:
        """Whether a broker is registered and not fenced."""
        ...

    def propose(self, partition: "Partition", proposal: Proposal) -> None:
        """Propose another ISR to the controller, soon."""
        ...

    def suspect(self, partition: "Partition", offset: Offset) -> None:
        """Have the stored batches at ``offset`` checked soon."""
        ...

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        """Take a log directory offline, and every partition in it."""
        ...
