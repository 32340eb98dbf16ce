"""Commit, fetch, delete and expire offsets."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from ottla.coordinators.groups.kind import Committer, Group, PartitionCheck
from ottla.coordinators.groups.offsets.committed import (
    CommittedOffset,
    GroupOffsets,
    NewOffsets,
    Offsets,
    TopicPartition,
    offset_tombstone,
)
from ottla.coordinators.groups.offsets.offset_bytes import NewOffset
from ottla.coordinators.groups.settings import GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.types import NO_TIMESTAMP, ZERO_UUID, Millis, Uuid

# From this version on a commit to a missing group gets its own error; older clients only understand
# an illegal generation.
_GROUP_ID_NOT_FOUND_FROM = 9
_TXN_GROUP_ID_NOT_FOUND_FROM = 6
_NO_OFFSET = -1
_MILLIS_MAX = (1 << 63) - 1


class Commit(msgspec.Struct, frozen=True):
    """The result of a commit.

    The offsets to write, and the reply with an error for each partition.
    """

    topics: list[NewOffsets]
    expires: Millis
    reply: OffsetCommitResponse | TxnOffsetCommitResponse


def check_commit(group: Group | None, committer: Committer) -> ErrorCode | PartitionCheck:
    """Check whether a member, or a client without a group, may commit."""
    if group is not None:
        return group.check_offset_commit(committer)
    if committer.epoch < 0:
        return ErrorCode.NONE  # the first offset creates a simple group
    since = _TXN_GROUP_ID_NOT_FOUND_FROM if committer.is_transactional else _GROUP_ID_NOT_FOUND_FROM
    if committer.version < since:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.GROUP_ID_NOT_FOUND


def commit_objection(
    check: ErrorCode | PartitionCheck,
    partitions: Iterable[tuple[str, Uuid, NewOffset]],
    length: int,
) -> ErrorCode:
    """Return the error of a whole commit; NONE if there is none.

    A member that may not commit for one of its partitions commits for none. A partition whose
    metadata is longer than ``length`` is rejected by itself and not checked.
    """
    if isinstance(check, ErrorCode):
        return check
    codes = (
        check(topic, topic_id, each.partition_index)
        for topic, topic_id, each in partitions
        if not is_too_large(each, length)
    )
    return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)


def is_too_large(offset: NewOffset, length_max: int) -> bool:
    """Whether the metadata of an offset is too long."""
    text = offset.committed_metadata
    return bool(text) and len(text or "") > length_max


def commit_offsets(request: OffsetCommitRequest, settings: GroupSettings, now: Millis) -> Commit:
    """Commit the offsets of a request; metadata that is too long fails only its partition."""
    taken: list[NewOffsets] = []
    expires = NO_TIMESTAMP
    if request.retention_time_ms != -1:
        # The client chooses the time; the record has 64 bits for it, and -1 means never.
        expires = Millis(min(max(now + request.retention_time_ms, 0), _MILLIS_MAX))
    answered: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        name, topic_id, partitions = topic.name, topic.topic_id, topic.partitions
        codes = _codes(partitions, settings)
        kept = partitions
        if any(codes):
            kept = [each for each, code in zip(partitions, codes, strict=True) if not code]
        if kept:
            taken.append(NewOffsets(name, topic_id, kept))
        replies = [
            OffsetCommitResponsePartition(each.partition_index, code)
            for each, code in zip(partitions, codes, strict=True)
        ]
        answered.append(OffsetCommitResponseTopic(name, topic_id, replies))
    return Commit(taken, expires, OffsetCommitResponse(topics=answered))


def _codes(partitions: Sequence[NewOffset], settings: GroupSettings) -> list[ErrorCode]:
    """Return the error of each partition."""
    fine, too_large = ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE
    length_max = settings.offset_metadata_max_bytes
    return [
        too_large if (text := each.committed_metadata) and len(text) > length_max else fine
        for each in partitions
    ]


def commit_transactional(request: TxnOffsetCommitRequest, settings: GroupSettings) -> Commit:
    """Commit within a transaction: the records take effect with its marker."""
    taken: list[NewOffsets] = []
    answered: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions = topic.partitions
        codes = _codes(partitions, settings)
        pairs = list(zip(partitions, codes, strict=True))
        kept = [each for each, code in pairs if not code]
        if kept:
            taken.append(NewOffsets(topic.name, topic.topic_id, kept))
        replies = [
            TxnOffsetCommitResponsePartition(each.partition_index, code) for each, code in pairs
        ]
        answered.append(TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, replies))
    return Commit(taken, NO_TIMESTAMP, TxnOffsetCommitResponse(topics=answered))


# -- read ----------------------------------------------------------------------------


def fetch_offsets(
    request: OffsetFetchRequestGroup,
    offsets: GroupOffsets,
    is_unstable: Callable[[TopicPartition], bool],
) -> OffsetFetchResponseGroup:
    """Return offsets of a group; all of them if the request names no topics.

    ``is_unstable`` says which partitions have an open transaction: the reply has an error for them
    instead of the old offset (KIP-447).
    """
    if request.topics is None:
        topics = _all_topics(offsets, is_unstable)
    else:
        topics = [
            OffsetFetchResponseTopics(
                topic.name,
                topic.topic_id,
                [
                    _fetched((topic.name, index), topic.topic_id, offsets, is_unstable)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    return OffsetFetchResponseGroup(request.group_id, topics)


def _all_topics(
    offsets: GroupOffsets, is_unstable: Callable[[TopicPartition], bool]
) -> list[OffsetFetchResponseTopics]:
    found: dict[str, OffsetFetchResponseTopics] = {}
    for topic, index in sorted(offsets):
        if topic not in found:
            found[topic] = OffsetFetchResponseTopics(topic)
        found[topic].partitions.append(_fetched((topic, index), ZERO_UUID, offsets, is_unstable))
    return list(found.values())


def _fetched(
    place: TopicPartition,
    topic_id: Uuid,
    offsets: GroupOffsets,
    is_unstable: Callable[[TopicPartition], bool],
) -> OffsetFetchResponsePartitions:
    index = place[1]
    if is_unstable(place):
        return OffsetFetchResponsePartitions(
            index, _NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    found = offsets.get(place)
    if found is None or not found.is_of(topic_id):
        return OffsetFetchResponsePartitions(index, _NO_OFFSET)
    return OffsetFetchResponsePartitions(index, found.offset, found.leader_epoch, found.metadata)


# -- delete --------------------------------------------------------------------------


def delete_offsets(
    request: OffsetDeleteRequest, group: Group, offsets: Offsets
) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
    """Delete offsets of topics that no member reads."""
    records: list[CoordinatorRecord] = []
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        code = ErrorCode.NONE
        if group.is_subscribed_to(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        indexes = [each.partition_index for each in topic.partitions]
        for index in dict.fromkeys(indexes) if code is ErrorCode.NONE else ():
            place = (topic.name, index)
            is_there = offsets.get(request.group_id, place) is not None
            if is_there or offsets.is_pending(request.group_id, place):
                records.append(offset_tombstone(request.group_id, place))
        codes = [OffsetDeleteResponsePartition(index, code) for index in indexes]
        topics.append(OffsetDeleteResponseTopic(topic.name, codes))
    return records, OffsetDeleteResponse(topics=topics)


def delete_all(group_id: str, offsets: Offsets) -> list[CoordinatorRecord]:
    """Return the tombstones of all offsets of a group, including pending ones."""
    return [offset_tombstone(group_id, place) for place in offsets.places(group_id)]


def delete_of_partitions(
    partitions: Iterable[TopicPartition], offsets: Offsets
) -> list[CoordinatorRecord]:
    """Return the tombstones of all offsets of deleted partitions."""
    return [
        offset_tombstone(group, place)
        for place in sorted(set(partitions))
        for group in offsets.groups_with(*place)
    ]


# -- expire --------------------------------------------------------------------------


def expire_offsets(
    groups: Mapping[str, Group], offsets: Offsets, settings: GroupSettings, now: Millis
) -> Iterator[CoordinatorRecord]:
    """Yield the tombstones of expired offsets, and of groups that have nothing left.

    Kafka's conditions: no member reads the topic, no transaction is about to set the offset, and
    the retention time has passed since the group became empty, or since the commit if the group has
    members or never had any. Share groups stay until they are deleted.
    """
    for group_id in sorted(groups):
        group = groups[group_id]
        is_bare = True
        for place, found in sorted(offsets.of_group(group_id).items()):
            if _is_expired(group, found, place[0], settings, now) and not offsets.is_pending(
                group_id, place
            ):
                yield offset_tombstone(group_id, place)
            else:
                is_bare = False
        is_idle = group.is_empty() and not offsets.has_open_transaction(group_id)
        if is_bare and is_idle and group.may_expire():
            yield from group.tombstones()


def _is_expired(
    group: Group, found: CommittedOffset, topic: str, settings: GroupSettings, now: Millis
) -> bool:
    since = group.expires_from(found.committed_at)
    if since is None or group.is_subscribed_to(topic):
        return False
    if found.expires != NO_TIMESTAMP:
        return now >= found.expires
    return now - since >= settings.offsets_retention_ms
