"""WriteTxnMarkers: the messages of api key 27, versions 1-2.

Written by `tools.generate_messages`; change that, not this.
"""

from typing import ClassVar

from msgspec import field

from ottla.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    Message,
    Schema,
    array_of,
)


class WritableTxnMarkerTopic(Message):
    """Part of the message, in versions 1-2."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 2)),
            Field("partition_indexes", array_of(INT32), (1, 2)),
        ),
    )


class WritableTxnMarker(Message):
    """Part of the message, in versions 1-2."""

    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: int = 0
    transaction_version: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("producer_id", INT64, (1, 2)),
            Field("producer_epoch", INT16, (1, 2)),
            Field("transaction_result", BOOL, (1, 2)),
            Field("topics", array_of(WritableTxnMarkerTopic), (1, 2)),
            Field("coordinator_epoch", INT32, (1, 2)),
            Field("transaction_version", INT8, (2, 2)),
        ),
    )


class WriteTxnMarkersRequest(Message):
    """WriteTxnMarkers request, versions 1-2, flexible from 1."""

    markers: list[WritableTxnMarker] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=1,
        api_key=27,
        fields=(Field("markers", array_of(WritableTxnMarker), (1, 2)),),
    )


class WritableTxnMarkerPartitionResult(Message):
    """Part of the message, in versions 1-2."""

    partition_index: int = 0
    error_code: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("partition_index", INT32, (1, 2)),
            Field("error_code", INT16, (1, 2)),
        ),
    )


class WritableTxnMarkerTopicResult(Message):
    """Part of the message, in versions 1-2."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("name", STRING, (1, 2)),
            Field("partitions", array_of(WritableTxnMarkerPartitionResult), (1, 2)),
        ),
    )


class WritableTxnMarkerResult(Message):
    """Part of the message, in versions 1-2."""

    producer_id: int = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        fields=(
            Field("producer_id", INT64, (1, 2)),
            Field("topics", array_of(WritableTxnMarkerTopicResult), (1, 2)),
        ),
    )


class WriteTxnMarkersResponse(Message):
    """WriteTxnMarkers response, versions 1-2, flexible from 1."""

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=1,
        api_key=27,
        fields=(Field("markers", array_of(WritableTxnMarkerResult), (1, 2)),),
    )
