"""One run: a cluster under load, faults one after the other, and the outcome.

load begins - fault, repair, pause - ... - load ends - all replicas in sync - final read - outcome
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.nemesis import namespaces, tier
from tests.nemesis.environment import NodeEnvironment, prepare
from tests.nemesis.faults import FAULTS, NEED_DISKS, NEED_SHIM, Stage, missing_for
from tests.nemesis.load import LOGGER, Consuming, Member, PacedProducer, Reader, Worker, title
from tests.nemesis.namespaces import Net
from tests.nemesis.recorder import Recorder, now
from tests.nemesis.replicas import dump
from tests.nemesis.security import PLAINTEXT, TrialSecurity, secure, sessions_that_ended
from tests.nemesis.transactions import TransactionalProducer
from tests.nemesis.watch import Watcher, partitions_of, wait_until

from ottla.testing import Cluster, NodeFailed, run_cluster
from ottla.testing.history.anomalies import Anomaly
from ottla.testing.history.check import check
from ottla.testing.history.events import Fault, Final, Heal, Phase, Poll, Send
from ottla.testing.layout import HOST

# A fault has to last longer than these timeouts in sequence, or no leader is ever replaced: a
# lost controller is noticed first, and its successor waits a whole session. With shorter
# timeouts a busy machine looks like a crashed node, and replicas never stay in sync.
QUICK: dict[str, object] = {
    "broker.session.timeout.ms": 2500,
    "controller.quorum.fetch.timeout.ms": 1500,
    "controller.quorum.election.timeout.ms": 700,
    "log.retention.check.interval.ms": 1000,
    "log.dirs": "data,data-2",
}
TOPIC = "nemesis"
GROUP = "readers"
MODERN = "modern-readers"
WHOLE_S_MAX = 60.0
READ_S_MAX = 60.0
SEEN_S_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The parameters of a run. ``rate`` is records per second, of all producers together;
    ``is_apart``: each node in its own network, where that is permitted; ``has_consumer_group``: a
    group of the consumer protocol (KIP-848) beside the classic one; ``is_mixed``: some nodes run
    Apache Kafka, drawn by the seed, and nodes are replaced by the other kind; ``security``: a name
    of `tests.nemesis.security.MODES`, between nodes and to clients; ``session_ms``: the time within
    which a login has to be repeated, 0 for no limit; ``is_tiered``: sealed segments are copied to a
    directory and deleted on the nodes within seconds.
    """

    nodes: int = 3
    partitions: int = 3
    producers: int = 2
    members: int = 2
    rate: float = 100.0
    warm_up_s: float = 2.0
    hold_s: float = 5.0
    rest_s: float = 3.0
    is_apart: bool = True
    has_transactions: bool = True
    has_consumer_group: bool = False
    is_mixed: bool = False
    is_tiered: bool = False
    security: str = PLAINTEXT
    session_ms: int = 0
    config: dict[str, object] = field(default_factory=lambda: dict(QUICK))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. It is good when there is neither an anomaly nor a problem."""

    anomalies: list[Anomaly]
    problems: list[str]
    acknowledged: int
    seen: int
    slowest_s: float

    @property
    def is_good(self) -> bool:
        return not self.anomalies and not self.problems

    def __str__(self) -> str:
        lines = [str(each) for each in self.anomalies] + self.problems
        summary = (
            f"{self.acknowledged} acknowledged, {self.seen} seen, "
            f"slowest acknowledgement {self.slowest_s:.1f} s"
        )
        return "\n".join([summary, *lines])


@dataclass(frozen=True)
class ClusterEnvironment:
    """The environment of a cluster: disks and clocks, networks where each node has its own, and
    the directory of the tier if there is one.
    """

    nodes: NodeEnvironment
    net: Net | None
    security: TrialSecurity
    store: Path | None = None


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join()


class Trial:
    """A cluster under load, with faults. ``catalogue`` has the faults by name."""

    def __init__(
        self,
        cluster: Cluster,
        environment: ClusterEnvironment,
        shape: Shape,
        recorder: Recorder,
        seed: int,
        catalogue: Mapping[str, Callable[[Stage], None]] = FAULTS,
    ) -> None:
        self.cluster, self.shape, self.recorder = cluster, shape, recorder
        self._catalogue = catalogue
        self._store = environment.store
        self._access = environment.security.access
        self._settings = environment.security.client_settings(cluster.bootstrap)
        self._admin = AdminClient(dict(self._settings), logger=LOGGER)
        self._watcher = Watcher(recorder, cluster, TOPIC, shape.partitions)
        self.producers: list[PacedProducer | TransactionalProducer] = []
        self.members: list[Member] = []
        self.groups: list[list[Member]] = []
        self.readers: list[Worker] = []
        self.stage = Stage(
            cluster,
            self._watcher,
            Random(seed),
            shape.hold_s,
            self.wait_whole,
            environment.nodes,
            environment.net,
        )

    @property
    def _at(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, index) for index in range(self.shape.partitions)]

    def create_topic(self) -> None:
        config = {"min.insync.replicas": "2", **(tier.TOPIC_CONFIG if self._store else {})}
        new = NewTopic(TOPIC, self.shape.partitions, 3, config=config)
        self._admin.create_topics([new])[TOPIC].result(30)
        self.wait_whole()

    def _make_workers(self) -> None:
        shape, recorder, where = self.shape, self.recorder, self._settings
        rate = shape.rate / shape.producers
        self.producers = [
            PacedProducer(f"p{each}", recorder, where, TOPIC, shape.partitions, rate)
            for each in range(shape.producers)
        ]
        if shape.has_transactions:
            writer = TransactionalProducer("txn", recorder, where, TOPIC, shape.partitions)
            self.producers.append(writer)
        self.members = [
            Member(f"m{each}", recorder, where, GROUP, TOPIC) for each in range(shape.members)
        ]
        self.groups = [self.members]
        if shape.has_consumer_group:
            modern = {"group.protocol": "consumer"}
            self.groups.append(
                [
                    Member(f"c{each}", recorder, where, MODERN, TOPIC, modern)
                    for each in range(shape.members)
                ]
            )
        self.reader = Reader("reader", recorder, where, self._at)
        members = [member for group in self.groups for member in group]
        self.readers = [self.reader, self._watcher, *members]

    def run(self, faults: Iterable[str]) -> None:
        """Inject the faults under load, and wait for recovery after each."""
        self.create_topic()
        self._make_workers()
        for worker in (*self.producers, *self.readers):
            worker.start()
        try:
            wait_until(lambda: len(self._watcher.leaders) == self.shape.partitions, 30, "leaders")
            time.sleep(self.shape.warm_up_s)
            for name in faults:
                self._suffer(name)
        finally:
            _end(self.producers)
            # A group reads everything at least once, despite all faults.
            for group in self.groups:
                self._wait_seen(group, f"the group of {group[0].name}")
            _end(self.readers)
        self._finish()

    def attempt(self, faults: Iterable[str]) -> None:
        """Run; a failed recovery is a problem, and everything recorded until then counts."""
        try:
            self.run(faults)
        except (TimeoutError, NodeFailed) as error:
            self.recorder.complain(f"it never came back: {error}")

    def _wait_seen(self, readers: Sequence[Consuming], who: str) -> None:
        """Wait until the readers have received everything acknowledged so far."""
        wanted = set[str]().union(*(each.acknowledged.copy() for each in self.producers))

        def missing() -> set[str]:
            return wanted.difference(*(each.seen.copy() for each in readers))

        try:
            wait_until(lambda: not missing(), SEEN_S_MAX, who)
        except TimeoutError:
            left = missing()
            self.recorder.complain(f"{who} was not given {len(left)} values, as {min(left)}")

    def _suffer(self, name: str) -> None:
        began = time.monotonic()
        self.recorder.add(Fault(time=now(), process="nemesis", name=name))
        self._catalogue[name](self.stage)
        self.recorder.add(Heal(time=now(), process="nemesis"))
        self.wait_whole()
        self._wait_seen([self.reader], "the reader")
        print(f"{name}: {time.monotonic() - began:.1f} s until whole", flush=True)
        time.sleep(self.shape.rest_s)

    def wait_whole(self) -> None:
        """Wait until every node reports every replica in sync. Raises TimeoutError."""
        wait_until(self._is_whole, WHOLE_S_MAX, "all replicas in sync")

    def _is_whole(self) -> bool:
        for node_id in self.cluster.node_ids:
            found = partitions_of(self.cluster, node_id, TOPIC)
            if len(found) != self.shape.partitions:
                return False
            if any(len(each.isr_nodes) != len(each.replica_nodes) for each in found):
                return False
        return True

    def _finish(self) -> None:
        self.wait_whole()
        reader = Reader("final", self.recorder, self._settings, self._at)
        reader.begin()
        asked = now()
        ends = self._ends()
        for index in ends:
            self.recorder.add(Final(time=asked, process="final", partition=title(TOPIC, index)))
        if not reader.read_to({(TOPIC, index): end for index, end in ends.items()}, READ_S_MAX):
            self.recorder.complain("the final read did not come to its end")
        if self._store is not None:
            for finding in tier.audit(self._store, self.cluster.bootstrap, self._access.options):
                self.recorder.complain(finding)
        for event in dump(self.cluster, TOPIC, ends):
            self.recorder.add(event)

    def _ends(self) -> dict[int, int]:
        wanted = {at: OffsetSpec.latest() for at in self._at}
        found = self._admin.list_offsets(wanted)
        return {at.partition: each.result(30).offset for at, each in found.items()}


def check_history(recorder: Recorder) -> Outcome:
    """Check the recorded history."""
    events = recorder.events
    begun: dict[str, int] = {}
    slowest, acknowledged = 0, 0
    seen: set[str] = set()
    for event in events:
        if isinstance(event, Send) and event.phase is Phase.INVOKE:
            begun[event.value] = event.time
        elif isinstance(event, Send) and event.phase is Phase.OK:
            acknowledged += 1
            slowest = max(slowest, event.time - begun[event.value])
        elif isinstance(event, Poll):
            seen.update(value for _, value in event.records)
    anomalies = check(events)
    return Outcome(anomalies, list(recorder.problems), acknowledged, len(seen), slowest / 1e9)


def run_trial(
    shape: Shape, faults: Iterable[str], *, seed: int, directory: Path | None = None
) -> Outcome:
    """Start a cluster, inject faults, and check the result."""
    with ExitStack() as stack:
        root = directory or Path(tempfile.mkdtemp(prefix="nemesis-"))
        if directory is None:
            stack.callback(shutil.rmtree, root, ignore_errors=True)
        recorder = Recorder(root / "history.jsonl")
        stack.callback(recorder.close)
        nodes, net = _node_environment(shape, root / "cluster", stack), _networks(shape, stack)
        hosts = [HOST] if net is None else [net.host(node_id) for node_id in net.nodes]
        store = root / "tier" if shape.is_tiered else None
        if store is not None:
            shape = replace(shape, config={**shape.config, **tier.node_config(store)})
        security = secure(shape.security, root, hosts, shape.session_ms)
        environment = ClusterEnvironment(nodes, net, security, store)
        cluster = stack.enter_context(_cluster(shape, environment, root / "cluster", seed))
        trial = Trial(cluster, environment, shape, recorder, seed, catalogue(shape))
        try:
            trial.attempt(_offered(trial.stage, faults))
            for node_id in cluster.node_ids:
                for line in sessions_that_ended(cluster.output(node_id)):
                    recorder.complain(f"node {node_id} closed a connection: {line}")
            return check_history(recorder)
        finally:
            for node_id in cluster.node_ids:
                (root / f"node-{node_id}.log").write_text(cluster.output(node_id))


def catalogue(shape: Shape) -> Mapping[str, Callable[[Stage], None]]:
    """Return the faults of a run by name."""
    if not shape.is_mixed:
        return FAULTS
    # Loaded only here: all other runs need no Java.
    from tests.mixed.nemesis import REPLACEMENTS

    # Disks and clocks of Apache Kafka's processes are left alone.
    own = {name: fault for name, fault in FAULTS.items() if name not in NEED_DISKS | NEED_SHIM}
    return {**own, **REPLACEMENTS}


def _node_environment(shape: Shape, root: Path, stack: ExitStack) -> NodeEnvironment:
    """Prepare disks and clocks, which a mixed cluster does not have."""
    if not shape.is_mixed:
        return prepare(root, shape.nodes, stack)
    root.mkdir(parents=True, exist_ok=True)
    return NodeEnvironment(root, None, has_disks=False)


def _networks(shape: Shape, stack: ExitStack) -> Net | None:
    """Give every node its own network, or report why that is impossible."""
    why = "not asked for" if not shape.is_apart else namespaces.missing()
    if why is not None:
        print(f"nodes are cut off by relays on loopback: {why}", flush=True)
        return None
    return stack.enter_context(namespaces.networks(shape.nodes))


def _cluster(
    shape: Shape, environment: ClusterEnvironment, directory: Path, seed: int
) -> AbstractContextManager[Cluster]:
    if shape.is_mixed:
        from tests.mixed.nemesis import run_mixed_nodes

        access = environment.security.access
        return run_mixed_nodes(shape.nodes, shape.config, directory, environment.net, access, seed)
    variables = environment.nodes.environment
    if environment.net is not None:
        return namespaces.run_apart(
            environment.net, shape.config, directory, variables, environment.security.access
        )
    return run_cluster(
        shape.nodes,
        processes=True,
        config=shape.config,
        directory=directory,
        environment=variables,
        access=environment.security.access,
    )


def _offered(stage: Stage, faults: Iterable[str]) -> Iterator[str]:
    for name in faults:
        missing = missing_for(stage, name)
        if missing is None:
            yield name
        else:
            print(f"{name}: left out, {missing}", flush=True)
