"""Placement of new partitions: striped over racks, and within a rack over its brokers.

    racks A, B, C with three brokers each, three replicas:
    A0 B0 C0    B1 C1 A1    C2 A2 B2    ...

Each partition starts at the next rack, and each use of a rack takes its next broker, so that first
replicas are spread as evenly as the others. After as many partitions as there are brokers the order
is shuffled, so that the same brokers do not always share partitions. Brokers without a rack form a
rack of their own.

A broker in controlled shutdown, or whose directories are all cordoned, gets no replica (KIP-1066).
A fenced broker gets a replica only if its rack has no other left, and never the first one, which is
the leader.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ottla.controller.decision import Refusal
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.errors import ErrorCode
from ottla.runtime.ports import Random

NO_BROKER = -1

Item = TypeVar("Item")


def place(
    image: Image, partitions: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]] | Refusal:
    """Return the replicas of each of so many new partitions, the leader first."""
    brokers = [
        broker
        for _, broker in sorted(image.cluster.brokers.items())
        if not broker.in_controlled_shutdown and not broker.is_cordoned()
    ]
    unfenced = sum(not broker.fenced for broker in brokers)
    text = None
    if replication_factor <= 0:
        text = "a partition needs at least one replica"
    elif not unfenced:
        text = "all brokers are fenced, or all their log directories are cordoned"
    elif replication_factor > len(brokers):
        text = f"{replication_factor} replicas cannot be placed on {len(brokers)} broker(s)"
        if len(brokers) < len(image.cluster.brokers):
            text += "; brokers that shut down or have only cordoned log directories do not count"
    if text is not None:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    stripes = _Stripes(brokers, random)
    return [stripes.place(replication_factor) for _ in range(partitions)]


class _Ring:
    """Brokers that are taken in turn, each once per partition."""

    def __init__(self, brokers: Iterable[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._start = random.below(len(self.brokers)) if self.brokers else 0
        self._taken = 0
        self._round = 0

    def take(self, round_: int) -> int:
        """Return the next broker of a round, -1 if all have been taken."""
        if not self.brokers:
            return NO_BROKER
        if self._round != round_:
            self._round, self._taken = round_, 0
            self._start = (self._start + 1) % len(self.brokers)
        if self._taken == len(self.brokers):
            return NO_BROKER
        self._taken += 1
        return self.brokers[(self._start + self._taken - 1) % len(self.brokers)]


class _Rack:
    def __init__(self, brokers: Sequence[BrokerRegistration], random: Random) -> None:
        self.fenced = _Ring((b.id for b in brokers if b.fenced), random)
        self.unfenced = _Ring((b.id for b in brokers if not b.fenced), random)

    def take(self, round_: int) -> int:
        """Return the next broker, a fenced one only after all others."""
        broker_id = self.unfenced.take(round_)
        return self.fenced.take(round_) if broker_id == NO_BROKER else broker_id


class _Stripes:
    """All racks, and the next one to use."""

    def __init__(self, brokers: Sequence[BrokerRegistration], random: Random) -> None:
        self._random = random
        names = {broker.rack for broker in brokers}
        ordered = sorted(names, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack([b for b in brokers if b.rack == n], random) for n in ordered]
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._start = random.below(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition. There are enough brokers for them."""
        if self._round and self._round % self._unfenced == 0:
            self._shuffle()
        count = len(self._racks)
        leading = self._start
        while (leader := self._racks[leading].unfenced.take(self._round)) == NO_BROKER:
            leading = (leading + 1) % count
        replicas = [leader]
        # From the first rack on; the leader's rack is skipped once, it has its replica.
        at, is_passed = self._start, False
        while len(replicas) < replication_factor:
            if at == leading and not is_passed:
                is_passed = True
            elif (replica := self._racks[at].take(self._round)) != NO_BROKER:
                replicas.append(replica)
            at = (at + 1) % count
        self._round += 1
        self._start = (self._start + 1) % count
        return tuple(replicas)

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._random)
        for rack in self._racks:
            _shuffle(rack.fenced.brokers, self._random)
            _shuffle(rack.unfenced.brokers, self._random)


def _shuffle(items: list[Item], random: Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = random.below(last + 1)
        items[last], items[other] = items[other], items[last]
