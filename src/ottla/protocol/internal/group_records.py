"""The records of ``__consumer_offsets``, by number: offsets and groups of all kinds."""

from collections.abc import Mapping
from types import MappingProxyType

from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.internal.framing import (
    CoordinatorRecord,
    Pair,
    decode_pair,
)
from ottla.protocol.internal.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.internal.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.internal.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.types import Buffer

GROUP_RECORDS: Mapping[int, Pair] = MappingProxyType(
    {
        0: Pair(LegacyOffsetCommitKey, LegacyOffsetCommitValue),
        1: Pair(OffsetCommitKey, OffsetCommitValue),
        2: Pair(GroupMetadataKey, GroupMetadataValue),
        3: Pair(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: Pair(ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: Pair(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: Pair(
            ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
        ),
        7: Pair(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: Pair(ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        10: Pair(ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: Pair(ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: Pair(ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: Pair(ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: Pair(ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: Pair(ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        16: Pair(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        17: Pair(StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        19: Pair(StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        20: Pair(
            StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue
        ),
        21: Pair(StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        22: Pair(StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        23: Pair(StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    }
)


def decode_group_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord:
    """Read a record of ``__consumer_offsets``. Raises `ProtocolFault`."""
    return decode_pair(GROUP_RECORDS, key, value)
