"""Both brokers, running and warm: what every comparison of rates with Apache Kafka starts from.

Kafka's rate is stable once its JIT compiler has seen about 5 GB of traffic, and memory is fast once
it has been touched. So a load first runs on both until each has served `Effort.warm_bytes` of it;
then the brokers take turns, and the one that waits is stopped.

    bench = Bench(FULL, folder)
    pair = bench.nodes()                           # started once, shared by all areas of a run
    pair.warm_up("small", lambda side: ...)        # once for each kind of load
    for side in pair.turns(rounds):                # Ottla, Kafka, Kafka, Ottla, Ottla, ...
        with side.topic("t") as topic: ...
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, sleep

from benchmarks.broker.brokers import Broker, kafka, ottla
from benchmarks.broker.line import delete_topic, make_topic
from benchmarks.broker.three import Three, three_of
from benchmarks.secure import Credentials, add_tls

MEMORY_BYTES = 3_000_000_000
"""How much memory is touched before the first turn: more than two turns need."""
GONE_S_MAX = 90.0
# Deleted files are gone soon, and a single node that was stopped is not fenced when it goes on.
# Everything else is a default. The nodes of a cluster are fenced for a moment when they go on, and
# may elect a controller; a turn begins when its topic is served with all replicas in sync.
CLUSTER_SETTINGS = "log.segment.delete.delay.ms=500\n"
SETTINGS = f"{CLUSTER_SETTINGS}broker.session.timeout.ms=3600000\n"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure. ``scale`` is the share of the full numbers of records and seconds."""

    rounds: int
    warm_bytes: float
    scale: float

    def of(self, amount: float) -> int:
        """Return a number of records, or of anything else, for this effort."""
        return max(1, int(amount * self.scale))


FULL = Effort(5, 5e9, 1.0)
QUICK = Effort(1, 2e7, 0.02)
"""For trying the code: nothing is warm, and its rows are not written."""


@dataclass(slots=True)
class Side:
    """One of the two that are compared: a node or a cluster."""

    name: str
    nodes: tuple[Broker, ...]
    credentials: Credentials | None = None
    """Of clients of its TLS listener; None without one."""
    three: Three | None = None
    """For requests to the nodes of a cluster; None of a single node."""
    _topics: Iterator[int] = field(default_factory=count)

    @property
    def bootstrap(self) -> str:
        """Where it serves."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def node(self) -> Broker:
        """Return its only node, or the first one of a cluster."""
        return self.nodes[0]

    def cpu_seconds(self) -> float:
        """Return the CPU time of all nodes since their start."""
        return sum(node.cpu_seconds() for node in self.nodes)

    def rss_bytes(self) -> int:
        """Return the resident memory of all nodes."""
        return sum(node.rss_bytes() for node in self.nodes)

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """Create a topic on all nodes; delete it afterwards, and wait until its files are gone.

        A file that was removed later would cost the turn of the other one, or the next turn.
        """
        name = f"bench-{next(self._topics)}"
        make_topic(self.nodes, name, partitions, isr_min=1 + len(self.nodes) // 2)
        yield name
        delete_topic(self.node, name)
        deadline = monotonic() + GONE_S_MAX
        while any(list((node.root / "data").glob(f"{name}-*")) for node in self.nodes):
            assert monotonic() < deadline, f"{self.name} keeps the files of {name}"
            sleep(0.05)


class Pair:
    """Ottla and Kafka."""

    def __init__(self, sides: Sequence[Side], effort: Effort) -> None:
        self.sides = tuple(sides)
        self.effort = effort
        self._warm: set[str] = set()

    @contextmanager
    def alone(self, side: Side) -> Iterator[None]:
        """Stop the other one meanwhile; all that was written before is on disk."""
        others = [node for other in self.sides if other is not side for node in other.nodes]
        os.sync()
        with ExitStack() as stack:
            for node in others:
                node.pause()
                stack.callback(node.resume)
            yield

    def turns(self, rounds: int) -> Iterator[Side]:
        """Yield the sides in turn, ``rounds`` times each; the order alternates."""
        for turn in range(rounds):
            for side in self.sides if turn % 2 == 0 else self.sides[::-1]:
                with self.alone(side):
                    yield side

    def warm_up(
        self, kind: str, load: Callable[[Side], float], amount: float | None = None
    ) -> None:
        """Repeat a load on each side until it has served enough, unless it has done so before.

        ``load`` returns how much it was, in bytes unless ``amount`` has another unit.
        """
        if kind in self._warm:
            return
        amount = self.effort.warm_bytes if amount is None else self.effort.of(amount)
        for side in self.sides:
            began, served = monotonic(), 0.0
            with self.alone(side):
                while served < amount:
                    served += load(side)
            say(f"{side.name} is warm for {kind}: {served:,.0f} in {monotonic() - began:.0f} s")
        self._warm.add(kind)


class Bench:
    """What the areas of one run share: the effort, a folder, and brokers, started when needed."""

    def __init__(self, effort: Effort, folder: Path) -> None:
        self.effort = effort
        self.folder = folder
        self._pairs: dict[str, Pair] = {}
        self._stack = ExitStack()
        self._names = count()

    def nodes(self) -> Pair:
        """Return one node of each kind, on the first core. Raises Missing."""
        return self._pair("nodes", self._one)

    def clusters(self) -> Pair:
        """Return a cluster of three nodes of each kind. Raises Missing."""
        return self._pair("clusters", self._three)

    def _pair(self, kind: str, make: Callable[[str, Path], Side]) -> Pair:
        if kind not in self._pairs:
            self.stop()  # two pairs at a time would disturb each other
            folder = self.folder / f"{kind}-{next(self._names)}"
            touch(self.folder, self.effort.of(MEMORY_BYTES))
            sides = [make(name, folder) for name in ("Ottla", "Kafka")]
            self._pairs[kind] = Pair(sides, self.effort)
        return self._pairs[kind]

    def _one(self, name: str, folder: Path) -> Side:
        broker = (ottla if name == "Ottla" else kafka)(folder / name)
        settings = broker.root / "server.properties"
        settings.write_text(settings.read_text() + SETTINGS)
        credentials = add_tls(broker)
        self._stack.callback(broker.stop)
        broker.format()
        broker.start()
        return Side(name, (broker,), credentials)

    def _three(self, name: str, folder: Path) -> Side:
        three = three_of(name, folder, CLUSTER_SETTINGS)
        nodes = tuple(three.nodes.values())
        self._stack.callback(three.hang_up)
        for node in nodes:
            self._stack.callback(node.stop)
            node.begin()
        for node in nodes:
            node.wait()
        return Side(name, nodes, three=three)

    def stop(self) -> None:
        """Stop all brokers; the next area gets new ones."""
        self._pairs.clear()
        self._stack.close()


def touch(folder: Path, size: int) -> None:
    """Touch the memory that files will need, and write back all dirty pages.

    A virtual machine gets memory that it has not used before from its host, at a tenth of the
    speed, which would hide everything else.
    """
    os.sync()
    block = bytes(1 << 18)
    path = folder / "touched"
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
    with suppress(FileNotFoundError):
        path.unlink()


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
