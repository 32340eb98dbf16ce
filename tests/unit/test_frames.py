"""Frames and headers: what is cut from a stream, and what is refused before it costs memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode, encode
from ottla.protocol.faults import ProtocolFault, UnsupportedVersion
from ottla.protocol.frames import (
    SMALL_FRAMES_MAX,
    FrameSplitter,
    Request,
    UnsupportedRequest,
    parse_request_header,
    parse_response_header,
    refuse_version,
    request_frame,
    response_frame,
)
from ottla.protocol.headers import RequestHeader, request_header_version
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

LIMIT = 1000


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


# -- cutting -----------------------------------------------------------------


@given(
    st.lists(st.binary(min_size=1, max_size=60), max_size=5),
    st.lists(st.integers(1, 40), min_size=1, max_size=20),
    st.integers(4, 40),
)
def test_frames_come_out_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int], size_start: int
) -> None:
    stream = framed(*bodies)
    splitter = FrameSplitter(LIMIT, size_start, size_kept=50)
    found = []
    at = turn = 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += [bytes(frame) for frame in splitter.feed(stream[at : at + step])]
        at, turn = at + step, turn + 1
    assert found == bodies
    assert splitter.is_between_frames
    assert splitter.need == 4


@given(st.binary(max_size=300), st.integers(1, 30))
def test_no_stream_makes_anything_but_frames_or_a_fault(stream: bytes, step: int) -> None:
    splitter = FrameSplitter(20, size_start=4)
    try:
        for at in range(0, len(stream), step):
            for frame in splitter.feed(stream[at : at + step]):
                assert 0 < len(frame) <= 20
            assert splitter.need > 0
            assert len(splitter.room()) > 0
    except ProtocolFault:
        pass


def test_room_and_need_of_a_frame_under_way() -> None:
    splitter = FrameSplitter(LIMIT, size_start=16)
    assert splitter.need == 4
    splitter.room()[:6] = framed(b"x" * 100)[:6]
    splitter.filled(6)
    assert splitter.next_frame() is None
    assert splitter.need == 98
    assert not splitter.is_between_frames
    while splitter.need:
        room = splitter.room()
        room[:] = b"y" * len(room)
        splitter.filled(len(room))
    # Grown to the frame, exactly.
    assert splitter.need == 0
    assert splitter.next_frame() == b"xx" + b"y" * 98
    assert splitter.next_frame() is None


def test_frames_wait_until_they_are_taken() -> None:
    splitter = FrameSplitter(LIMIT)
    stream = framed(b"one", b"two", b"three")[:-1]
    splitter.room()[: len(stream)] = stream
    splitter.filled(len(stream))
    assert [splitter.next_frame(), splitter.next_frame()] == [b"one", b"two"]
    assert splitter.next_frame() is None
    assert splitter.need == 1


def test_the_buffer_is_kept_for_the_next_frame_but_not_for_ever() -> None:
    splitter = FrameSplitter(1 << 20, size_start=16, size_kept=200)
    for size, kept in ((100, 104), (50, 104), (150, 154)):
        assert [len(frame) for frame in splitter.feed(framed(bytes(size)))] == [size]
        assert len(splitter.room()) == kept
    list(splitter.feed(framed(bytes(150))))
    splitter.release()
    assert len(splitter.room()) == 16


def test_a_large_buffer_is_kept_while_large_frames_come() -> None:
    splitter = FrameSplitter(8 << 20, size_start=16, size_kept=200)
    large = framed(bytes(1_500_000))
    for _ in range(2):
        assert [len(frame) for frame in splitter.feed(large)] == [1_500_000]
        for _ in range(SMALL_FRAMES_MAX):
            list(splitter.feed(framed(b"small")))
            assert len(splitter.room()) == 2 << 20, "a frame that is a little larger fits as well"
    list(splitter.feed(framed(b"small")))
    assert len(splitter.room()) == 16


def test_a_buffer_is_never_larger_than_the_largest_frame() -> None:
    splitter = FrameSplitter(300_000, size_start=16, size_kept=200)
    list(splitter.feed(framed(bytes(250_000))))
    assert 250_004 <= len(splitter.room()) <= 300_004


def test_what_has_come_of_a_frame_may_be_looked_at() -> None:
    splitter = FrameSplitter(LIMIT, size_start=16)
    stream = framed(b"one", b"abcdefgh")
    seen = []
    for byte in stream[:-1]:
        list(splitter.feed(bytes((byte,))))
        seen.append(bytes(splitter.under_way))
    assert seen[:8] == [b"", b"", b"", b"", b"o", b"on", b"", b""]
    assert seen[-2:] == [b"abcdef", b"abcdefg"]


def test_release_does_not_lose_a_frame_under_way() -> None:
    splitter = FrameSplitter(LIMIT, size_start=4)
    stream = framed(b"x" * 50)
    assert list(splitter.feed(stream[:30])) == []
    splitter.release()
    assert [bytes(frame) for frame in splitter.feed(stream[30:])] == [b"x" * 50]


# -- 1-4: lengths that are refused -------------------------------------------


@pytest.mark.parametrize("length", [0, -1, -(2**31), LIMIT + 1, 100 * 2**20 + 1, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused_before_memory_is_taken(length: int) -> None:
    def attempt() -> None:
        splitter = FrameSplitter(LIMIT, size_start=64)
        with pytest.raises(ProtocolFault, match=f"frame of {length} bytes"):
            list(splitter.feed(length.to_bytes(4, signed=True) + bytes(20)))

    attempt()
    tracemalloc.start()
    attempt()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000


def test_the_largest_frame_is_taken_and_those_before_a_bad_one_too() -> None:
    frames = FrameSplitter(LIMIT).feed(framed(b"a", bytes(LIMIT)) + bytes(4))
    assert [len(next(frames)), len(next(frames))] == [1, LIMIT]
    with pytest.raises(ProtocolFault):
        next(frames)


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        (b"\x16\x03\x01\x02\0", "looks like TLS"),
        (b"GET / HTTP/1.1", "looks like HTTP"),
        (b"POST / HTTP/1.1", "looks like HTTP"),
        (b"SSH-2.0-x", "looks like SSH"),
    ],
)
def test_other_protocols_are_named(head: bytes, hint: str) -> None:
    with pytest.raises(ProtocolFault, match=hint):
        list(FrameSplitter(100 * 2**20).feed(head))


# -- requests ----------------------------------------------------------------


@given(st.sampled_from(ApiKey), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=9))
def test_request_header_has_client_and_api(
    key: ApiKey, correlation_id: int, client_id: str | None
) -> None:
    first, last = APIS[key].versions
    for version in (first, last):
        header = RequestHeader(key, version, correlation_id, client_id)
        frame = encode(header, request_header_version(key, version)) + b"body"
        assert parse_request_header(frame) == Request(
            key, version, correlation_id, client_id, memoryview(b"body")
        )


def header_bytes(key: int, version: int, rest: bytes = b"\xff\xff") -> bytes:
    return key.to_bytes(2, signed=True) + version.to_bytes(2, signed=True) + b"\0\0\0\7" + rest


@pytest.mark.parametrize("key", [-1, 4, 5, 6, 7, 95, 32767])
def test_an_unknown_api_key_is_a_fault(key: int) -> None:
    with pytest.raises(ProtocolFault, match=f"unknown api key {key}"):
        parse_request_header(header_bytes(key, 0))


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.API_VERSIONS, 6), (ApiKey.PRODUCE, 2), (ApiKey.FETCH, -1)]
)
def test_unknown_version_is_recognised_by_its_header_alone(key: ApiKey, version: int) -> None:
    for rest in (b"\xff\xff", b"\xff\xfe", b"\x7f\xff", b"\0\1\xff"):
        request = parse_request_header(header_bytes(key, version, rest))
        assert request == UnsupportedRequest(key, version, 7)
    fault = refuse_version(request)
    assert isinstance(fault, UnsupportedVersion)
    assert f"{key.title} v{version}" in str(fault)


@pytest.mark.parametrize(
    ("rest", "match"),
    [
        (b"\xff\xfe", "client id of -2 bytes"),
        (b"\0\5abc", "client id of 5 bytes"),
        (b"\0\1\xff\0", "client id is not UTF-8"),
        (b"\0\0", "ends within its header"),
        (b"\0\0\1", "tagged fields"),
        (b"\0\0\1\0\5abc", "tag 0 of 5 bytes"),
        (b"\0\0\2\1\0\1\0", "tag 1 after tag 1"),
    ],
)
def test_a_header_that_makes_no_sense_is_a_fault(rest: bytes, match: str) -> None:
    with pytest.raises(ProtocolFault, match=match):
        parse_request_header(header_bytes(ApiKey.API_VERSIONS, 3, rest))


def test_a_frame_shorter_than_any_header_is_a_fault() -> None:
    whole = header_bytes(ApiKey.API_VERSIONS, 0)
    assert isinstance(parse_request_header(whole), Request)
    for length in range(len(whole)):
        with pytest.raises(ProtocolFault, match="shorter than any header"):
            parse_request_header(whole[:length])


def test_an_old_header_where_a_new_one_is_due_is_a_fault() -> None:
    """Without its tags, the first byte of the body is taken for their count."""
    body = encode(ApiVersionsRequest("client", "1.0"), 3)
    with pytest.raises(ProtocolFault):
        parse_request_header(header_bytes(ApiKey.API_VERSIONS, 3, b"\xff\xff" + body))


def test_unknown_tags_of_a_header_are_skipped() -> None:
    frame = header_bytes(ApiKey.API_VERSIONS, 3, b"\0\1c\1\5\3abc" + b"body")
    request = parse_request_header(frame)
    assert isinstance(request, Request)
    assert (request.client_id, bytes(request.body)) == ("c", b"body")


def test_the_longest_client_id_is_taken() -> None:
    frame = header_bytes(ApiKey.API_VERSIONS, 0, b"\x7f\xff" + b"x" * 0x7FFF)
    request = parse_request_header(frame)
    assert isinstance(request, Request)
    assert request.client_id == "x" * 0x7FFF


# -- responses ---------------------------------------------------------------


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("version", range(5))
def test_the_correlation_id_is_echoed(version: int, correlation_id: int) -> None:
    frame = response_frame(ApiKey.HEARTBEAT, version, correlation_id, HeartbeatResponse())
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    echoed, body = parse_response_header(ApiKey.HEARTBEAT, version, frame[4:])
    assert echoed == correlation_id
    assert decode(HeartbeatResponse, version, body) == HeartbeatResponse()


@pytest.mark.parametrize("version", range(5))
def test_the_response_header_of_api_versions_is_always_v0(version: int) -> None:
    body = ApiVersionsResponse(error_code=0)
    frame = response_frame(ApiKey.API_VERSIONS, version, 5, body)
    assert frame[8:] == encode(body, version)
    assert parse_response_header(ApiKey.API_VERSIONS, version, frame[4:])[0] == 5


def test_a_response_shorter_than_its_header_is_a_fault() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(ProtocolFault):
            parse_response_header(ApiKey.HEARTBEAT, 4, frame)


def test_a_request_frame_is_read_by_the_other_side() -> None:
    body = HeartbeatRequest("group", 3, "member")
    for version in range(5):
        frame = request_frame(RequestHeader(ApiKey.HEARTBEAT, version, 9, "me"), body)
        request = parse_request_header(frame[4:])
        assert isinstance(request, Request)
        assert request[:4] == (ApiKey.HEARTBEAT, version, 9, "me")
        assert decode(HeartbeatRequest, version, request.body) == body


def test_a_claimed_length_takes_no_memory() -> None:
    splitter = FrameSplitter(2**30, size_start=16)
    assert list(splitter.feed((100 << 20).to_bytes(4, "big"))) == []
    received = 4
    for size in (1, 5, 100, 10_000):
        assert list(splitter.feed(bytes(size))) == []
        received += size
        assert len(splitter.room()) <= max(16, received)
