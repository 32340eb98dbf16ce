"""Produce on the wire: our hand-written halves against the compiled codec, and bad bytes."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ottla.api.partitions.current_leaders import CurrentLeader, NodeEndpoint
from ottla.api.produce.record_validation import RecordError
from ottla.api.produce.reply import PartitionResult, pack_produce
from ottla.api.produce.request import parse_produce
from ottla.protocol.codec import decode, encode
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.messages.produce import NodeEndpoint as EndpointMessage

VERSIONS = range(3, 14)

names = st.text(min_size=0, max_size=200)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
requests = st.builds(
    ProduceRequest,
    transactional_id=st.none() | names,
    acks=st.integers(-(2**15), 2**15 - 1),
    timeout_ms=int32,
    topic_data=st.lists(
        st.builds(
            TopicProduceData,
            name=names,
            topic_id=st.binary(min_size=16, max_size=16),
            partition_data=st.lists(
                st.builds(
                    PartitionProduceData,
                    index=int32,
                    records=st.none() | st.binary(max_size=300),
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
)


def body_of(message: ProduceRequest, version: int) -> memoryview:
    return memoryview(bytearray(encode(message, version)))


@settings(max_examples=60)
@given(message=requests, version=st.sampled_from(VERSIONS))
def test_a_request_is_read_as_the_codec_writes_it(message: ProduceRequest, version: int) -> None:
    found = parse_produce(body_of(message, version), version)
    assert found[:3] == (message.transactional_id, message.acks, message.timeout_ms)
    assert found.topics == [
        (
            topic.name if version < 13 else topic.topic_id,
            [(each.index, each.records) for each in topic.partition_data],
        )
        for topic in message.topic_data
    ]


SAMPLE = ProduceRequest(
    "tx",
    -1,
    1500,
    [
        TopicProduceData(
            "orders",
            bytes(range(16)),
            [PartitionProduceData(0, b"0123456789"), PartitionProduceData(1, b"")],
        ),
        TopicProduceData("pay", bytes(16), [PartitionProduceData(7, None)]),
    ],
)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_is_refused_and_what_is_behind_not_looked_at(version: int) -> None:
    whole = bytes(encode(SAMPLE, version))
    for end in range(len(whole)):
        with pytest.raises(ProtocolFault):
            parse_produce(memoryview(bytearray(whole[:end])), version)
    longer = parse_produce(memoryview(bytearray(whole + b"\xff" * 3)), version)
    assert longer == parse_produce(memoryview(bytearray(whole)), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_byte_that_changes_does_more_than_fault(version: int) -> None:
    whole = bytes(encode(SAMPLE, version))
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[at] = value
            try:
                parse_produce(memoryview(changed), version)
            except ProtocolFault:
                continue


CLASSIC = b"\xff\xff" + b"\xff\xff" + bytes(4)  # no transactional id, acks=-1, timeout
COMPACT = b"\x00" + b"\xff\xff" + bytes(4)


@pytest.mark.parametrize(
    ("version", "rest"),
    [
        (8, b"\x7f\xff\xff\xff"),  # topics
        (8, b"\xff\xff\xff\xfb"),
        (8, b"\xff\xff\xff\xff"),  # null
        (8, b"\0\0\0\1\xff\xff\0\0\0\0"),  # a topic without a name
        (8, b"\0\0\0\1\xff\xfe\0\0\0\0"),
        (8, b"\0\0\0\1\0\1a\x7f\xff\xff\xff"),  # partitions
        (8, b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\0\x7f\xff\xff\xff"),  # records
        (8, b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\0\xff\xff\xff\xfe"),
        (8, b"\0\0\0\1\0\1\xff\0\0\0\0"),  # not UTF-8
        (9, b"\xff\xff\xff\xff\x0f\0"),  # topics
        (9, b"\0\0"),  # null
        (9, b"\x02\0\x01\0\0"),  # a topic without a name
        (9, b"\x02\x80\x80\x04" + b"a" * 65535 + b"\x01\0\0"),  # a name beyond 32 KiB
        (9, b"\x02\x02a\xff\xff\xff\xff\x0f\0\0"),  # partitions
        (9, b"\x02\x02a\x02\0\0\0\0\xff\xff\xff\xff\x0f\0\0\0"),  # records
        (9, b"\xff\xff\xff\xff\xff\xff\x01\0"),  # a varint of seven bytes
        (9, b"\x01\x02\x00\x00\x00\x00"),  # the same tag twice
    ],
)
def test_lengths_that_the_bytes_contradict_are_refused(version: int, rest: bytes) -> None:
    head = CLASSIC if version < 9 else COMPACT
    with pytest.raises(ProtocolFault):
        parse_produce(memoryview(bytearray(head + rest)), version)


@pytest.mark.parametrize("version", [8, 9])
def test_array_of_more_than_a_million_topics_is_rejected(version: int) -> None:
    """Kafka 4.4's limit; the bytes of all of them are there."""
    count = 1_000_001
    if version < 9:
        body = CLASSIC + count.to_bytes(4) + b"\0\1a\0\0\0\0" * count
    else:
        body = COMPACT + uvarint(count + 1) + b"\2a\1\0" * count + b"\0"
    with pytest.raises(ProtocolFault, match="1000001 where 1000000 are allowed"):
        parse_produce(memoryview(bytearray(body)), version)


def test_tagged_fields_that_nobody_knows_are_stepped_over() -> None:
    body = COMPACT + b"\x02\x02a\x02\0\0\0\5\x03xy\x01\x07\x01z\x01\x00\x00\x02\x00\x00\x05\x01q"
    found = parse_produce(memoryview(bytearray(body)), 9)
    assert found.topics == [("a", [(5, b"xy")])]


# -- responses ---------------------------------------------------------------

results = st.builds(
    PartitionResult,
    partition=int32,
    error_code=st.integers(-1, 130),
    base_offset=int64,
    log_append_time=int64,
    log_start_offset=int64,
    record_errors=st.lists(st.builds(RecordError, int32, names), max_size=3),
    error_message=st.none() | names,
    current_leader=st.none() | st.builds(CurrentLeader, int32, int32),
)
endpoints = st.builds(NodeEndpoint, int32, names, int32, st.none() | names)


def as_message(version: int, result: PartitionResult) -> PartitionProduceResponse:
    message = PartitionProduceResponse(*result[:4])
    if version >= 5:
        message.log_start_offset = result.log_start_offset
    if version >= 8:
        message.error_message = result.error_message
        message.record_errors = [BatchIndexAndErrorMessage(*each) for each in result.record_errors]
    if version >= 10 and result.current_leader is not None:
        message.current_leader = LeaderIdAndEpoch(*result.current_leader)
    return message


@pytest.mark.parametrize("version", VERSIONS)
def test_error_has_all_fields_of_its_version(version: int) -> None:
    errors = [RecordError(3, "why"), RecordError(70_000, "é")]
    result = PartitionResult(5, 87, -1, 9, 4, errors, "all of them", CurrentLeader(2, 8))
    topic = "t" if version < 13 else bytes(range(16))
    at = [NodeEndpoint(2, "h", 9092, None)] if version >= 10 else []
    expected = ProduceResponse(
        [TopicProduceResponse(partition_responses=[as_message(version, result)])], 77
    )
    if version < 13:
        expected.responses[0].name = "t"
    else:
        expected.responses[0].topic_id = bytes(range(16))
    if version >= 10:
        expected.node_endpoints = [EndpointMessage(*each) for each in at]
    packed = pack_produce(version, [(topic, [result])], 77, at)
    assert packed == bytes(encode(expected, version))


# Shrinking takes minutes here, and the test above has said by then what is wrong.
@settings(max_examples=60, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    version=st.sampled_from(VERSIONS),
    topics=st.lists(
        st.tuples(names, st.binary(min_size=16, max_size=16), st.lists(results, max_size=3)),
        max_size=3,
    ),
    throttle_ms=int32,
    at=st.lists(endpoints, max_size=2, unique_by=lambda each: each.node_id),
)
def test_a_response_is_what_the_codec_writes(version, topics, throttle_ms, at) -> None:
    by = 0 if version < 13 else 1
    packed = pack_produce(
        version,
        [(topic[by], topic[2]) for topic in topics],
        throttle_ms,
        at if version >= 10 else (),
    )
    expected = ProduceResponse(
        responses=[
            TopicProduceResponse(
                **({"name": topic[0]} if version < 13 else {"topic_id": topic[1]}),
                partition_responses=[as_message(version, each) for each in topic[2]],
            )
            for topic in topics
        ],
        throttle_time_ms=throttle_ms,
    )
    if version >= 10:
        expected.node_endpoints = [EndpointMessage(*each) for each in at]
    assert decode(ProduceResponse, version, packed) == expected
    written = bytes(encode(expected, version))
    has_leader = any(each.current_leader for topic in topics for each in topic[2])
    if version < 10 or not has_leader:  # the codec leaves out a leader that has its defaults
        assert packed == written
