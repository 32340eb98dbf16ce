"""Bytes written by hand from the layout in Kafka's protocol guide, field by field."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.frames import parse_request_header, request_frame, response_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid

TOPIC_ID = Uuid(bytes(range(1, 17)))


def hexed(*pieces: str) -> bytes:
    return bytes.fromhex("".join(pieces))


REQUESTS = [
    pytest.param(
        RequestHeader(ApiKey.API_VERSIONS, 0, 1, "abc"),
        ApiVersionsRequest(),
        hexed("0012", "0000", "00000001", "0003 616263"),
        id="api-versions-v0",
    ),
    pytest.param(
        RequestHeader(ApiKey.API_VERSIONS, 3, 7, None),
        ApiVersionsRequest(client_software_name="ab", client_software_version="1"),
        # key, version, correlation id, null client id in the old form, no header tags;
        # two compact strings (length + 1), no tags
        hexed("0012", "0003", "00000007", "ffff", "00", "03 6162", "02 31", "00"),
        id="api-versions-v3",
    ),
    pytest.param(
        RequestHeader(ApiKey.METADATA, 1, 2, ""),
        MetadataRequest(topics=None),
        hexed("0003", "0001", "00000002", "0000", "ffffffff"),
        id="metadata-v1-all-topics",
    ),
    pytest.param(
        RequestHeader(ApiKey.METADATA, 12, -1, "c"),
        MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ),
        hexed(
            *("0003", "000c", "ffffffff", "0001 63", "00"),
            *("02", "0102030405060708090a0b0c0d0e0f10", "00", "00"),
            *("00", "01", "00"),
        ),
        id="metadata-v12-by-id",
    ),
    pytest.param(
        RequestHeader(ApiKey.PRODUCE, 3, 5, "p"),
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData("t", partition_data=[PartitionProduceData(2, b"\xaa\xbb")])
            ],
        ),
        hexed(
            *("0000", "0003", "00000005", "0001 70"),
            *("ffff", "ffff", "000003e8"),
            *("00000001", "0001 74", "00000001", "00000002", "00000002 aabb"),
        ),
        id="produce-v3",
    ),
    pytest.param(
        RequestHeader(ApiKey.PRODUCE, 9, 5, "p"),
        ProduceRequest(
            transactional_id="x",
            acks=1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData("t", partition_data=[PartitionProduceData(2, b"\xaa\xbb")])
            ],
        ),
        hexed(
            *("0000", "0009", "00000005", "0001 70", "00"),
            *("02 78", "0001", "000003e8"),
            *("02", "02 74", "02", "00000002", "03 aabb", "00", "00", "00"),
        ),
        id="produce-v9",
    ),
    pytest.param(
        RequestHeader(ApiKey.FETCH, 12, 9, "f"),
        FetchRequest(
            cluster_id="k",
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            session_id=3,
            session_epoch=4,
            topics=[
                FetchTopic("t", partitions=[FetchPartition(0, 5, 77, partition_max_bytes=4096)])
            ],
            rack_id="r",
        ),
        hexed(
            *("0001", "000c", "00000009", "0001 66", "00"),
            # replica id -1, max wait, min bytes, max bytes, read committed, session
            *("ffffffff", "000001f4", "00000001", "00100000", "01", "00000003", "00000004"),
            *("02", "02 74", "02"),
            # partition, leader epoch 5, offset 77, last fetched epoch -1, log start -1, limit
            *("00000000", "00000005", "000000000000004d", "ffffffff"),
            *("ffffffffffffffff", "00001000", "00", "00"),
            # nothing forgotten, rack; one tag: 0 of 2 bytes, the cluster id
            *("01", "02 72", "01", "00 02 02 6b"),
        ),
        id="fetch-v12",
    ),
]


@pytest.mark.parametrize(("header", "body", "data"), REQUESTS)
def test_request(header: RequestHeader, body: Message, data: bytes) -> None:
    assert request_frame(header, body) == len(data).to_bytes(4) + data
    request = parse_request_header(data)
    assert request[:4] == (
        header.request_api_key,
        header.request_api_version,
        header.correlation_id,
        header.client_id,
    )
    assert decode(type(body), request.version, request.body) == body


PARTITION = MetadataResponsePartition(0, 0, 1, 4, [1, 2], [1])
RESPONSES = [
    pytest.param(
        *(ApiKey.API_VERSIONS, 0),
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 4)]),
        hexed("0000002a", "0023", "00000001", "0012 0000 0004"),
        id="api-versions-v0",
    ),
    pytest.param(
        *(ApiKey.API_VERSIONS, 3),
        ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)]),
        # No tags behind the correlation id: the header stays v0.
        hexed("0000002a", "0000", "02", "0012 0000 0004 00", "00000000", "00"),
        id="api-versions-v3",
    ),
    pytest.param(
        *(ApiKey.API_VERSIONS, 4),
        ApiVersionsResponse(
            throttle_time_ms=1,
            supported_features=[SupportedFeatureKey("k", 0, 1)],
            finalized_features_epoch=9,
            finalized_features=[FinalizedFeatureKey("k", 1, 1)],
            zk_migration_ready=True,
        ),
        hexed(
            *("0000002a", "0000", "01", "00000001"),
            *("04", "00 08", "02 02 6b 0000 0001 00"),
            *("01 08", "0000000000000009"),
            *("02 08", "02 02 6b 0001 0001 00"),
            *("03 01", "01"),
        ),
        id="api-versions-v4",
    ),
    pytest.param(
        *(ApiKey.METADATA, 1),
        MetadataResponse(
            brokers=[MetadataResponseBroker(1, "h", 9092, rack=None)],
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name="t",
                    partitions=[MetadataResponsePartition(0, 0, 1, -1, [1, 2], [1])],
                )
            ],
        ),
        hexed(
            *("0000002a", "00000001", "00000001", "0001 68", "00002384", "ffff"),
            *("00000001", "00000001", "0000", "0001 74", "00"),
            *("00000001", "0000", "00000000", "00000001"),
            *("00000002 00000001 00000002", "00000001 00000001"),
        ),
        id="metadata-v1",
    ),
    pytest.param(
        *(ApiKey.METADATA, 12),
        MetadataResponse(
            brokers=[MetadataResponseBroker(1, "h", 9092, rack="r")],
            cluster_id="c",
            controller_id=1,
            topics=[MetadataResponseTopic(0, "t", TOPIC_ID, False, [PARTITION])],
        ),
        hexed(
            *("0000002a", "00", "00000000", "02", "00000001", "02 68", "00002384", "02 72", "00"),
            *("02 63", "00000001", "02", "0000", "02 74", "0102030405060708090a0b0c0d0e0f10"),
            *("00", "02", "0000", "00000000", "00000001", "00000004"),
            *("03 00000001 00000002", "02 00000001", "01", "00"),
            # authorized operations, "not asked" = the least int32
            *("80000000", "00", "00"),
        ),
        id="metadata-v12",
    ),
    pytest.param(
        *(ApiKey.FETCH, 4),
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    "t",
                    partitions=[
                        PartitionData(
                            0,
                            high_watermark=8,
                            last_stable_offset=7,
                            aborted_transactions=None,
                            records=b"\x01\x02\x03",
                        )
                    ],
                )
            ]
        ),
        hexed(
            *("0000002a", "00000000", "00000001", "0001 74", "00000001"),
            *("00000000", "0000", "0000000000000008", "0000000000000007", "ffffffff"),
            *("00000003 010203",),
        ),
        id="fetch-v4",
    ),
    pytest.param(
        *(ApiKey.FETCH, 12),
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    "t",
                    partitions=[
                        PartitionData(
                            0,
                            error_code=6,
                            high_watermark=-1,
                            diverging_epoch=EpochEndOffset(2, 3),
                            aborted_transactions=None,
                            records=None,
                        )
                    ],
                )
            ]
        ),
        hexed(
            *("0000002a", "00", "00000000", "0000", "00000000", "02", "02 74", "02"),
            *("00000000", "0006", "ffffffffffffffff", "ffffffffffffffff", "ffffffffffffffff"),
            *("00", "ffffffff", "00"),
            # one tag: 0 of 13 bytes, the diverging epoch and its own (no) tags
            *("01", "00 0d", "00000002", "0000000000000003", "00"),
            *("00", "00"),
        ),
        id="fetch-v12",
    ),
]


@pytest.mark.parametrize(("key", "version", "body", "data"), RESPONSES)
def test_response(key: ApiKey, version: int, body: Message, data: bytes) -> None:
    assert response_frame(key, version, 42, body) == len(data).to_bytes(4) + data


def test_a_nullable_struct_has_a_byte_before_it() -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest("t")], cursor=None)
    head = hexed("02", "02 74 00", "000007d0")
    assert encode(request, 0) == head + hexed("ff", "00")
    request.cursor = RequestCursor("t", 3)
    assert encode(request, 0) == head + hexed("01", "02 74", "00000003", "00", "00")
    assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request


def test_a_byte_that_is_not_zero_is_true() -> None:
    data = bytearray(encode(MetadataRequest(topics=None), 4))
    data[-1] = 7
    assert decode(MetadataRequest, 4, data).allow_auto_topic_creation is True


def test_the_consumer_protocol() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=None)
    assert encode(subscription, 0) == hexed("00000001", "0001 74", "ffffffff")
