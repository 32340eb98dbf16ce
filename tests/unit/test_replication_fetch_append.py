"""Responses that are appended while they arrive: what is appended, and what never is."""

import errno

import pytest
from following_fixtures import FAST, FollowingBroker, Leader, image
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_fixtures import append, batch_of, values_in
from replicas_fixtures import topic_id

from ottla.protocol.codec import decode, encode
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.records.batch import patch_crc
from ottla.replication.fetching.fetch_append import FetchAppender
from ottla.replication.fetching.fetch_rounds import FetchSettings
from ottla.replication.fetching.follower import Follower
from ottla.replication.fetching.follower_rules import FetchRound, decide_bytes
from ottla.replication.fetching.partial_fetch import VERSION_MIN, PartialFetchResponse

VERSION = 18
LARGE = 150_000
KEY = (topic_id(1), 0)


# -- partial responses ---------------------------------------------------------


def row_of(index: int, sizes: list[int], **fields) -> PartitionData:
    records = b"".join(bytes(batch_of(bytes(size))) for size in sizes)
    return PartitionData(index, records=records, aborted_transactions=None, **fields)


def response_of(*topics: list[PartitionData], error: int = 0) -> FetchResponse:
    rows = [
        FetchableTopicResponse(topic_id=topic_id(n), partitions=t) for n, t in enumerate(topics)
    ]
    return FetchResponse(error_code=error, responses=rows)


def parts_of(body: bytes, step: int, version: int = VERSION, least: int = 1) -> dict:
    """Pass a response step by step; return what was found of each partition."""
    arriving = PartialFetchResponse(version, least)
    found: dict = {}
    for end in range(0, len(body), step):
        while (part := arriving.next(memoryview(body)[:end])) is not None:
            assert part.batches
            found.setdefault(part.key, []).append(bytes(part.batches))
    return found


SIZES = st.lists(st.integers(0, 400), max_size=6)
TOPICS = st.lists(st.lists(SIZES, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(topics=TOPICS, step=st.integers(1, 300), least=st.integers(1, 500), cut=st.integers(0, 60))
def test_batches_are_found_in_order_complete_and_once(topics, step, least, cut) -> None:
    answer = response_of(*([row_of(i, sizes) for i, sizes in enumerate(rows)] for rows in topics))
    for topic in answer.responses:
        for row in topic.partitions:
            row.records = row.records[: len(row.records) - min(cut, len(row.records))]
    found = parts_of(encode(answer, VERSION), step, least=least)
    for number, rows in enumerate(topics):
        for index, sizes in enumerate(rows):
            parts = found.pop((topic_id(number), index), [])
            whole = [bytes(batch_of(bytes(size))) for size in sizes]
            got = b"".join(parts)
            assert b"".join(whole).startswith(got)
            assert len(got) in {sum(map(len, whole[:n])) for n in range(len(whole) + 1)}
            assert all(len(part) >= least for part in parts[:-1])
    assert not found


def test_all_but_the_last_bytes_are_found_before_the_end() -> None:
    answer = response_of([row_of(0, [300, 300]), row_of(1, [300])], [row_of(0, [300] * 3)])
    found = parts_of(encode(answer, VERSION), 1)
    size = len(batch_of(bytes(300)))
    assert [len(b"".join(parts)) // size for parts in found.values()] == [2, 1, 3]


def test_part_follows_the_previous_one() -> None:
    found = parts_of(encode(response_of([row_of(0, [300] * 9)]), VERSION), 130)
    (parts,) = found.values()
    assert [len(part) // len(batch_of(bytes(300))) for part in parts] == [1] * 8


@pytest.mark.parametrize(
    "answer",
    [
        response_of([row_of(0, [300] * 3)], error=71),
        response_of([row_of(0, [300] * 3, error_code=6)]),
        response_of([PartitionData(0, aborted_transactions=[AbortedTransaction(1, 2)],
                                   records=bytes(batch_of(bytes(300)) * 3))]),
        response_of([PartitionData(0, records=b"\xff" * 900)]),
        response_of([PartitionData(0, records=b"\0" * 900)]),
        response_of([]),
        FetchResponse(),
    ],
)  # fmt: skip
def test_unusual_responses_are_not_parsed_early(answer) -> None:
    assert parts_of(encode(answer, VERSION) + bytes(200), 40) == {}


def test_partition_after_tagged_fields_is_not_parsed_early() -> None:
    reply = row_of(0, [300], diverging_epoch=EpochEndOffset(1, 2))
    found = parts_of(encode(response_of([reply, row_of(1, [300])]), VERSION), 40)
    assert list(found) == [(topic_id(0), 0)]


def test_topics_without_ids_are_not_parsed_early() -> None:
    # The name with its length is as long as an id.
    rows = [FetchableTopicResponse("orders-of-today", partitions=[row_of(0, [300] * 3)])]
    body = encode(FetchResponse(responses=rows), VERSION_MIN - 1)
    assert parts_of(body, 40, VERSION_MIN - 1) == {}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=600), st.integers(0, 300))
def test_hostile_bytes_yield_no_batches(noise: bytes, at: int) -> None:
    body = bytearray(encode(response_of([row_of(0, [100] * 3), row_of(1, [100])]), VERSION))
    body[at : at + len(noise)] = noise
    parts_of(bytes(body), 37)


# -- appending ----------------------------------------------------------


class Piecewise(Leader):
    """Passes a response piece by piece, in a buffer that is reused afterwards."""

    def __init__(self, pieces: int = 8) -> None:
        super().__init__()
        self.pieces = pieces
        self.at_piece = {}
        self.lost_at: int | None = None
        self.spoil = lambda body: None
        self.ends: list[tuple[int, int]] = []
        self.following: FollowingBroker

    async def send(self, request, *, timeout_ms: int, reader=None):
        answer = await self.answer(request)
        if reader is None:
            return answer
        for topic in request.topics:
            for row in topic.partitions:
                self.ends.append((row.fetch_offset, self.following.mine.log.log_end_offset))
        body = bytearray(encode(answer, VERSION))
        self.spoil(body)
        view = memoryview(body)
        for piece in range(1, self.pieces):
            reader.arriving(VERSION, view[: len(body) * piece // self.pieces])
            self.at_piece.pop(piece, lambda: None)()
            if piece == self.lost_at:
                self.lost_at = None
                body[:] = b"\xee" * len(body)
                raise ConnectionResetError("cut off")
        response = decode(FetchResponse, VERSION, view)
        reader.arrived(response)
        body[:] = b"\xee" * len(body)
        return response


def followed(count: int = 8, **settings) -> FollowingBroker:
    leader = Piecewise()
    terms = {"backoff_ms": 0, "wait_ms_max": 0, "bytes_max": 1 << 23} | settings
    following = FollowingBroker(FetchSettings(**terms), leader)
    leader.following = following
    for number in range(count):
        append(leader.partition, bytes((number,)) * LARGE)
    return following


def first_bytes(following: FollowingBroker) -> list[int]:
    values = values_in(following.mine.log)
    assert all(value is not None and len(set(value)) == 1 for value in values)
    return [value[0] for value in values if value]


def test_batches_are_appended_while_others_arrive() -> None:
    following = followed()
    reached: list[int] = []
    following.leader.at_piece = {
        piece: lambda: reached.append(following.mine.log.log_end_offset) for piece in range(1, 8)
    }
    following.until(lambda: following.mine.log.high_watermark == 8)
    assert first_bytes(following) == list(range(8)), "each once, as it was sent"
    assert reached == sorted(reached)
    assert 0 < reached[3] < 8, "before the response was complete"


def test_no_fetch_starts_after_what_is_appended() -> None:
    following = followed()
    following.leader.lost_at = 5
    following.until(lambda: following.mine.log.high_watermark == 8)
    assert all(asked == end for asked, end in following.leader.ends)
    assert 0 < following.leader.ends[1][0] < 8, "a connection that is lost loses nothing"
    assert first_bytes(following) == list(range(8))


def test_damaged_batch_ends_the_appending() -> None:
    following = followed()

    def spoil(body: bytearray) -> None:
        body[len(body) // 2] ^= 1
        following.leader.spoil = lambda body: None

    following.leader.spoil = spoil
    taken: list[int] = []
    following.leader.at_piece[7] = lambda: taken.append(following.mine.log.log_end_offset)
    following.until(lambda: following.mine.log.high_watermark == 8)
    assert taken == [following.leader.ends[1][0]], "nothing after it until it is fetched again"
    assert 0 < taken[0] <= 4
    assert first_bytes(following) == list(range(8))
    assert following.broker.host.damaged_fetches == 1


def test_new_image_ends_the_appending() -> None:
    following = followed()
    (fetcher,) = following.fetchers._fetchers.values()
    ends: list[int] = []

    def lead() -> None:
        following.broker.publish(image(1, 1, leader=1))
        ends.append(following.mine.log.log_end_offset)

    following.leader.at_piece[4] = lead
    following.until(lambda: fetcher.is_over)
    assert [following.mine.log.log_end_offset] == ends
    assert 0 < ends[0] < 8


def test_disk_failure_during_a_response_stops_that_partition() -> None:
    following = followed()
    following.leader.at_piece[4] = lambda: following.broker.disk.fail(
        "write", error=errno.EIO, path_contains="/d1/orders-0"
    )
    following.until(lambda: following.mine.offline is not None)
    assert 0 < following.mine.log.log_end_offset < 8


def appender_of(following: FollowingBroker) -> FetchAppender:
    follower = Follower(following.broker.host, following.mine)
    return FetchAppender(following.broker.host, {KEY: follower}, {KEY: FetchPartition(0)}, {})


def answer_of(following: FollowingBroker) -> FetchResponse:
    log = following.leader.partition.log
    found = log.read(0, 1 << 24, upto=log.log_end_offset)
    row = PartitionData(0, records=found.file.pread(found.length, found.position))
    row.high_watermark, row.log_start_offset, row.aborted_transactions = 8, 0, None
    return FetchResponse(responses=[FetchableTopicResponse("", topic_id(1), [row])])


def test_skipped_part_skips_all_later_ones() -> None:
    following = followed()
    answer = answer_of(following)
    body = memoryview(encode(answer, VERSION))
    appender = appender_of(following)
    # At offset 1 instead of 0 for a moment.
    following.mine.log.append_at(batch_of(b"other"), now=0)
    appender.arriving(VERSION, body[: len(body) // 2])
    following.mine.log.truncate_to(0)
    appender.arriving(VERSION, body[: len(body) - 1])
    assert following.mine.log.log_end_offset == 0, "else it would have a gap"
    appender.arrived(answer)
    assert first_bytes(following) == list(range(8))
    assert appender.rejected == {}


def test_response_is_appended_once() -> None:
    following = followed()
    answer = answer_of(following)
    appender = appender_of(following)
    appender.arriving(VERSION, memoryview(encode(answer, VERSION)))
    appender.arrived(answer)
    assert first_bytes(following) == list(range(8))
    assert appender.rejected == {}
    assert answer.responses[0].partitions[0].records is None


def test_records_beside_a_diverging_epoch_are_not_appended() -> None:
    following = followed()
    answer = answer_of(following)
    answer.responses[0].partitions[0].diverging_epoch = EpochEndOffset(0, 0)
    appender_of(following).arrived(answer)
    assert following.mine.log.log_end_offset == 0


# -- fetch sizes ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        (FetchRound(100, 0, 0), 100),
        (FetchRound(100, 49, 0), 100),
        (FetchRound(100, 50, 0), 200),
        (FetchRound(100, 1000, 0), 200),
        (FetchRound(600, 600, 0), 1000),
        (FetchRound(600, 600, 101), 600),
        (FetchRound(600, 600, 201), 300),
        (FetchRound(150, 150, 201), 100),
        (FetchRound(1000, 10, 0), 100),
    ],
)
def test_follower_that_is_behind_fetches_more(last: FetchRound, wanted: int) -> None:
    assert decide_bytes(last, 100, 1000) == wanted


def test_usual_bytes_may_exceed_the_limit_of_a_response() -> None:
    assert decide_bytes(FetchRound(100, 100, 0), 100, 50) == 100


def test_follower_fetches_more_until_it_keeps_up() -> None:
    following = followed(30, bytes_max=LARGE * 2, response_bytes_max=LARGE * 9)
    asked: list[int] = []
    answered = following.leader.answer

    async def note(request):
        asked.extend(r.partition_max_bytes // LARGE for t in request.topics for r in t.partitions)
        return await answered(request)

    following.leader.answer = note
    following.until(lambda: following.mine.log.high_watermark == 30)
    assert asked[:4] == [2, 4, 8, 9]
    assert asked[-1] == 2


def test_default_settings_fetch_a_megabyte() -> None:
    assert FAST.bytes_max == 1 << 20


def test_batch_with_a_negative_offset_delta_is_rejected() -> None:
    following = followed(0)
    batch = batch_of(b"a")
    batch[23:27] = b"\xff\xff\xff\xff"
    patch_crc(batch, 0, len(batch))
    row = PartitionData(0, records=bytes(batch))
    appender = appender_of(following)
    appender.arrived(FetchResponse(responses=[FetchableTopicResponse("", topic_id(1), [row])]))
    assert list(appender.rejected) == [KEY]
