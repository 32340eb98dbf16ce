"""Builds requests of clients, and reads the replies. Pure.

Every request fills the fields of all its versions, by name and by topic id; the negotiated version
determines which of them are sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from ottla.client.failures import Refused, check
from ottla.client.fetched import Aborted
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import NO_EPOCH, ZERO_UUID, TopicPartition, Uuid

_CONSUMER: Final = -1
_NO_SESSION: Final = -1
_TOPIC: Final = 2  # a kind of resource
_TIMEOUT_MS: Final = 30_000  # of a leader for a look-up


def error_codes(message: Message) -> Iterator[int]:
    """Yield every error code except NONE in a reply and its nested structs."""
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if field.endswith("error_code"):
            if value:
                yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    yield from error_codes(each)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, in their order."""
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


# -- metadata ----------------------------------------------------------------


def metadata(names: Sequence[str] | None, *, may_create: bool = False) -> MetadataRequest:
    """Request topics (None: all); with ``may_create``, missing ones may be created."""
    topics = None if names is None else [MetadataRequestTopic(ZERO_UUID, each) for each in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create)


def find_coordinator(key: str, kind: int) -> FindCoordinatorRequest:
    """Request the coordinator of a group (0) or a transactional id (1)."""
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def read_coordinator(reply: Message) -> Coordinator:
    """Return the one coordinator of a reply, in the form of the later versions."""
    assert isinstance(reply, FindCoordinatorResponse)
    if reply.coordinators:
        return reply.coordinators[0]
    return Coordinator(
        node_id=reply.node_id,
        host=reply.host,
        port=reply.port,
        error_code=reply.error_code,
        error_message=reply.error_message,
    )


# -- the offsets of partitions, and their records ----------------------------


def list_offsets(timestamps: Mapping[TopicPartition, int], committed: bool) -> ListOffsetsRequest:
    """Request the offsets of timestamps from one leader."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), time in timestamps.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=time))
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(committed),
        topics=list(topics.values()),
        timeout_ms=_TIMEOUT_MS,
    )


def read_offsets(reply: Message, found: dict[TopicPartition, int]) -> Refused | None:
    """Add the offsets of a reply to ``found``; return its last error."""
    assert isinstance(reply, ListOffsetsResponse)
    failure: Refused | None = None
    for topic in reply.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                failure = Refused(each.error_code, str(partition))
            else:
                found[partition] = each.offset
    return failure


def epoch_end(partition: TopicPartition, epoch: int) -> OffsetForLeaderEpochRequest:
    """Request where a leader epoch ends in the leader's log."""
    one = OffsetForLeaderPartition(partition=partition.partition, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic=partition.topic, partitions=[one])
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=[topic])


def read_epoch_end(reply: Message, partition: TopicPartition) -> tuple[int, int]:
    """Return the largest epoch at or below the requested one, and its end offset.

    Raises:
        Refused: the partition may not be read, or does not exist.
    """
    assert isinstance(reply, OffsetForLeaderEpochResponse)
    for topic in reply.topics:
        for each in topic.partitions:
            if each.error_code:
                raise Refused(each.error_code, str(partition))
            return each.leader_epoch, each.end_offset
    raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))


class FetchPosition(NamedTuple):
    """Where to fetch next in a partition; ``epoch`` is that of its leader, if known."""

    topic_id: Uuid
    offset: int
    epoch: int = NO_EPOCH


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a leader may wait for records, and the bytes of its reply."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20


def fetch(
    positions: Mapping[TopicPartition, FetchPosition], limits: FetchLimits, *, committed: bool
) -> FetchRequest:
    """Request the batches of partitions of one leader, without a fetch session."""
    topics: dict[str, FetchTopic] = {}
    for (name, index), position in positions.items():
        topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=position.topic_id))
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.epoch,
                fetch_offset=position.offset,
                partition_max_bytes=limits.partition_bytes_max,
            )
        )
    return FetchRequest(
        max_wait_ms=limits.wait_ms_max,
        min_bytes=limits.bytes_min,
        max_bytes=limits.bytes_max,
        isolation_level=int(committed),
        session_epoch=_NO_SESSION,
        topics=list(topics.values()),
    )


def aborted_in(data: PartitionData, *, committed: bool) -> tuple[Aborted, ...]:
    """Return the aborted transactions that a reader of committed records must not return."""
    aborted = data.aborted_transactions or () if committed else ()
    return tuple(Aborted(each.producer_id, each.first_offset) for each in aborted)


# -- records to write --------------------------------------------------------


def produce(
    batches: Mapping[TopicPartition, bytearray],
    ids: Mapping[str, Uuid],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Send one batch for each partition of one leader."""
    topics: dict[str, TopicProduceData] = {}
    for (name, index), batch in batches.items():
        topic = topics.setdefault(name, TopicProduceData(name=name, topic_id=ids[name]))
        topic.partition_data.append(PartitionProduceData(index, batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def read_produced(
    reply: ProduceResponse, ids: Mapping[str, Uuid]
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Return the answer for each partition; ``ids`` are those of the topics."""
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), each.index): each
        for topic in reply.responses
        for each in topic.partition_responses
    }


# -- the sizes and settings of topics ----------------------------------------


def describe_log_dirs(partitions: Mapping[str, Iterable[int]]) -> DescribeLogDirsRequest:
    """Request the sizes of partitions on a broker."""
    return DescribeLogDirsRequest(
        [DescribableLogDirTopic(name, list(theirs)) for name, theirs in partitions.items()]
    )


def read_sizes(reply: Message) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the bytes of each partition, without future replicas (moves between directories).

    Raises:
        Refused: the broker rejects the request. A failed directory has no partitions.
    """
    assert isinstance(reply, DescribeLogDirsResponse)
    if reply.error_code:
        raise Refused(reply.error_code, "log directories")
    for result in reply.results:
        for topic in result.topics:
            for each in topic.partitions:
                if not each.is_future_key:
                    yield TopicPartition(topic.name, each.partition_index), each.partition_size


def read_compacted(reply: Message) -> set[str]:
    """Return the compacted topics.

    Raises:
        Refused: the configuration of a topic may not be read.
    """
    assert isinstance(reply, DescribeConfigsResponse)
    found: set[str] = set()
    for result in reply.results:
        if result.error_code:
            raise Refused(result.error_code, result.resource_name, result.error_message)
        if any("compact" in (each.value or "") for each in result.configs):
            found.add(result.resource_name)
    return found


def describe_topics(topics: Iterable[str], keys: Sequence[str]) -> DescribeConfigsRequest:
    """Request some settings of topics."""
    return DescribeConfigsRequest(
        [DescribeConfigsResource(_TOPIC, name, list(keys)) for name in topics]
    )


def read_settings(reply: Message) -> dict[str, dict[str, str]]:
    """Return the settings of each topic that may be read; deleted topics are left out."""
    assert isinstance(reply, DescribeConfigsResponse)
    return {
        result.resource_name: {each.name: each.value or "" for each in result.configs}
        for result in reply.results
        if not result.error_code
    }


# -- the offsets of groups ---------------------------------------------------


def offset_commit(
    group: str,
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, Uuid],
    member: tuple[str, int] = ("", -1),
) -> OffsetCommitRequest:
    """Commit offsets as a member (its id and epoch), or for a group without members."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name, ids[name]))
        topic.partitions.append(OffsetCommitRequestPartition(index, offset))
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member[1],
        member_id=member[0],
        topics=list(topics.values()),
    )


def check_committed(reply: Message, group: str) -> None:
    """Raise `Refused` if any partition was not committed."""
    assert isinstance(reply, OffsetCommitResponse)
    for code in error_codes(reply):
        check(code, f"group {group}")


def offset_fetch(
    group: str, partitions: Sequence[TopicPartition], ids: Mapping[str, Uuid]
) -> OffsetFetchRequest:
    """Request the committed offsets of a group, with ``require_stable``."""
    topic_partitions = by_topic(partitions)
    topics = [
        OffsetFetchRequestTopics(name, ids[name], each) for name, each in topic_partitions.items()
    ]
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name, each) for name, each in topic_partitions.items()],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=True,
    )


def read_committed_offsets(
    reply: Message, subject: str, names: Mapping[Uuid, str]
) -> dict[TopicPartition, int]:
    """Return the committed offsets of one group; ``names`` maps topic ids of the reply to names.

    Raises:
        Refused: the group, or a partition, cannot be read.
    """
    assert isinstance(reply, OffsetFetchResponse)
    group = reply.groups[0] if reply.groups else reply  # up to version 7 the reply is the group
    check(group.error_code, subject)
    offsets: dict[TopicPartition, int] = {}
    for topic in group.topics:
        # From version 10 on topics have ids instead of names.
        name = topic.name or names.get(getattr(topic, "topic_id", ZERO_UUID), "")
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition_index)
            check(each.error_code, f"{subject}: {partition}")
            if name and each.committed_offset >= 0:
                offsets[partition] = each.committed_offset
    return offsets
