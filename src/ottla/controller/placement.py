"""Placement of new partitions: striped over racks, then over hosts, then over brokers.

    racks A, B, C with three brokers each, three replicas:
    A0 B0 C0    B1 C1 A1    C2 A2 B2    ...

Each partition starts at the next rack, and each use of a rack takes its next broker, so that first
replicas are spread as evenly as the others. After as many partitions as there are brokers the order
is shuffled, so that the same brokers do not always share partitions. Brokers without a rack form a
rack of their own.

A broker in controlled shutdown, or whose directories are all cordoned, gets no replica (KIP-1066).

Brokers with the same advertised host run on one machine and fail together. Every rack gets a
replica before any rack gets a second one; then replicas go to the hosts with the fewest replicas of
the partition. So two replicas share a host only if no other host of those racks has an unfenced
broker left. Where all brokers have one host, or each has its own, this is Kafka's placement.

A fenced broker gets a replica only if its rack has no other left, and never the first one, which is
the leader.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeVar

from ottla.controller.decision import Refusal
from ottla.metadata.image import Image
from ottla.metadata.registrations import BrokerRegistration
from ottla.protocol.errors import ErrorCode
from ottla.runtime.ports import Random

NO_BROKER = -1

Item = TypeVar("Item")


def place(
    image: Image,
    partitions: int,
    replication_factor: int,
    random: Random,
    listener: str | None = None,
) -> list[tuple[int, ...]] | Refusal:
    """Return the replicas of each of so many new partitions, the leader first.

    The host of a broker is that of its listener of the name ``listener``, see `host_of`.
    """
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
    stripes = _Stripes(brokers, _hosts(brokers, listener), random)
    return [stripes.place(replication_factor) for _ in range(partitions)]


def host_of(broker: BrokerRegistration, listener: str | None) -> str | None:
    """Return the advertised host of a listener, of the first by name if the broker has none of that
    name. None if it has no listener at all.
    """
    if not broker.listeners:
        return None
    name = listener or ""
    name = name if name in broker.listeners else min(broker.listeners)
    return broker.listeners[name].host.lower().rstrip(".")


def _hosts(brokers: Sequence[BrokerRegistration], listener: str | None) -> dict[int, object]:
    """Return the host of each broker; its own id if it shares none, or if all share one."""
    names = {broker.id: host_of(broker, listener) for broker in brokers}
    is_one_host = len(set(names.values())) == 1
    return {
        broker_id: broker_id if is_one_host or name is None else name
        for broker_id, name in names.items()
    }


class _Ring:
    """Brokers of a rack in the order in which they are taken, each once per partition."""

    def __init__(self, brokers: Iterable[int], hosts: Mapping[int, object], random: Random) -> None:
        self._hosts = hosts
        self._brokers = _interleaved(sorted(brokers), hosts)
        self._start = random.below(len(self._brokers)) if self._brokers else 0
        self._round = 0

    def next(self, round_: int, taken: Sequence[int], used: Mapping[object, int]) -> int:
        """Return the next broker that is not ``taken``, -1 if all are: the first one whose host has
        the fewest replicas. ``used`` counts those of each host.
        """
        if self._brokers and self._round != round_:
            self._round = round_
            self._start = (self._start + 1) % len(self._brokers)
        best, fewest = NO_BROKER, 0
        for at in range(len(self._brokers)):
            broker_id = self._brokers[self._start + at - len(self._brokers)]
            if broker_id in taken:
                continue
            count = used[self._hosts[broker_id]]
            if best == NO_BROKER or count < fewest:
                best, fewest = broker_id, count
            if not count:
                break
        return best

    def shuffle(self, random: Random) -> None:
        """Change the order of the brokers; neighbours still have different hosts."""
        _shuffle(self._brokers, random)
        self._brokers = _interleaved(self._brokers, self._hosts)


class _Rack:
    def __init__(
        self,
        brokers: Sequence[BrokerRegistration],
        hosts: Mapping[int, object],
        random: Random,
    ) -> None:
        self.fenced = _Ring((b.id for b in brokers if b.fenced), hosts, random)
        self.unfenced = _Ring((b.id for b in brokers if not b.fenced), hosts, random)

    def next(self, round_: int, taken: Sequence[int], used: Mapping[object, int]) -> int:
        """Return the next broker, a fenced one only after all others; -1 if all are taken."""
        broker_id = self.unfenced.next(round_, taken, used)
        if broker_id == NO_BROKER:
            return self.fenced.next(round_, taken, used)
        return broker_id


class _Choice(NamedTuple):
    """A rack for the next replica; the smallest is the best."""

    is_rack_used: bool
    replicas_on_host: int
    replicas_in_rack: int
    distance: int
    rack: int
    broker_id: int


class _Stripes:
    """All racks, and the next one to use."""

    def __init__(
        self,
        brokers: Sequence[BrokerRegistration],
        hosts: Mapping[int, object],
        random: Random,
    ) -> None:
        self._random = random
        self._hosts = hosts
        names = {broker.rack for broker in brokers}
        ordered = sorted(names, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack([b for b in brokers if b.rack == n], hosts, random) for n in ordered]
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._start = random.below(len(self._racks))
        self._round = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition. There are enough brokers for them."""
        if self._round and self._round % self._unfenced == 0:
            self._shuffle()
        replicas: list[int] = []
        in_rack, on_host = [0] * len(self._racks), Counter[object]()
        while len(replicas) < replication_factor:
            chosen = self._choose(replicas, in_rack, on_host)
            replicas.append(chosen.broker_id)
            in_rack[chosen.rack] += 1
            on_host[self._hosts[chosen.broker_id]] += 1
        self._round += 1
        self._start = (self._start + 1) % len(self._racks)
        return tuple(replicas)

    def _choose(
        self, replicas: Sequence[int], in_rack: Sequence[int], on_host: Mapping[object, int]
    ) -> _Choice:
        """Return the best choice for one more replica; the first must not be fenced."""
        best: _Choice | None = None
        for distance in range(len(self._racks)):
            at = (self._start + distance) % len(self._racks)
            if best is not None and in_rack[at] and not best.is_rack_used:
                continue
            rack = self._racks[at] if replicas else self._racks[at].unfenced
            broker_id = rack.next(self._round, replicas, on_host)
            if broker_id == NO_BROKER:
                continue
            count = on_host[self._hosts[broker_id]]
            choice = _Choice(in_rack[at] > 0, count, in_rack[at], distance, at, broker_id)
            best = choice if best is None else min(best, choice)
            if not (best.is_rack_used or best.replicas_on_host):
                break
        assert best is not None
        return best

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._random)
        for rack in self._racks:
            rack.fenced.shuffle(self._random)
            rack.unfenced.shuffle(self._random)


def _interleaved(brokers: Sequence[int], hosts: Mapping[int, object]) -> list[int]:
    """Return the brokers so that hosts alternate; otherwise in the given order.

    Without it, the first broker of a host would get the replicas of all its neighbours.
    """
    by_host: dict[object, list[int]] = {}
    for broker_id in brokers:
        by_host.setdefault(hosts[broker_id], []).append(broker_id)
    rows = zip_longest(*by_host.values(), fillvalue=NO_BROKER)
    return [broker_id for row in rows for broker_id in row if broker_id != NO_BROKER]


def _shuffle(items: list[Item], random: Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = random.below(last + 1)
        items[last], items[other] = items[other], items[last]
