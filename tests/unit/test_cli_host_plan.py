"""The settings of several nodes of one machine, derived from one file."""

import pytest

from ottla.cli.host.lines import LINE_BYTES_MAX, LineSplitter, marked
from ottla.cli.host.plan import NODES_MAX, BadHostPlan, plan_host
from ottla.config.loading import Loaded, load
from ottla.node.directories.node_directories import all_directories

BASE = """
process.roles=broker,controller
node.id=7
controller.quorum.bootstrap.servers=h:9093
listeners=PLAINTEXT://:9092,EXTERNAL://[::1]:9095,CONTROLLER://h:9093
advertised.listeners=PLAINTEXT://h:9092,EXTERNAL://out:19095
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
ottla.metrics.listener=127.0.0.1:9094
log.dirs=/a,/b
num.partitions=5
"""


def nodes_of(text: str, count: int, step: int = 10) -> list[Loaded]:
    plan = plan_host(load(text), count, step)
    return [load(text, overrides=node.overrides) for node in plan]


def test_first_node_keeps_ids_ports_and_roles() -> None:
    first, base = nodes_of(BASE, 3)[0], load(BASE)
    assert first.broker.node_id == 7
    assert first.listeners == base.listeners
    assert first.broker.process_roles == base.broker.process_roles
    assert first.broker.ottla_metrics_listener == "127.0.0.1:9094"


def test_each_node_has_its_own_id_ports_and_directories() -> None:
    for at, node in enumerate(nodes_of(BASE, 3)):
        node_id = 7 + at
        assert node.broker.node_id == node.broker.broker_id == node_id
        binds = {each.name: str(each.bind) for each in node.listeners.all if not each.is_controller}
        assert binds == {"PLAINTEXT": f":{9092 + 10 * at}", "EXTERNAL": f"[::1]:{9095 + 10 * at}"}
        advertised = {each.name: str(each.advertised) for each in node.listeners.all}
        assert advertised["PLAINTEXT"] == f"h:{9092 + 10 * at}"
        assert advertised["EXTERNAL"] == f"out:{19095 + 10 * at}"
        assert node.broker.ottla_metrics_listener == f"127.0.0.1:{9094 + 10 * at}"
        assert all_directories(node.broker) == (f"/a/node-{node_id}", f"/b/node-{node_id}")
        assert node.broker.num_partitions == 5


def test_only_the_first_node_is_a_controller() -> None:
    first, second, third = nodes_of(BASE, 3)
    assert "controller" in first.broker.process_roles
    for node in (second, third):
        assert node.broker.process_roles == ("broker",)
        assert not any(each.is_controller for each in node.listeners.all)
        assert node.broker.controller_quorum_bootstrap_servers == ("h:9093",)


def test_metadata_directory_and_port_zero() -> None:
    text = BASE.replace(":9095", ":0") + "metadata.log.dir=/m\n"
    second = nodes_of(text, 2)[1]
    assert all_directories(second.broker) == ("/m/node-8", "/a/node-8", "/b/node-8")
    assert second.listeners.named("EXTERNAL").bind.port == 0


def test_broker_id_of_the_file_is_derived_too() -> None:
    text = BASE.replace("node.id=7", "broker.id=7")
    assert [each.broker.node_id for each in nodes_of(text, 2)] == [7, 8]


@pytest.mark.parametrize(
    ("text", "count", "step", "message"),
    [
        (BASE, 0, 10, "--nodes 0"),
        (BASE, NODES_MAX + 1, 10, "--nodes 65"),
        (BASE, 2, 0, "--port-step 0"),
        (BASE, 2, 3, "nodes 7 and 8 would both use port 9095"),
        (BASE.replace(":9095", ":65530"), 2, 10, "port 65540, above 65535"),
        (BASE.replace(":9094", ":9102"), 2, 10, "nodes 7 and 8 would both use port 9102"),
    ],
)
def test_nodes_that_cannot_run_beside_each_other_are_rejected(
    text: str, count: int, step: int, message: str
) -> None:
    with pytest.raises(BadHostPlan, match=message):
        plan_host(load(text), count, step)


def test_controllers_alone_are_rejected() -> None:
    text = (
        "process.roles=controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=h:9093\n"
        "listeners=CONTROLLER://h:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs=/a\n"
    )
    with pytest.raises(BadHostPlan, match="no broker"):
        plan_host(load(text), 2)


# -- the combined log ------------------------------------------------------------------------


def test_lines_are_marked_with_their_node() -> None:
    assert marked(3, b"INFO started") == b"[node 3] INFO started\n"
    assert marked(3, b'{"level": "INFO"}') == b'{"node": 3, "level": "INFO"}\n'
    assert marked(3, b"{not json") == b"[node 3] {not json\n"


def test_lines_are_complete_however_they_arrive() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"on") == []
    assert splitter.feed(b"e\ntwo\n\nth") == [b"one", b"two", b""]
    assert splitter.end() == [b"th"]
    assert splitter.end() == []


def test_endless_line_is_passed_on_in_parts() -> None:
    splitter = LineSplitter()
    found = splitter.feed(b"x" * (2 * LINE_BYTES_MAX + 5)) + splitter.feed(b"\n")
    assert [len(each) for each in found] == [LINE_BYTES_MAX, LINE_BYTES_MAX, 5]
