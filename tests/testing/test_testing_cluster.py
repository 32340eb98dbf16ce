"""Test clusters in threads and processes: stop, kill, pause, partition and heal."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection, Options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.testing import Cluster, NeedsProcesses, NodeFailed, run_cluster, run_node

QUORUM = DescribeQuorumRequest(
    topics=[RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])]
)


def ask(address: str, request: Message, timeout_ms: int = 5000) -> Any:
    host, _, port = address.rpartition(":")

    async def talk() -> Any:
        options = Options(connect_timeout_ms=timeout_ms)
        to = Address(host, int(port))
        connection = await Connection.open(TcpNetwork(), to, client_id="test", options=options)
        try:
            return await connection.send(request, timeout_ms=timeout_ms)
        finally:
            await connection.close()

    return asyncio.run(talk())


def create(address: str, name: str, timeout_ms: int = 5000) -> ErrorCode:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], timeout_ms)
    return ErrorCode(ask(address, request, timeout_ms).topics[0].error_code)


def topics(address: str) -> set[str]:
    return {each.name for each in ask(address, MetadataRequest(None)).topics}


def leader(cluster: Cluster, nodes: list[int]) -> int | None:
    """Return the leader of the metadata quorum according to the first of ``nodes`` that answers."""
    for node_id in nodes:
        try:
            reply = ask(cluster.address(node_id), QUORUM, 500)
        except (OSError, Fault):
            continue
        if reply.error_code == 0 and (found := reply.topics[0].partitions[0].leader_id) > 0:
            return int(found)
    return None


def wait_until(condition: Any) -> Any:
    deadline = monotonic() + SECONDS_MAX
    while not (found := condition()):
        assert monotonic() < deadline, "condition not met in time"
        sleep(0.02)
    return found


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with run_cluster(3, processes=True, environment=lambda n: {"SAID_TO": str(n)}) as cluster:
        yield cluster


@pytest.fixture
def whole(three: Cluster) -> Iterator[Cluster]:
    """The cluster of this module; each test leaves it unchanged."""
    yield three
    three.resume()
    three.heal()
    if set(three.running) != set(three.node_ids):
        three.start()


# -- in threads --------------------------------------------------------------------


def test_node_in_a_thread_keeps_its_topics_over_a_restart() -> None:
    with run_node() as node:
        assert create(node.bootstrap, "orders") is ErrorCode.NONE
        before = node.bootstrap
        node.restart()
        assert node.bootstrap == before and node.running == [1]
        assert "orders" in topics(node.bootstrap)
        data = node.data(1)
        assert (data / "meta.properties").exists()
    assert not data.exists()


def test_settings_reach_the_node() -> None:
    with run_node(config={"num.partitions": 7, "auto.create.topics.enable": False}) as node:
        text = (node.data(1).parent / "server.properties").read_text()
        assert "num.partitions=7\n" in text and "auto.create.topics.enable=false\n" in text


def test_node_with_several_log_directories_formats_each() -> None:
    with run_node(config={"log.dirs": "one, two"}) as node:
        directories = node.directories(1)
        assert [each.name for each in directories] == ["one", "two"]
        assert node.data(1) == directories[0]
        assert all((each / "meta.properties").exists() for each in directories)


def test_directory_given_by_the_caller_is_kept(tmp_path: Path) -> None:
    with run_node(directory=tmp_path / "mine") as node:
        data = node.data(1)
    assert (data / "meta.properties").exists()


def test_paused_node_answers_after_it_is_resumed() -> None:
    with run_node() as node:
        node.pause(1)
        with pytest.raises((OSError, Fault)):
            ask(node.bootstrap, MetadataRequest(None), 200)
        node.resume(1)
        assert create(node.bootstrap, "later") is ErrorCode.NONE


def test_killing_a_node_in_a_thread_is_rejected() -> None:
    with run_node() as node:
        with pytest.raises(NeedsProcesses):
            node.kill(1)
        with pytest.raises(NeedsProcesses):
            node.process_id(1)
        assert topics(node.bootstrap) == set()


def test_nodes_in_threads_form_a_cluster_that_can_be_partitioned_and_healed() -> None:
    with run_cluster(3) as cluster:
        assert cluster.node_ids == [1, 2, 3]
        for node_id in cluster.node_ids:  # concurrently: each one is ready once all are
            reply = ask(cluster.address(node_id), MetadataRequest([]))
            assert {each.node_id for each in reply.brokers} == {1, 2, 3}
        old = wait_until(lambda: leader(cluster, [1, 2, 3]))
        others = [each for each in cluster.node_ids if each != old]
        cluster.isolate(old)
        new = wait_until(lambda: (leader(cluster, others) or old) != old)
        assert new
        cluster.heal()
        # The old leader learns of the new one, and forwards to it.
        wait_until(lambda: (leader(cluster, [old]) or old) != old)
        assert create(cluster.address(old), "healed", 10_000) is ErrorCode.NONE


def test_failed_start_reports_the_reason_and_leaves_nothing_behind(tmp_path: Path) -> None:
    for processes in (False, True):
        home = tmp_path / str(processes)
        bad = {"log.dirs": "/proc/no-such-place"}
        with (
            pytest.raises((NodeFailed, OSError)),
            run_node(processes=processes, config=bad, directory=home),
        ):
            pytest.fail("it started")


@pytest.mark.parametrize(("nodes", "controllers"), [(0, None), (17, None), (2, 3), (1, 0)])
def test_impossible_cluster_sizes_are_rejected(nodes: int, controllers: int | None) -> None:
    with pytest.raises(ValueError, match="nodes"), run_cluster(nodes, controllers=controllers):
        pass


# -- in processes ------------------------------------------------------------------


def test_each_process_has_its_environment_variables(whole: Cluster) -> None:
    for node_id in whole.node_ids:
        found = Path(f"/proc/{whole.process_id(node_id)}/environ").read_bytes().split(b"\0")
        assert f"SAID_TO={node_id}".encode() in found
        assert any(each.startswith(b"PATH=") for each in found), "the parent's variables are kept"


def test_killed_node_refuses_connections_and_restarts_on_its_port(whole: Cluster) -> None:
    address, process_id = whole.address(1), whole.process_id(1)
    assert process_id is not None and is_alive(process_id)
    assert create(address, "before", 10_000) is ErrorCode.NONE
    whole.kill(1)
    assert not is_alive(process_id) and not is_listening(address)
    assert whole.running == [2, 3] and whole.process_id(1) is None
    wait_until(lambda: (leader(whole, [2, 3]) or 1) != 1)
    assert create(whole.address(2), "meanwhile", 10_000) is ErrorCode.NONE
    whole.start(1)
    assert whole.process_id(1) not in (None, process_id)
    wait_until(lambda: {"before", "meanwhile"} <= topics(address))


def test_paused_process_is_replaced_as_leader_and_catches_up(whole: Cluster) -> None:
    old = wait_until(lambda: leader(whole, whole.node_ids))
    others = [each for each in whole.node_ids if each != old]
    whole.pause(old)
    wait_until(lambda: (leader(whole, others) or old) != old)
    whole.resume(old)
    wait_until(lambda: (leader(whole, [old]) or old) != old)


def test_partitioned_leader_cannot_change_metadata_while_clients_reach_it(whole: Cluster) -> None:
    old = wait_until(lambda: leader(whole, whole.node_ids))
    others = [each for each in whole.node_ids if each != old]
    whole.partition(old, others)
    new = wait_until(lambda: leader(whole, others) not in (None, old) and leader(whole, others))
    assert new in others
    assert create(whole.address(new), "majority", 10_000) is ErrorCode.NONE
    assert "majority" not in topics(whole.address(old))
    whole.heal()
    wait_until(lambda: "majority" in topics(whole.address(old)))


def test_process_stops_in_order_and_logs_it(whole: Cluster) -> None:
    whole.stop(3)
    assert whole.running == [1, 2] and not is_listening(whole.address(3))
    assert re.search(r"node started node_id=3", whole.output(3))
    assert "Traceback" not in whole.output(3)
    whole.start()
    assert whole.running == [1, 2, 3]


def test_broker_that_is_no_voter_forwards_requests() -> None:
    with run_cluster(2, processes=True) as cluster:
        assert cluster.bootstrap_controllers.count(",") == 0
        assert create(cluster.address(2), "forwarded", 10_000) is ErrorCode.NONE


def test_processes_end_with_the_process_that_started_them() -> None:
    code = (
        "import sys, threading\n"
        "from ottla.testing import run_node\n"
        "with run_node(processes=True) as node:\n"
        "    print(node.process_id(1), flush=True)\n"
        "    threading.Event().wait()\n"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    with run.stdout:
        process_id = int(run.stdout.readline())
        assert is_alive(process_id)
        os.kill(run.pid, signal.SIGKILL)
        run.wait(SECONDS_MAX)
    wait_until(lambda: not is_alive(process_id))
