"""What a broker knows of the cluster: the newest image, and its own registration."""

from collections.abc import Callable

from ottla.metadata.image import EMPTY, Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.types import Uuid


class ClusterView:
    """The newest image, as of which partitions are hosted.

    `Replicas` sets it; ``broker_epoch`` returns the epoch of this broker's registration.
    """

    def __init__(self, broker_epoch: Callable[[], int]) -> None:
        self.image: Image = EMPTY
        self._broker_epoch = broker_epoch

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._broker_epoch()

    def _broker(self, broker: int) -> BrokerRegistration | None:
        return self.image.cluster.brokers.get(broker)

    def is_alive(self, broker: int) -> bool:
        """Whether a broker is registered and not fenced."""
        registration = self._broker(broker)
        return registration is not None and not registration.fenced

    def is_online(self, broker: int, directory: Uuid) -> bool:
        """Whether a broker's log directory is online, as far as is known."""
        registration = self._broker(broker)
        return registration is not None and registration.is_online(directory)

    def is_eligible(self, broker: int, broker_epoch: int | None) -> bool:
        """Whether a broker that fetches with this epoch may be in an ISR (KIP-903)."""
        registration = self._broker(broker)
        if registration is None or not registration.is_active() or broker_epoch is None:
            return False
        return broker_epoch in (-1, registration.epoch)
