"""The small pure parts of the server: reply order, memory, deadlines, receive buffer."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotController, ProtocolFault, StorageFailed
from ottla.server.deadlines import Activity, Deadlines, Expiry, expiry_of
from ottla.server.error_mapping import to_error_code
from ottla.server.receive_buffer import BUFFER_BYTES, FIRST_BYTES, KEPT_BYTES_MAX, ReceiveBuffer
from ottla.server.reply_order import ReplyOrder
from ottla.server.request_memory import RequestMemory


@given(st.permutations(list(range(8))), st.sets(st.integers(0, 7)))
def test_replies_are_sent_in_request_order_however_they_complete(
    finishing: list[int], silent: set[int]
) -> None:
    order: ReplyOrder[int] = ReplyOrder()
    slots = [order.reserve(10) for _ in range(8)]
    left: list[int] = []
    for done, n in enumerate(finishing, 1):
        order.complete(slots[n], None if n in silent else n, 5)
        left += order.due()
        finished = set(finishing[:done])
        in_front = next((n for n in range(8) if n not in finished), 8)
        assert left == [n for n in range(in_front) if n not in silent]
        waiting = [n for n in range(in_front, 8)]
        assert order.bytes == sum(5 if n in finished else 10 for n in waiting)
        assert len(order) == len(waiting)


def test_memory_is_granted_in_arrival_order_and_one_request_may_exceed_the_limit() -> None:
    memory, woken = RequestMemory(bytes_max=100), []
    wakes = [lambda n=n: woken.append(n) for n in range(4)]
    assert memory.take(60, wakes[0]) and memory.take(60, wakes[1])
    assert not memory.take(1, wakes[2]) and not memory.take(1, wakes[3])
    memory.give_back(60)
    assert woken == [2]
    assert not memory.take(1, wakes[3]), "nobody overtakes"
    assert memory.take(1, wakes[2])
    assert woken == [2, 3], "there is room for the next as well"
    assert memory.take(1, wakes[3])
    assert memory.used == 62


def test_closed_connection_does_not_block_those_that_wait_for_memory() -> None:
    memory, woken = RequestMemory(bytes_max=10), []
    wakes = [lambda n=n: woken.append(n) for n in range(3)]
    memory.take(10, wakes[0])
    assert not memory.take(5, wakes[1]) and not memory.take(5, wakes[2])
    memory.give_back(10)
    memory.forget(wakes[1])
    assert woken == [1, 2]
    assert memory.take(5, wakes[2])


def test_without_a_limit_all_memory_is_granted() -> None:
    memory = RequestMemory()
    assert memory.take(2**40, print) and memory.take(2**40, print)


DEADLINES = Deadlines(idle_ms=1000, frame_ms=100, frame_bytes_per_second=1000)


def activity(**changes: object) -> Activity:
    quiet = {
        "last_active": 0,
        "frame_since": None,
        "frame_size": 4,
        "sending": False,
        "busy": False,
    }
    return Activity(**(quiet | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "now", "expected"),
    [
        (activity(), 999, None),
        (activity(), 1000, Expiry.IDLE),
        (activity(busy=True), 10_000, None),
        (activity(busy=True, sending=True), 1000, Expiry.STALLED),
        (activity(frame_since=0, last_active=90), 103, None),
        (activity(frame_since=0, last_active=90), 104, Expiry.SLOW_FRAME),
        (activity(frame_since=0, last_active=550, frame_size=500), 599, None),
        (activity(frame_since=0, last_active=550, frame_size=500), 600, Expiry.SLOW_FRAME),
        (activity(frame_since=0, last_active=10, frame_size=10**8), 109, None),
        (activity(frame_since=0, last_active=10, frame_size=10**8), 110, Expiry.SLOW_FRAME),
        (activity(frame_since=90, last_active=10, frame_size=10**8), 110, None),
    ],
)
def test_deadlines(seen: Activity, now: int, expected: Expiry | None) -> None:
    assert expiry_of(seen, DEADLINES, now) is expected  # type: ignore[arg-type]


def test_negative_idle_time_disables_the_idle_deadline() -> None:
    assert expiry_of(activity(), Deadlines(idle_ms=-1), 10**12) is None  # type: ignore[arg-type]


# -- the receive buffer ----------------------------------------------------------


def receive(received: ReceiveBuffer, data: bytes, step: int, limit: int = 2**30) -> list[bytes]:
    """Feed as a socket would, ``step`` bytes at most per read; return the frames."""
    frames = []
    while data:
        room = received.room()
        count = min(len(room), step, len(data))
        assert count > 0, "never an empty view"
        room[:count] = data[:count]
        data = data[count:]
        if received.filled(count):
            while (frame := received.take(limit)) is not None:
                frames.append(bytes(frame))
    return frames


SIZES = st.sampled_from(
    [
        *(1, 2, 100, FIRST_BYTES - 5, FIRST_BYTES - 4, FIRST_BYTES),
        *(BUFFER_BYTES - 5, BUFFER_BYTES - 4, BUFFER_BYTES, 200_000),
    ]
)


@given(st.lists(SIZES, min_size=1, max_size=8), st.sampled_from([1000, 65_537, 10**9]))
def test_frames_are_returned_as_they_were_received(sizes: list[int], step: int) -> None:
    bodies = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    received = ReceiveBuffer()
    assert receive(received, stream, step) == bodies
    assert not received.is_partial


def test_connection_with_small_requests_keeps_a_small_buffer() -> None:
    received = ReceiveBuffer()
    for _ in range(3):
        assert receive(received, b"\0\0\0\x09123456789" * 100, 10**9) == [b"123456789"] * 100
        assert len(received.buffer) == FIRST_BYTES


def test_buffer_that_was_full_has_the_standard_size_until_the_connection_is_idle() -> None:
    received = ReceiveBuffer()
    receive(received, FIRST_BYTES.to_bytes(4, "big") + bytes(FIRST_BYTES), 10**9)
    assert len(received.buffer) == BUFFER_BYTES
    received.hand_over()
    assert len(received.room()) == BUFFER_BYTES
    received.release()
    assert len(received.room()) == FIRST_BYTES


def test_announced_length_takes_no_memory() -> None:
    received = ReceiveBuffer()
    receive_bytes(received, (100 << 20).to_bytes(4, "big"))
    assert received.take(2**30) is None
    count_received = 4
    for size in (5, 100_000, 3_000_000):
        data = bytes(size)
        while data:
            room = received.room()
            count = min(len(room), len(data))
            received.filled(count)
            data = data[count:]
            count_received += count
            assert len(received.buffer) <= max(BUFFER_BYTES, 2 * count_received)


def test_idle_connection_keeps_only_the_bytes_of_an_incomplete_frame() -> None:
    received = ReceiveBuffer()
    receive_bytes(received, b"\0\0\0\x09abc")
    received.release()
    assert len(received.buffer) == 7
    assert receive(received, b"defghi" + b"\0\0\0\x01x", 1000) == [b"abcdefghi", b"x"]
    received.release()
    assert len(received.buffer) == 0


def receive_bytes(received: ReceiveBuffer, data: bytes) -> None:
    received.room()[: len(data)] = data
    received.filled(len(data))


@pytest.mark.parametrize(
    ("observed", "end"),
    [
        (b"\0\0\0\x02ab", 6),
        (b"\0\0\0\x02a", 0),
        (b"\0\0\0\x02abc", 0),
        (b"\0\0\0\x00", 0),
        (b"\0\0", 0),
        (b"", 0),
        (b"\0\0\0\x05abcde", 9),
        (b"\0\0\0\x06abcdef", 0),
        (b"\xff\xff\xff\xff" + b"abc", 0),
    ],
)
def test_only_frame_is_complete_alone_and_within_the_limit(observed: bytes, end: int) -> None:
    received = ReceiveBuffer()
    receive_bytes(received, observed)
    assert received.only_frame(5) == end
    assert bytes(received.buffer[: len(observed)]) == observed


def test_only_frame_is_zero_after_another_frame() -> None:
    received = ReceiveBuffer()
    receive_bytes(received, b"\0\0\0\x02ab" * 2)
    assert received.take(9) is not None
    assert received.only_frame(9) == 0


def test_next_frame_is_whole_within_the_limit_and_not_taken() -> None:
    received = ReceiveBuffer()
    receive_bytes(received, b"\0\0\0\x02ab" + b"\0\0\0\x03cde" + b"\0\0\0\x02f")
    assert (received.start, received.next_frame(9)) == (0, 6)
    received.take_until(6)
    assert (received.start, received.next_frame(9), received.next_frame(2)) == (6, 13, 0)
    received.take_until(13)
    assert (received.next_frame(9), received.is_partial) == (0, True)
    receive_bytes(received, b"g")
    received.take_until(received.next_frame(9))
    assert (received.start, received.is_partial, received.frame_size) == (0, False, 4)


def test_next_frame_ignores_what_cannot_hold_an_api_key() -> None:
    for observed in (b"\0\0\0\x01a", b"\0\0\0\0", b"\xff\xff\xff\xff" + b"abc", b""):
        received = ReceiveBuffer()
        receive_bytes(received, observed)
        assert received.next_frame(1 << 31) == 0


def test_frames_are_received_byte_by_byte() -> None:
    assert receive(ReceiveBuffer(), b"\0\0\0\x02ab\0\0\0\x01c", 1) == [b"ab", b"c"]


def test_buffer_grows_to_the_size_of_the_frame() -> None:
    received = ReceiveBuffer()
    head = (50_000_000).to_bytes(4, "big")
    received.room()[:4] = head
    assert received.filled(4) and received.take(2**30) is None
    assert received.wants_memory(BUFFER_BYTES) and received.frame_size == 50_000_004
    while not received.filled(len(received.room())):
        assert len(received.buffer) <= 50_000_004
    assert len(received.buffer) == 50_000_004


def test_frame_above_the_limit_is_rejected_before_the_buffer_grows() -> None:
    received = ReceiveBuffer()
    received.room()[:4] = (101).to_bytes(4, "big")
    received.filled(4)
    with pytest.raises(ProtocolFault, match="limit 100"):
        received.take(100)
    assert len(received.room()) < BUFFER_BYTES


def test_small_buffer_is_reused_and_a_huge_one_is_not() -> None:
    received = ReceiveBuffer()
    for size, kept in ((KEPT_BYTES_MAX - 4, True), (KEPT_BYTES_MAX, False)):
        receive(received, size.to_bytes(4, "big") + bytes(size), 10**9)
        assert (len(received.room()) > BUFFER_BYTES) is kept


def test_buffer_that_was_handed_over_is_not_written_again() -> None:
    received = ReceiveBuffer()
    stream = b"\0\0\0\x04keep" + b"\0\0\0\x04next" + b"\0\0"
    received.room()[: len(stream)] = stream
    received.filled(len(stream))
    kept = received.take(100)
    assert kept is not None
    received.hand_over()
    assert received.take(100) == b"next"
    assert receive(received, b"\0\x04more" * 1 + b"\0\0\0\x04zzzz", 3) == [b"more", b"zzzz"]
    assert kept == b"keep"


def test_idle_buffer_is_released_and_one_in_use_is_not() -> None:
    received = ReceiveBuffer()
    receive(received, b"\0\0\0\x01a", 10)
    received.release()
    assert receive(received, b"\0\0\0\x01b\0", 10) == [b"b"]
    received.release()
    assert receive(received, b"\0\0\x01c", 10) == [b"c"], "the byte that was there is still there"


def test_full_buffer_grows_for_the_next_bytes() -> None:
    received = ReceiveBuffer()
    whole = b"\0\0\0\x01a" * (BUFFER_BYTES // 5 + 1)
    sent = 0
    while sent < len(whole):
        room = received.room()
        count = min(len(room), len(whole) - sent)
        room[:count] = whole[sent : sent + count]
        received.filled(count)
        sent += count
    assert len(received.room()) > 0
    assert sum(1 for _ in iter(lambda: received.take(10), None)) == len(whole) // 5


# -- errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotController("x"), ErrorCode.NOT_CONTROLLER),
        (StorageFailed("/d"), ErrorCode.KAFKA_STORAGE_ERROR),
        (OSError(5, "input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (TimeoutError(), ErrorCode.REQUEST_TIMED_OUT),
        (ConnectionResetError(), ErrorCode.NETWORK_EXCEPTION),
        (asyncio.CancelledError(), ErrorCode.NETWORK_EXCEPTION),
        (KeyError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_exceptions_are_mapped_to_error_codes(error: BaseException, code: ErrorCode) -> None:
    assert to_error_code(error) is code
