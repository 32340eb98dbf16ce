"""DescribeLogDirs: sizes, lags, futures, directories that are offline; AlterReplicaLogDirs."""

import errno
from typing import Any

import pytest
from fetch_harness import CALLER
from partition_fixtures import CLUSTER, Machine, append, registration

from ottla.api.partitions.log_dirs import AlterLogDirsHandler, LogDirsHandler
from ottla.api.surface.replies import finish
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import LogDirNotFound, ReplicaNotAvailable, StorageFailed
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from ottla.protocol.types import NodeId, TopicPartition, Uuid
from ottla.storage.directory.log_dir import LogDirectory, format_directory
from ottla.storage.directory.partition_names import DirectoryKind
from ottla.storage.log.log_config import LogConfig

ALL = DescribeLogDirsRequest(topics=None)
ID = Uuid(bytes(range(16)))
PLENTY = 2**50


def handler(machine: Machine, *more: LogDirectory, **terms: Any) -> LogDirsHandler:
    directories = [machine.directory, *more]
    paths = terms.pop("paths", [each.path for each in directories])
    return LogDirsHandler(paths, directories, machine.disk, **terms)


def described(
    handler: LogDirsHandler, request: DescribeLogDirsRequest = ALL
) -> list[DescribeLogDirsResult]:
    return finish(handler.describe_log_dirs_steps(CALLER, request, 4)).results


def partitions(result: DescribeLogDirsResult) -> dict[tuple[str, int], tuple[int, int, bool]]:
    assert result.error_code == 0
    return {
        (topic.name, row.partition_index): (
            row.partition_size,
            row.offset_lag,
            row.is_future_key,
        )
        for topic in result.topics
        for row in topic.partitions
    }


def second_directory(machine: Machine) -> LogDirectory:
    format_directory(machine.ports, "/e", node_id=NodeId(0), cluster_id=CLUSTER)
    directory = LogDirectory.open(machine.ports, "/e", node_id=NodeId(0), cluster_id=CLUSTER)
    directory.open_all(lambda _: LogConfig())
    return directory


def test_log_dirs_list_partitions_with_their_sizes() -> None:
    machine = Machine()
    first = machine.host(TopicPartition("orders", 0))
    first.apply(registration())
    machine.host(TopicPartition("orders", 1))
    machine.host(TopicPartition("other", 0))
    append(first, b"a" * 100)
    (result,) = described(handler(machine))
    assert result.log_dir == "/d"
    assert partitions(result) == {
        ("orders", 0): (first.log.size, 0, False),
        ("orders", 1): (0, 0, False),
        ("other", 0): (0, 0, False),
    }
    assert first.log.size > 100
    assert result.usable_bytes > 0 and result.total_bytes >= result.usable_bytes


def test_log_dirs_list_only_requested_partitions() -> None:
    machine = Machine()
    for index in (0, 1):
        machine.host(TopicPartition("orders", index))
    machine.host(TopicPartition("other", 0))
    asked = [DescribableLogDirTopic("orders", [1, 7]), DescribableLogDirTopic("nope", [0])]
    (result,) = described(handler(machine), DescribeLogDirsRequest(asked))
    assert list(partitions(result)) == [("orders", 1)]
    (result,) = described(handler(machine), DescribeLogDirsRequest([]))
    assert result.topics == []


def test_log_being_moved_has_a_second_row() -> None:
    machine = Machine()
    here = machine.host(TopicPartition("orders", 0))
    here.apply(registration())
    append(here, b"a", b"b")
    there = second_directory(machine)
    there.create_log(TopicPartition("orders", 0), ID, LogConfig(), DirectoryKind.FUTURE)
    old, new = described(handler(machine, there))
    assert partitions(old) == {("orders", 0): (here.log.size, 0, False)}
    assert partitions(new) == {("orders", 0): (0, 2, True)}


def test_future_log_without_a_current_log_has_no_lag() -> None:
    machine = Machine()
    there = second_directory(machine)
    there.create_log(TopicPartition("orders", 0), ID, LogConfig(), DirectoryKind.FUTURE)
    assert partitions(described(handler(machine, there))[1]) == {("orders", 0): (0, -1, True)}


def test_offline_directory_has_a_storage_error() -> None:
    machine = Machine()
    machine.host()
    there = second_directory(machine)
    there.fail("pulled out")
    never, failed, fine = described(handler(machine, there, paths=["/never", "/e", "/d"]))
    for row in (never, failed):
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (row.topics, row.total_bytes, row.usable_bytes) == ([], -1, -1)
    assert fine.error_code == 0


def test_disk_without_usage_information_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()

    def broken(path: str) -> int:
        raise OSError(errno.EIO, "no answer", path)

    monkeypatch.setattr(machine.disk, "free_bytes", broken)
    (result,) = described(handler(machine))
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


def test_log_dirs_need_authorization() -> None:
    refusing = handler(Machine(), may_describe=lambda caller: False)
    reply = finish(refusing.describe_log_dirs_steps(CALLER, ALL, 4))
    assert (reply.error_code, reply.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize("has_cordons", [True, False])
def test_cordoned_directory_is_described_at_the_level_that_has_cordons(has_cordons: bool) -> None:
    machine = Machine()
    other = second_directory(machine)
    other.is_cordoned = True
    results = described(handler(machine, other, has_cordons=lambda: has_cordons))
    assert [each.is_cordoned for each in results] == [False, has_cordons]


# -- AlterReplicaLogDirs -------------------------------------------------------


class Moves:
    """Takes orders; some of them badly."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []

    def alter(self, name: TopicPartition, path: str) -> None:
        if path == "/no":
            raise LogDirNotFound(path)
        if name.partition == 8:
            raise ReplicaNotAvailable(str(name))
        if name.partition == 9:
            raise StorageFailed(path)
        self.begun.append((str(name), path))


def altered(handler: AlterLogDirsHandler, *dirs: AlterReplicaLogDir) -> dict[str, list[int]]:
    request = AlterReplicaLogDirsRequest(list(dirs))
    reply = handler.on_alter_replica_log_dirs(CALLER, request, 2)
    return {
        topic.topic_name: [(row.partition_index, row.error_code) for row in topic.partitions]
        for topic in reply.results
    }


def test_each_move_has_its_own_error_code() -> None:
    moves = Moves()
    to_d = AlterReplicaLogDir("/d", [AlterReplicaLogDirTopic("orders", [0, 8, 9])])
    to_e = AlterReplicaLogDir("/e", [AlterReplicaLogDirTopic("other", [1])])
    to_no = AlterReplicaLogDir("/no", [AlterReplicaLogDirTopic("orders", [2])])
    assert altered(AlterLogDirsHandler(moves), to_d, to_e, to_no) == {
        "orders": [
            (0, ErrorCode.NONE),
            (8, ErrorCode.REPLICA_NOT_AVAILABLE),
            (9, ErrorCode.KAFKA_STORAGE_ERROR),
            (2, ErrorCode.LOG_DIR_NOT_FOUND),
        ],
        "other": [(1, ErrorCode.NONE)],
    }
    assert moves.begun == [("orders-0", "/d"), ("other-1", "/e")]


def test_moves_need_authorization() -> None:
    moves = Moves()
    handler = AlterLogDirsHandler(moves, may_alter=lambda caller: False)
    to_d = AlterReplicaLogDir("/d", [AlterReplicaLogDirTopic("orders", [0])])
    assert altered(handler, to_d) == {"orders": [(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]}
    assert moves.begun == []
