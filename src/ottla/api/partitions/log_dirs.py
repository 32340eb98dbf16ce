"""DescribeLogDirs, and AlterReplicaLogDirs to move replicas between directories (KIP-113, KIP-827).

DescribeLogDirs: a directory that is offline is a row with KAFKA_STORAGE_ERROR and nothing else. A
log that is being moved is a second row of its partition, in the directory it moves to, with
``is_future_key``. Version 5 says which directories are cordoned (KIP-1066); as in Kafka none is
while the finalized metadata.version does not know of them.

AlterReplicaLogDirs: answered per partition once the move has begun; the row of the future log shows
its progress.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, Protocol

import msgspec

from ottla.api.fetch.reading import anybody
from ottla.api.surface.replies import Steps, batched, collect
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import Disk
from ottla.storage.directory.log_dir import LogDirectory
from ottla.storage.log.log import Log

_LAG_UNKNOWN: Final = -1


class Moves(Protocol):
    """Moves partitions between directories."""

    def alter(self, name: TopicPartition, path: str) -> None:
        """Begin a move. Raises a `Fault` with the error code of the reply."""
        ...


class AlterLogDirsHandler(msgspec.Struct, frozen=True):
    """The handler of AlterReplicaLogDirs."""

    moves: Moves
    may_alter: Callable[[Caller], bool] = anybody

    def on_alter_replica_log_dirs(
        self, caller: Caller, request: AlterReplicaLogDirsRequest, version: int
    ) -> AlterReplicaLogDirsResponse:
        """Begin a move of every listed partition, in order.

        For a partition that is listed twice the last directory counts, and it has one result.
        """
        is_allowed = self.may_alter(caller)
        paths = {
            TopicPartition(named.name, index): directory.path
            for directory in request.dirs
            for named in directory.topics
            for index in named.partitions
        }
        topics: dict[str, AlterReplicaLogDirTopicResult] = {}
        for name, path in paths.items():
            reply = topics.setdefault(name.topic, AlterReplicaLogDirTopicResult(name.topic))
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if is_allowed:
                code = self._begin(name, path)
            reply.partitions.append(AlterReplicaLogDirPartitionResult(name.partition, code))
        return AlterReplicaLogDirsResponse(results=list(topics.values()))

    def _begin(self, name: TopicPartition, path: str) -> ErrorCode:
        try:
            self.moves.alter(name, path)
        except Fault as fault:
            return fault.code
        return ErrorCode.NONE


class LogDirsHandler(msgspec.Struct, frozen=True):
    """The handler of a broker's listeners.

    ``paths`` are all of ``log.dirs``; a path without a directory could not be opened at start.
    """

    paths: Sequence[str]
    directories: Sequence[LogDirectory]
    disk: Disk
    may_describe: Callable[[Caller], bool] = anybody
    has_cordons: Callable[[], bool] = lambda: False
    """Whether the finalized metadata.version has cordoned directories."""

    def describe_log_dirs_steps(
        self, caller: Caller, request: DescribeLogDirsRequest, version: int
    ) -> Steps[DescribeLogDirsResponse]:
        """Describe every directory, with all or only the requested partitions."""
        if not self.may_describe(caller):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        requested = yield from _requested_partitions(request)
        opened = {directory.path: directory for directory in self.directories}
        response = DescribeLogDirsResponse()
        for path in self.paths:
            described = yield from self._described(path, opened.get(path), requested)
            response.results.append(described)
        return response

    def _described(
        self, path: str, directory: LogDirectory | None, requested: Set[TopicPartition] | None
    ) -> Steps[DescribeLogDirsResult]:
        result = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
        if directory is None or directory.is_failed:
            return result
        try:
            result.total_bytes = self.disk.total_bytes(path)
            result.usable_bytes = self.disk.free_bytes(path)
        except OSError:
            return result
        result.error_code = ErrorCode.NONE
        result.is_cordoned = directory.is_cordoned and self.has_cordons()
        rows = yield from collect(_rows(directory, self._current(), requested))
        result.topics = yield from _topics(rows)
        return result

    def _current(self) -> Mapping[TopicPartition, Log]:
        """Return the current log of each partition, to measure a future log against."""
        return {name: hosted.log for each in self.directories for name, hosted in each.logs.items()}


def _requested_partitions(request: DescribeLogDirsRequest) -> Steps[Set[TopicPartition] | None]:
    """Return the requested partitions; None for all."""
    if request.topics is None:
        return None
    requested: set[TopicPartition] = set()
    for topic in request.topics:
        for indexes in batched(topic.partitions):
            requested.update(TopicPartition(topic.topic, index) for index in indexes)
            yield
    return requested


Described = tuple[TopicPartition, DescribeLogDirsPartition]


def _rows(
    directory: LogDirectory,
    current: Mapping[TopicPartition, Log],
    requested: Set[TopicPartition] | None,
) -> Iterable[Described]:
    for logs, is_future in ((directory.logs, False), (directory.future_logs, True)):
        for name, hosted in tuple(logs.items()):
            if requested is None or name in requested:
                log = hosted.log
                lag = _lag(log, current.get(name), is_future=is_future)
                yield name, DescribeLogDirsPartition(name.partition, log.size, lag, is_future)


def _lag(log: Log, current: Log | None, *, is_future: bool) -> int:
    """Return the lag of a log: a future log behind the current one, that behind its leader."""
    if current is None:
        return _LAG_UNKNOWN
    if is_future:
        return current.log_end_offset - log.log_end_offset
    return max(0, log.high_watermark - log.log_end_offset)


def _topics(rows: Iterable[Described]) -> Steps[list[DescribeLogDirsTopic]]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for group in batched(rows):
        for name, row in group:
            topics.setdefault(name.topic, DescribeLogDirsTopic(name.topic)).partitions.append(row)
        yield
    return list(topics.values())
