"""The hand-written parser and encoder of Fetch, compared with the codec."""

import io
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_strategies import messages

from ottla.api.fetch.reply import FetchReply, Row, pack_fetch
from ottla.api.fetch.request import (
    FetchBody,
    FetchPartition,
    _follower,
    _Reader,
    parse_fetch,
    parse_fetch_steps,
)
from ottla.api.partitions.current_leaders import CurrentLeader, NodeEndpoint
from ottla.api.surface.replies import Chunk, finish
from ottla.protocol.codec import decode_prefix, encode
from ottla.protocol.codec.primitives import uvarint
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import ProtocolFault
from ottla.protocol.messages import fetch
from ottla.storage.log.transaction_index import AbortedTxn
from record_tools import FileRange

VERSIONS = range(4, 19)
ID = bytes(range(16))


class Bytes:
    """A file of which only the bytes count."""

    path = "records"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> int:
        raise io.UnsupportedOperation

    def pread(self, length: int, position: int) -> bytes:
        return self.data[position : position + length]


def slice_of(data: bytes) -> FileRange:
    return FileRange(Bytes(b"before" + data + b"behind"), 6, len(data))


def joined(chunks: list[Chunk]) -> bytes:
    return b"".join(
        bytes(chunk)
        if isinstance(chunk, bytes | bytearray | memoryview)
        else chunk.file.pread(chunk.length, chunk.position)
        for chunk in chunks
    )


def expected(request: fetch.FetchRequest, version: int) -> tuple:
    by_id = version >= 13
    state = request.replica_state
    return (
        version,
        state.replica_id if version >= 15 else request.replica_id,
        state.replica_epoch if version >= 15 else -1,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level == 1,
        request.session_id,
        request.session_epoch,
        [
            (
                topic.topic_id if by_id else topic.topic,
                [
                    FetchPartition(
                        each.partition,
                        each.current_leader_epoch,
                        each.fetch_offset,
                        each.last_fetched_epoch,
                        each.log_start_offset,
                        each.partition_max_bytes,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        [
            (topic.topic_id if by_id else topic.topic, topic.partitions)
            for topic in request.forgotten_topics_data
        ],
        request.rack_id,
        request.isolation_level not in (0, 1),
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=12)
@given(st.data())
def test_requests_are_parsed_as_by_the_codec(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(fetch.FetchRequest, version))
    body = encode(request, version)
    assert tuple(parse_fetch(version, memoryview(body))) == expected(request, version)
    assert tuple(finish(parse_fetch_steps(version, bytes(body)))) == expected(request, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rack", ["", "r"])
def test_session_requests_are_parsed_as_by_the_codec(version: int, rack: str) -> None:
    session = (5, 6) if version >= 7 else (0, -1)
    rack = rack if version >= 11 else ""
    request = fetch.FetchRequest(
        None, -1, fetch.ReplicaState(), 500, 1, 99, 1, *session, rack_id=rack
    )
    body = encode(request, version)
    assert tuple(parse_fetch(version, memoryview(body))) == expected(request, version)


INT32S, INT64S = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FOLLOWER_REQUESTS = st.builds(
    lambda head, row, state: fetch.FetchRequest(
        replica_state=fetch.ReplicaState(*state),
        max_wait_ms=head[0],
        min_bytes=head[1],
        max_bytes=head[2],
        isolation_level=head[5] % 4,
        session_id=head[3],
        session_epoch=head[4],
        topics=[fetch.FetchTopic(topic_id=ID, partitions=[fetch.FetchPartition(*row)])],
    ),
    st.tuples(*[INT32S] * 6),
    st.tuples(INT32S, INT32S, INT64S, INT32S, INT64S, INT32S),
    st.tuples(st.integers(0, 2**31 - 1), INT64S),
)


@pytest.mark.parametrize("version", range(15, 19))
@settings(max_examples=30)
@given(request=FOLLOWER_REQUESTS)
def test_follower_request_is_parsed_in_one_step_as_by_the_codec(
    version: int, request: fetch.FetchRequest
) -> None:
    body = encode(request, version)
    found = _follower(version, body)
    assert found is not None, "it has the usual form"
    assert tuple(found) == expected(request, version)
    assert found == parse_fetch(version, memoryview(body)) == _Reader(version, body).read()


@settings(max_examples=300)
@given(
    request=FOLLOWER_REQUESTS,
    changes=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_other_requests_of_that_length_are_parsed_as_usual(
    request: fetch.FetchRequest, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(encode(request, 18))
    for at, value in changes:
        body[at] = value

    def outcome(parse: Callable[[], FetchBody]) -> FetchBody | None:
        try:
            return parse()
        except (ProtocolFault, IndexError, struct.error, UnicodeDecodeError):
            return None

    usual = outcome(lambda: _Reader(18, bytes(body)).read())
    assert outcome(lambda: parse_fetch(18, memoryview(body))) == usual


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(st.data())
def test_invalid_bytes_are_rejected_or_parsed_as_by_the_codec(
    version: int, data: st.DataObject
) -> None:
    body = bytearray(encode(data.draw(messages(fetch.FetchRequest, version)), version))
    match data.draw(st.sampled_from(["cut", "add", "change"])):
        case "cut":
            del body[data.draw(st.integers(0, max(0, len(body) - 1))) :]
        case "add":
            body += data.draw(st.binary(min_size=1, max_size=4))
        case _:
            at = data.draw(st.integers(0, len(body) - 1))
            body[at] = data.draw(st.integers(0, 255))
    try:
        known, _ = decode_prefix(fetch.FetchRequest, version, memoryview(body))
    except ProtocolFault:
        known = None
    try:
        read = parse_fetch(version, memoryview(body))
    except ProtocolFault:
        # What is skipped here, the codec looks into: it may refuse more, never less.
        assert known is None
    else:
        assert known is None or tuple(read) == expected(known, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_too_large_count_is_rejected(version: int) -> None:
    body = bytearray(encode(fetch.FetchRequest(), version))
    at = {4: 17, 5: 17, 6: 17}.get(version, 25 if version < 15 else 21)
    body[at : at + 4] = b"\xff\xff\xff\x07" if version >= 12 else b"\x7f\xff\xff\xff"
    with pytest.raises(ProtocolFault, match="array: length"):
        parse_fetch(version, memoryview(body))


@pytest.mark.parametrize("version", [4, 12])
def test_array_of_more_than_a_million_topics_is_rejected(version: int) -> None:
    """Kafka 4.4's limit; the bytes of all of them are there."""
    body = encode(fetch.FetchRequest(), version)
    at, count = (17, 1_000_001) if version < 12 else (25, 1_000_001)
    topic = b"\0\1t\0\0\0\0" if version < 12 else b"\2t\1\0"
    length = count.to_bytes(4) if version < 12 else uvarint(count + 1)
    whole = bytes(body[:at]) + length + topic * count + bytes(body[at:])
    with pytest.raises(ProtocolFault, match="1000001 where 1000000 are allowed"):
        parse_fetch(version, memoryview(whole))


rows = st.builds(
    fetch.PartitionData,
    partition_index=st.integers(0, 2**31 - 1),
    error_code=st.sampled_from([0, 1, 6, 74]),
    high_watermark=st.integers(-1, 2**63 - 1),
    last_stable_offset=st.integers(-1, 2**63 - 1),
    log_start_offset=st.integers(-1, 2**63 - 1),
    diverging_epoch=st.just(fetch.EpochEndOffset())
    | st.builds(fetch.EpochEndOffset, st.integers(0, 9), st.integers(0, 2**63 - 1)),
    current_leader=st.just(fetch.LeaderIdAndEpoch())
    | st.builds(fetch.LeaderIdAndEpoch, st.integers(0, 9), st.integers(0, 2**31 - 1)),
    aborted_transactions=st.none()
    | st.lists(st.builds(fetch.AbortedTransaction, st.integers(0, 2**40), st.integers(0, 99))),
    preferred_read_replica=st.integers(-1, 9),
    records=st.sampled_from([b"", b"r", b"x" * 126, b"x" * 127, b"x" * 20_000]),
)
topics = st.lists(
    st.tuples(st.sampled_from(["t", "größe", "x" * 126, "x" * 127]), st.lists(rows, max_size=3)),
    max_size=3,
)
nodes = st.lists(
    st.builds(
        fetch.NodeEndpoint,
        st.integers(0, 9),
        st.sampled_from(["h", "x" * 200]),
        st.integers(1, 65535),
        st.none() | st.sampled_from(["", "rack"]),
    ),
    max_size=2,
)


def as_row(data: fetch.PartitionData) -> Row:
    diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    leader = CurrentLeader(data.current_leader.leader_id, data.current_leader.leader_epoch)
    aborted = data.aborted_transactions
    return Row(
        data.partition_index,
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        slice_of(data.records) if data.records else None,
        None
        if aborted is None
        else [AbortedTxn(each.producer_id, each.first_offset, 0, 0) for each in aborted],
        data.preferred_read_replica,
        None if diverging == (-1, -1) else diverging,
        None if leader == (-1, -1) else leader,
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=12)
@given(topics=topics, nodes=nodes, session_id=st.integers(0, 2**31 - 1), throttle=st.just(7))
def test_replies_equal_those_of_the_codec(
    version: int, topics: list, nodes: list, session_id: int, throttle: int
) -> None:
    reply = FetchReply(
        ErrorCode.NONE if version < 7 else ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        session_id,
        [
            (ID if version >= 13 else name, [as_row(each) for each in partitions])
            for name, partitions in topics
        ],
        [NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in nodes],
        throttle,
    )
    for _, partitions in topics:
        for each in partitions:
            if version < 11:
                each.preferred_read_replica = -1
            if version < 12:
                each.diverging_epoch = fetch.EpochEndOffset()
                each.current_leader = fetch.LeaderIdAndEpoch()
    message = fetch.FetchResponse(
        throttle,
        reply.error,
        session_id if version >= 7 else 0,
        [
            fetch.FetchableTopicResponse("" if version >= 13 else name, ID, partitions)
            for name, partitions in topics
        ],
        nodes if version >= 16 else [],
    )
    if version < 13:
        for topic in message.responses:
            topic.topic_id = bytes(16)
    assert joined(pack_fetch(reply, version)) == encode(message, version)


def test_fetch_response_does_not_copy_records() -> None:
    records = slice_of(b"records")
    chunks = pack_fetch(FetchReply(topics=[("t", [Row(0, records=records), Row(1)])]), 12)
    assert chunks[1] is records
    assert len(chunks) == 3
