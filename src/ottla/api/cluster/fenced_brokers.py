"""The brokers that Metadata lists for a moment after they were fenced.

librdkafka (since 2.10) removes a broker that a Metadata reply no longer lists. If the same reply
has new leaders for the partitions that it fetched from that broker, removing the broker resets
these leaders as well, and the partitions wait for the next check, a second later. A reply that has
the new leaders and still the old broker moves them at once. With Kafka's session timeout clients
see a dead broker in Metadata for 9 s, so they are prepared for one that does not answer.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from ottla.metadata.delta import Delta
from ottla.metadata.image import Image
from ottla.protocol.types import Millis
from ottla.runtime.ports import Clock

LISTED_MS: Final = 1_500
"""How long a fenced broker is listed: librdkafka asks for missing leaders once a second.

Not longer: a client that keeps the broker also keeps its growing reconnect backoff, and would be
late to notice a restart.
"""


class FencedBrokers(msgspec.Struct):
    """`Publisher`: remembers when brokers were fenced.

    A broker that was fenced before this node saw its first image is not known here, and neither is
    one that shut down in order: its clients were moved before it stopped.
    """

    clock: Clock
    name: str = "metadata-cache"
    _fenced_at: dict[int, Millis] = msgspec.field(default_factory=dict)

    def on_image(self, delta: Delta, image: Image) -> None:
        """Remember the brokers that were unfenced and are fenced now."""
        for broker_id, change in delta.brokers.items():
            old, new = change.old, change.new
            if new is None or not new.fenced:
                self._fenced_at.pop(broker_id, None)
            elif old is not None and old.is_active():
                self._fenced_at[broker_id] = self.clock.monotonic()

    def recent(self) -> Collection[int]:
        """Return the ids of brokers that were fenced a moment ago, ascending."""
        since = self.clock.monotonic() - LISTED_MS
        return sorted(each for each, at in self._fenced_at.items() if at > since)
