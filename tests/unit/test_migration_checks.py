"""The rules of ``ottla migrate check``: settings, directories and clusters."""

from pathlib import Path

import pytest

from ottla.cli.migration.cluster_check import check_cluster
from ottla.cli.migration.cluster_facts import ClusterFacts, DiskFacts, NodeFacts, PartitionFacts
from ottla.cli.migration.directory_check import DirectoryFacts, check_directories
from ottla.cli.migration.directory_facts import look_at
from ottla.cli.migration.findings import Finding, State, by_severity, stops
from ottla.cli.migration.settings_check import check_settings
from ottla.metadata.features import supported_features
from ottla.metadata.metadata_versions import LATEST_PRODUCTION
from ottla.protocol.types import TopicPartition

COMBINED = """\
# A combined node, as Kafka's config/server.properties has it.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs=/var/lib/kafka
"""
OURS = {name: (each.min, each.max) for name, each in supported_features().items()}


def state_of(found: list[Finding], subject: str) -> tuple[State, int]:
    (row,) = [each for each in found if each.subject == subject]
    return row.state, row.line


def check(extra: str) -> list[Finding]:
    return check_settings(COMBINED + extra, {})


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("group.share.max.partition.max.record.locks", "Kafka 4.3"),
        ("group.streams.min.assignment.interval.ms", "Kafka 4.3"),
        ("confluent.license", "plugin"),
    ],
)
def test_unknown_setting_says_where_it_comes_from(key: str, word: str) -> None:
    (row,) = [each for each in check(f"{key}=1") if each.subject == key]
    assert row.state is State.IGNORED and word in row.detail


def test_cordoned_directories_are_supported() -> None:
    found = check("cordoned.log.dirs=/var/lib/kafka")
    assert state_of(found, "cordoned.log.dirs")[0] is State.SUPPORTED


def test_settings_of_a_plain_kafka_node_are_all_supported() -> None:
    assert {each.state for each in check("")} == {State.SUPPORTED}


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("num.io.threads=16", State.IGNORED),
        ("num.io.threads=8", State.SUPPORTED),  # Kafka's default demands nothing
        ("metric.reporters=com.example.Reporter", State.IGNORED),
        ("zookeeper.connect=localhost:2181", State.IGNORED),
        ("confluent.license=abc", State.IGNORED),
        ("log.cleaner.threads=4", State.DIFFERENT),
        ("authorizer.class.name=com.example.Authorizer", State.PROBLEM),
        (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            State.SUPPORTED,
        ),
        ("principal.builder.class=com.example.Builder", State.PROBLEM),
        ("sasl.server.callback.handler.class=com.example.Handler", State.PROBLEM),
        ("listener.name.plaintext.sasl.server.callback.handler.class=a.B", State.PROBLEM),
        ("security.providers=com.example.Provider", State.IGNORED),
        ("log.segment.bytes=many", State.PROBLEM),
        ("log.retention.hours=0", State.PROBLEM),
    ],
)
def test_setting_is_classified_with_its_line(line: str, state: State) -> None:
    found = check(line)
    name = line.partition("=")[0]
    assert state_of(found, name) == (state, 8)
    (row,) = [each for each in found if each.subject == name]
    assert bool(row.detail) == (state is not State.SUPPORTED)
    assert stops(found) == (state is State.PROBLEM)
    assert row.fix or state is not State.PROBLEM


def test_setting_given_twice_is_reported_and_the_last_one_counts() -> None:
    found = check("num.partitions=0\nnum.partitions=3\n")
    rows = [(each.state, each.line) for each in found if each.subject == "num.partitions"]
    assert sorted(rows) == [(State.IGNORED, 8), (State.SUPPORTED, 9)]


def test_contradicting_settings_are_a_problem_of_the_key_to_change() -> None:
    found = check("replica.fetch.wait.max.ms=60000\n")
    assert {
        (each.state, each.line) for each in found if each.subject == "replica.fetch.wait.max.ms"
    } == {(State.PROBLEM, 8)}
    assert "replica.lag.time.max.ms" in "".join(each.detail for each in found)


def test_unknown_provider_class_is_a_problem_and_a_known_one_is_not() -> None:
    file = "config.providers=f\nconfig.providers.f.class={}\nssl.key.password=${{f:/s:k}}\n"
    known = "org.apache.kafka.common.config.provider.FileConfigProvider"
    ready = check_settings(COMBINED + file.format(known), {}, lambda _: "k=secret")
    assert not stops(ready)
    refused = check_settings(COMBINED + file.format("com.example.Vault"), {}, lambda _: "k=secret")
    assert stops(refused)
    assert "secret" not in repr(ready) + repr(refused)


def test_file_that_is_no_properties_file_is_a_problem() -> None:
    assert stops(check_settings("a=\\u12", {}))


def test_findings_are_ordered_by_severity() -> None:
    found = by_severity(check("num.io.threads=16\nauthorizer.class.name=a.B\n"))
    assert [found[0].state, found[1].state, found[-1].state] == [
        State.PROBLEM,
        State.IGNORED,
        State.SUPPORTED,
    ]


# -- directories -----------------------------------------------------------------


def formatted(path: Path, node_id: int = 1, cluster_id: str = "MkU3OEVBNTcwNTJENDM2Qg") -> Path:
    path.mkdir()
    (path / "meta.properties").write_text(
        f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\n"
    )
    return path


def test_directories_of_the_node_are_taken_over(tmp_path: Path) -> None:
    facts = look_at(str(formatted(tmp_path / "a")))
    assert (facts.node_id, facts.is_clean, facts.partitions) == (1, True, 0)
    assert not stops(check_directories([facts], 1, "MkU3OEVBNTcwNTJENDM2Qg"))


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "word"),
    [(2, None, "node 1"), (1, "other", "cluster")],
)
def test_directory_of_another_node_or_cluster_is_a_problem(
    tmp_path: Path, node_id: int, cluster_id: str | None, word: str
) -> None:
    facts = look_at(str(formatted(tmp_path / "a")))
    found = check_directories([facts], node_id, cluster_id)
    assert stops(found) and word in found[0].detail


def test_missing_unformatted_and_mixed_directories_are_problems(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    first = look_at(str(formatted(tmp_path / "a")))
    other = look_at(str(formatted(tmp_path / "b", cluster_id="AAAAAAAAAAEAAAAAAAAAAg")))
    for directories in (
        [look_at(str(tmp_path / "none"))],
        [look_at(str(tmp_path / "empty"))],
        [first, other],
    ):
        assert stops(check_directories(directories, 1))


def test_old_message_formats_and_unknown_checkpoints_are_found(tmp_path: Path) -> None:
    there = formatted(tmp_path / "a")
    log = there / "orders-0"
    log.mkdir()
    (log / "00000000000000000000.log").write_bytes(bytes(16) + b"\x01" + bytes(20))
    (log / "00000000000000000007.log").write_bytes(bytes(16) + b"\x02" + bytes(44))
    (log / "leader-epoch-checkpoint").write_text("7\n0\n")
    facts = look_at(str(there))
    assert facts.old_segments == ["orders-0/00000000000000000000.log"]
    assert facts.bad_checkpoints == ["orders-0/leader-epoch-checkpoint"]
    assert (facts.segments, facts.is_clean) == (2, False)
    states = [each.state for each in check_directories([facts], 1)]
    assert states.count(State.PROBLEM) == 2 and State.WARNING in states


def test_full_disk_is_a_warning() -> None:
    facts = DirectoryFacts(path="/d", cluster_id="c", node_id=1, free_bytes=1, total_bytes=100)
    assert State.WARNING in {each.state for each in check_directories([facts], 1)}


# -- clusters --------------------------------------------------------------------


def cluster(**changes: object) -> ClusterFacts:
    nodes = [NodeFacts(node_id=n, is_voter=True) for n in (1, 2, 3)]
    partition = PartitionFacts(TopicPartition("orders", 0), 1, (1, 2, 3), (1, 2, 3), 2)
    fields: dict[str, object] = {
        "cluster_id": "c",
        "nodes": nodes,
        "partitions": [partition],
        "finalized": {"metadata.version": int(LATEST_PRODUCTION), "kraft.version": 1},
    }
    return ClusterFacts(**{**fields, **changes})  # type: ignore[arg-type]


def part(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...], least: int = 1) -> object:
    return [PartitionFacts(TopicPartition("orders", 0), leader, replicas, isr, least)]


def test_healthy_cluster_of_supported_levels_is_ready() -> None:
    found = check_cluster(cluster(groups={"share": 2, "streams": 1}), OURS)
    assert {each.state for each in found} == {State.SUPPORTED}
    assert any("2 share groups" in each.detail for each in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"finalized": {"metadata.version": int(LATEST_PRODUCTION) + 1}},
        {"finalized": {"metadata.version": 6}},
        {"finalized": {}},
        {"finalized": {"metadata.version": int(LATEST_PRODUCTION), "teleport.version": 1}},
        {"nodes": [NodeFacts(node_id=1, is_fenced=True)]},
        {"has_quorum_leader": False},
        {"partitions": part(-1, (1, 2), (1,))},
        {"partitions": part(1, (1, 2), (1,))},
        {"reassignments": [TopicPartition("orders", 0)]},
        {"topic_configs": {"orders": {"remote.storage.enable": "true"}}},
        {"topic_configs": {"orders": {"confluent.tier.enable": "true"}}},
        {"topic_configs": {"orders": {"retention.ms": "soon"}}},
        {"disks": [DiskFacts(1, "/d", 10, 100, error=57)]},
    ],
)
def test_cluster_that_must_be_changed_first_is_a_problem(changes: dict[str, object]) -> None:
    found = check_cluster(cluster(**changes), OURS)
    assert stops(found)
    assert all(each.fix for each in found if each.state is State.PROBLEM)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": [NodeFacts(node_id=1, is_voter=True)]},
        {"partitions": part(1, (1,), (1,))},
        {"partitions": part(1, (1, 2), (1, 2), 2)},
        {"disks": [DiskFacts(1, "/d", 1, 100)]},
        {"nodes": [NodeFacts(node_id=n, is_voter=True, problem="no route") for n in (1, 2, 3)]},
    ],
)
def test_cluster_whose_migration_pauses_clients_is_a_warning(changes: dict[str, object]) -> None:
    found = check_cluster(cluster(**changes), OURS)
    assert State.WARNING in {each.state for each in found} and not stops(found)
