"""The nemesis on mixed clusters: some nodes run Apache Kafka, and nodes change what they run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from tests.mixed.cluster import BROKER, COMBINED, MixedCluster, Shape, format_all, lay_out
from tests.mixed.kinds import KAFKA, OTTLA, Kind
from tests.nemesis.faults import Stage
from tests.nemesis.namespaces import INSECURE, Net

from ottla.testing import Cluster
from ottla.testing.access import ClusterAccess
from ottla.testing.cluster import begin_all
from ottla.testing.layout import voters_of

# Ottla's own key, which Kafka ignores: it fits the short election timeouts of the nemesis.
QUICK = {"ottla.controller.heartbeat.interval.ms": "150"}


def draw_kinds(nodes: int, seed: int) -> dict[int, Kind]:
    """Draw what each node runs: at least one of each kind, Kafka on half of them at most."""
    random = Random(seed)
    kafkas = random.sample(range(1, nodes + 1), random.randint(1, max(1, nodes // 2)))
    return {each: KAFKA if each in kafkas else OTTLA for each in range(1, nodes + 1)}


@contextmanager
def run_mixed_nodes(
    nodes: int,
    config: Mapping[str, object],
    directory: Path,
    net: Net | None,
    access: ClusterAccess,
    seed: int,
) -> Iterator[Cluster]:
    """Run a mixed cluster, each node in its own network where there is one. Raises NodeFailed."""
    kinds, voters = draw_kinds(nodes, seed), voters_of(nodes)
    print("kinds: " + ", ".join(f"{each} {kind}" for each, kind in kinds.items()), flush=True)
    shape = Shape(
        roles={each: COMBINED if each <= voters else BROKER for each in kinds},
        config=INSECURE | QUICK | {key: str(value) for key, value in config.items()},
        access=access,
    )
    cluster = lay_out(
        kinds,
        directory,
        shape,
        hosts=None if net is None else {each: net.host(each) for each in kinds},
        commands=None if net is None else {each: net.command(each) for each in kinds},
        wires=net,
    )
    format_all(cluster)
    with ExitStack() as stack:
        yield begin_all(cluster, cluster.hosts, stack)
    kills = [f"{count} of {kind}" for kind, count in cluster.killed.items()]
    print(f"killed: {', '.join(kills) or 'none'}", flush=True)


def _replace(stage: Stage, *, kill: bool) -> None:
    cluster = stage.cluster
    assert isinstance(cluster, MixedCluster)
    node_id = stage.any_node()
    kind = OTTLA if cluster.kinds[node_id].is_kafka else KAFKA
    print(f"node {node_id} becomes {kind}", flush=True)
    cluster.replace(node_id, kind, kill=kill)


def replace_node(stage: Stage) -> None:
    """Stop a node by controlled shutdown and start the other kind in its directories."""
    _replace(stage, kill=False)


def replace_killed(stage: Stage) -> None:
    """Kill a node and start the other kind in its directories."""
    _replace(stage, kill=True)


REPLACEMENTS: Mapping[str, Callable[[Stage], None]] = {
    "replace-node": replace_node,
    "replace-killed": replace_killed,
}
