"""Replace the nodes of a cluster one by one, under load, and check the history.

The load is that of the nemesis: idempotent producers, a transactional one, a classic and a KIP-848
group and a reader without a group; here with a share group and a streams group beside them, where
the cluster has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.mixed.cluster import MixedCluster
from tests.mixed.kinds import Kind
from tests.mixed.streams import WordCounter
from tests.nemesis.environment import NodeEnvironment
from tests.nemesis.faults import Stage
from tests.nemesis.load import LOGGER, Worker
from tests.nemesis.recorder import Recorder
from tests.nemesis.security import TrialSecurity
from tests.nemesis.trial import (
    TOPIC,
    ClusterEnvironment,
    Outcome,
    Shape,
    Trial,
    check_history,
)

SHARERS = "sharers"
LOAD = Shape(rate=200.0, warm_up_s=2.0, rest_s=1.0, has_consumer_group=True)
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """One replacement: which node, by what, and whether it is killed for it."""

    node_id: int
    kind: Kind
    is_kill: bool = False

    def __str__(self) -> str:
        return f"{'kill' if self.is_kill else 'stop'} {self.node_id}, start {self.kind}"


class Sharer(Worker):
    """A member of a share group that accepts what it gets; every record comes at least once."""

    def __init__(self, name: str, recorder: Recorder, bootstrap: str) -> None:
        super().__init__(name, recorder)
        settings = {"bootstrap.servers": bootstrap, "client.id": name, "group.id": SHARERS}
        self._consumer = ShareConsumer(settings, logger=LOGGER)
        self.seen: set[str] = set()

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            try:
                messages = self._consumer.poll(POLL_S)
            except KafkaException as error:
                # A leader that is being replaced; the client finds the next one.
                LOGGER.info("%s: %s", self.name, error)
                continue
            found = [each for each in messages if each.error() is None]
            self.seen.update(each.value().decode() for each in found)
        self._consumer.close()


class RollingTrial(Trial):
    """The nemesis' trial, with a share group and an application of Kafka Streams.

    ``has_new_groups``: the cluster has these kinds of groups. ``directory`` is for files of the
    application.
    """

    has_new_groups = True
    directory = Path()

    def _make_workers(self) -> None:
        super()._make_workers()
        if self.has_new_groups:
            _read_from_start(self._admin)
            names = ("s0", "s1")
            sharers = [Sharer(each, self.recorder, self.cluster.bootstrap) for each in names]
            self.groups.append(sharers)  # type: ignore[arg-type]
            assert isinstance(self.cluster, MixedCluster)
            counter = WordCounter(self.recorder, self.cluster, self.directory)
            self.readers += [*sharers, counter]


def _read_from_start(admin: AdminClient) -> None:
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, SHARERS, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def roll(
    cluster: MixedCluster,
    steps: Sequence[Step],
    directory: Path,
    *,
    load: Shape = LOAD,
    has_new_groups: bool = True,
) -> Outcome:
    """Replace nodes under load, waiting after each until all is in sync; check the history.

    ``has_new_groups``: share groups and streams groups are part of the load.
    """

    def act(step: Step) -> Any:
        def replace(_: Stage) -> None:
            cluster.replace(step.node_id, step.kind, kill=step.is_kill)
            cluster.wait_whole()

        return replace

    recorder = Recorder(directory / "history.jsonl")
    environment = ClusterEnvironment(
        NodeEnvironment(directory, None, False), None, TrialSecurity(cluster.access)
    )
    named = {f"{number}: {step}": act(step) for number, step in enumerate(steps)}
    try:
        trial = RollingTrial(cluster, environment, load, recorder, 0, named)
        trial.has_new_groups, trial.directory = has_new_groups, directory
        trial.attempt(iter(named))
        return check_history(recorder)
    finally:
        recorder.close()


def there_and_back(nodes: Sequence[int], there: Kind, back: Kind) -> Iterator[Step]:
    """Yield every node there and back; every second one is killed for it, of both kinds."""
    for number, node_id in enumerate(nodes):
        yield Step(node_id, there, is_kill=number % 2 == 1)
    for number, node_id in enumerate(nodes):
        yield Step(node_id, back, is_kill=number % 2 == 0)
