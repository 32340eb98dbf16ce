"""Voters of both kinds form one quorum: leaders are killed, voters are added and removed."""

import re
from pathlib import Path
from random import Random

import pytest
from tests.mixed.clients import Clients
from tests.mixed.cluster import CONTROLLER, MixedCluster, Shape, run_mixed, wait_until
from tests.mixed.kinds import KAFKA, OTTLA, Kind, need
from tests.mixed.metadata import assert_images_equal, assert_logs_equal, log_of
from tests.mixed.settings import ONE
from tests.seeds import seeds

pytestmark = pytest.mark.jvm

KILLS = 4
ANSWER_S_MAX = 60.0
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


def drawn_kinds(seed: int, nodes: int) -> dict[int, Kind]:
    """Draw what each node runs; there is at least one of each kind."""
    order = list(range(1, nodes + 1))
    random = Random(seed)
    random.shuffle(order)
    kafkas = order[: random.randint(1, nodes - 1)]
    return {node_id: KAFKA if node_id in kafkas else OTTLA for node_id in range(1, nodes + 1)}


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", seeds(1, deep=10))
def test_committed_metadata_survives_the_leaders_of_a_mixed_quorum(
    seed: int, is_static: bool, tmp_path: Path
) -> None:
    need()
    # Every third quorum has five voters.
    kinds = drawn_kinds(seed * 2 + is_static, 5 if seed % 3 == 2 else 3)
    with run_mixed(kinds, tmp_path, Shape(is_static=is_static)) as cluster:
        made = []
        for turn in range(KILLS):
            made.append(f"topic-{turn}")
            Clients(cluster).create(made[-1], replicas=2)
            leader = cluster.wait_leader()
            cluster.kill(leader)
            successor = cluster.wait_leader(other_than=leader)
            made.append(f"topic-{turn}-of-{successor}")
            # A client of its own: librdkafka waits for the broker that it was sent to before.
            Clients(cluster).create(made[-1], replicas=2, has_all_brokers=False)
            cluster.start(leader)
            cluster.wait_whole()
        for node_id in cluster.brokers:
            reply = cluster.metadata(node_id)
            assert reply is not None
            assert set(made) <= {str(topic.name) for topic in reply.topics}, kinds
        assert assert_logs_equal(cluster) > 10
        quorum = cluster.quorum()
        assert quorum is not None
        upto = int(quorum.topics[0].partitions[0].high_watermark)
        image = assert_images_equal(log_of(cluster, 1), upto)
        assert set(made) <= {topic.name for topic in image.topics.by_id.values()}


def voters(cluster: MixedCluster) -> set[int]:
    reply = cluster.quorum()
    if reply is None:
        return set()
    return {int(each.replica_id) for each in reply.topics[0].partitions[0].current_voters}


def add_by_tool(cluster: MixedCluster, node_id: int) -> None:
    properties = str(cluster.settings(node_id))
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", properties)
    cluster.tool(QUORUM_TOOL, *where, "add-controller")


def directory_id(cluster: MixedCluster, node_id: int) -> str:
    text = (cluster.data(node_id) / "meta.properties").read_text()
    found = re.search(r"^directory\.id=(.+)$", text, re.M)
    assert found is not None
    return found[1].replace("\\", "")


@pytest.mark.parametrize(
    ("first", "joiner", "is_automatic"),
    [(KAFKA, OTTLA, True), (KAFKA, OTTLA, False), (OTTLA, KAFKA, True), (OTTLA, KAFKA, False)],
    ids=["ottla-joins-itself", "ottla-is-added", "kafka-joins-itself", "kafka-is-added"],
)
def test_voter_of_the_other_kind_joins_leads_and_leaves(
    first: Kind, joiner: Kind, is_automatic: bool, tmp_path: Path
) -> None:
    need()
    joining = {"controller.quorum.auto.join.enable": "true"} if is_automatic else {}
    shape = Shape(roles={2: CONTROLLER}, joiners=frozenset({2}), config=ONE, own={2: joining})
    with run_mixed({1: first, 2: joiner}, tmp_path, shape) as cluster:
        clients = Clients(cluster)
        clients.create("before", replicas=1)
        if not is_automatic:
            wait_until(lambda: is_observed(cluster, 2), ANSWER_S_MAX, "the observer")
            add_by_tool(cluster, 2)
        wait_until(lambda: voters(cluster) == {1, 2}, ANSWER_S_MAX, "two voters")
        clients.create("between", replicas=1)
        where = ("--bootstrap-server", cluster.bootstrap)
        which = ("--controller-id", "1", "--controller-directory-id", directory_id(cluster, 1))
        cluster.tool(QUORUM_TOOL, *where, "remove-controller", *which)
        wait_until(lambda: voters(cluster) == {2}, ANSWER_S_MAX, "one voter")
        assert cluster.wait_leader() == 2
        clients.create("after", replicas=1)
        assert assert_logs_equal(cluster) > 5
        reply = cluster.metadata(1)
        assert reply is not None
        assert {"before", "between", "after"} <= {str(topic.name) for topic in reply.topics}


def is_observed(cluster: MixedCluster, node_id: int) -> bool:
    reply = cluster.quorum()
    found = [] if reply is None else reply.topics[0].partitions[0].observers
    return any(each.replica_id == node_id and each.log_end_offset > 0 for each in found)
