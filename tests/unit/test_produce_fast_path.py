"""The Produce fast path gives the same replies and the same log as the general path."""

import asyncio
import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from partition_fixtures import NOW, registration
from produce_pair import Broker, batch, broken, frame

from ottla.api.produce.fast_path import FRAME_BYTES_MAX, HANDLES_MAX
from ottla.config.generated import TopicConfig
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.writer import Producer
from ottla.server.connection import FRAMES_PER_SLICE
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.engine

PLAIN = batch(b"a")
HOUR = 3_600_000
BOUNDED = {
    "message_timestamp_before_max_ms": HOUR,
    "message_timestamp_after_max_ms": HOUR,
}


def send_both(
    frames: Sequence[bytes],
    step: int = 1 << 20,
    config: TopicConfig | None = None,
    log_config: LogConfig | None = None,
    replicas: tuple[int, ...] = (0,),
) -> Broker:
    """Send two brokers the same requests; return the one with the fast path. They must agree."""

    async def both() -> Broker:
        fast, general = (
            Broker(has_fast_path, config or TopicConfig(), log_config or LogConfig(), replicas)
            for has_fast_path in (True, False)
        )
        for broker in (fast, general):
            for each in frames:
                broker.receive(each, step)
                await asyncio.sleep(0)
        assert fast.outcome() == general.outcome()
        assert general.taken == 0
        for broker in (fast, general):
            broker.connection.cancel_pending()
        await asyncio.sleep(0)
        return fast

    return asyncio.run(both())


def of_producer(epoch: int, sequence: int, count: int = 1) -> bytearray:
    return batch(*[b"a"] * count, producer=Producer(7, epoch, sequence))


# -- served by the fast path ------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_next_batch_of_an_idempotent_producer_takes_the_fast_path(version: int, acks: int) -> None:
    sent = [(0, 0, 1), (0, 1, 3), (0, 4, 1), (2, 0, 2), (2, 2, 1)]
    asked = [frame(of_producer(*each), version=version, acks=acks) for each in sent]
    broker = send_both(asked)
    assert broker.taken == len(sent) - 1
    (entry,) = broker.hosted[0].log.producers.entries()
    assert (entry.producer_epoch, entry.last_sequence, entry.last_offset) == (2, 2, 7)


def test_sequence_numbers_wrap_on_the_fast_path() -> None:
    last = 2**31 - 1
    sent = [(0, last - 1, 1), (0, last, 1), (0, 0, 1)]
    assert send_both([frame(of_producer(*each)) for each in sent]).taken == 2


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_plain_request_takes_the_fast_path(version: int, acks: int) -> None:
    asked = [frame(PLAIN, version=version, acks=acks, number=n) for n in (1, -2, 3)]
    broker = send_both(asked)
    # The first request sets the client id of the connection.
    assert broker.taken == 2
    assert broker.hosted[0].log.log_end_offset == 3


def test_several_records_and_partitions_alternate() -> None:
    many = batch(b"a", b"b", b"c" * 3000)
    asked = [frame(PLAIN), frame(many), frame(None, PLAIN), frame(PLAIN), frame(many)]
    assert send_both(asked).taken == 3


@pytest.mark.parametrize("step", [1 << 20, 1000, 150, 7])
def test_frames_in_one_piece_take_the_fast_path_in_order(step: int) -> None:
    asked = b"".join(frame(PLAIN, number=n) for n in range(20))
    broker = send_both([frame(PLAIN), asked], step)
    assert broker.hosted[0].log.log_end_offset == 21
    assert broker.taken == 20


def test_request_of_the_general_path_keeps_its_place_among_pipelined_ones() -> None:
    asked = [frame(PLAIN, number=1), frame(None, PLAIN, number=2), frame(PLAIN, number=3)]
    broker = send_both([frame(PLAIN), b"".join(asked), frame(PLAIN, number=4)])
    assert broker.hosted[0].log.log_end_offset == 4


def test_replies_to_pipelined_requests_are_sent_together() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig())
        broker.receive(frame(PLAIN), 1 << 20)
        sent: list[bytes] = []
        broker.transport.write = sent.append
        broker.receive(b"".join(frame(PLAIN, number=n) for n in range(5)), 1 << 20)
        await asyncio.sleep(0)
        assert len(sent) == 1
        assert [struct.unpack_from(">i", sent[0], 4 + at)[0] for at in _starts(sent[0])] == [
            *range(5)
        ]

    asyncio.run(story())


def _starts(replies: bytes) -> Iterator[int]:
    at = 0
    while at < len(replies):
        yield at
        at += 4 + struct.unpack_from(">i", replies, at)[0]


def test_connection_that_pipelines_uses_one_slice_at_a_time_and_reads_again() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig())
        broker.receive(frame(batch(b"a" * 5000)), 1 << 20)  # grows the receive buffer
        asked = b"".join(frame(PLAIN, number=n) for n in range(3 * FRAMES_PER_SLICE))
        broker.receive(asked, 1 << 20)
        assert broker.taken == FRAMES_PER_SLICE
        broker.receive(frame(PLAIN), 1 << 20)
        assert not broker.transport.is_reading, "what it sends now waits in the kernel"
        for _ in range(5):
            await asyncio.sleep(0)
        assert broker.taken == 3 * FRAMES_PER_SLICE + 1
        assert broker.transport.is_reading

    asyncio.run(story())


def test_reply_does_not_overtake_a_pending_one() -> None:
    asked = [frame(PLAIN, number=1), frame(PLAIN, acks=-1, number=2), frame(PLAIN, number=3)]
    assert send_both(asked, replicas=(0, 1)).hosted[0].log.log_end_offset == 3


@pytest.mark.parametrize("client", [None, "", "ä" * 20, "c" * 300])
def test_fast_path_accepts_any_client_id(client: str | None) -> None:
    assert send_both([frame(PLAIN, client=client)] * 2).taken >= 1


def test_new_client_id_takes_the_general_path_once() -> None:
    asked = [frame(PLAIN, client=each) for each in ("a", "a", "b", "b", "a")]
    assert send_both(asked).taken == 2


# -- declined ------------------------------------------------------------


@pytest.mark.parametrize(
    "again", [(1, 4, 1), (1, 3, 1), (1, 0, 1), (1, 6, 1), (0, 5, 1), (2, 5, 1), (1, 4, 2)]
)
def test_batch_that_is_not_the_next_of_its_producer_takes_the_general_path(
    again: tuple[int, int, int],
) -> None:
    sent = [*((1, n, 1) for n in range(5)), again, (1, 5, 1)]
    broker = send_both([frame(of_producer(*each)) for each in sent])
    assert broker.taken == 5


def test_batch_outside_of_an_open_transaction_takes_the_general_path() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig())
        broken_open = broken(of_producer(0, 0), ">h", 21, 0x10)
        broker.hosted[0].append(broken_open, now=NOW)
        for _ in range(2):
            broker.receive(frame(of_producer(0, 1)), 1 << 20)
        assert broker.taken == 0
        assert broker.hosted[0].log.log_end_offset == 1

    asyncio.run(story())


def test_idempotent_batch_waits_behind_queued_requests() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig())
        ticket = broker.handler._order.enter([("orders", 0, 7)])
        broker.receive(frame(PLAIN), 1 << 20)  # has another key, and sets the client id
        for sequence in (0, 1):
            broker.receive(frame(of_producer(0, sequence)), 1 << 20)
        assert broker.taken == 0
        assert broker.hosted[0].log.log_end_offset == 1
        broker.handler._order.leave(ticket)
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.hosted[0].log.log_end_offset == 3
        broker.connection.cancel_pending()

    asyncio.run(story())


UNUSUAL = {
    **{
        f"{what}, version {version}": frame(*batches, version=version, **fields)
        for version in (7, 9)
        for what, batches, fields in (
            ("two partitions", (PLAIN, PLAIN), {}),
            ("a transaction", (PLAIN,), {"transactional_id": "t"}),
            ("acks 2", (PLAIN,), {"acks": 2}),
            ("acks -2", (PLAIN,), {"acks": -2}),
            ("no records", (None,), {}),
            ("no bytes", (b"",), {}),
            ("unknown topic", (PLAIN,), {"topic": "nobody"}),
            ("a long name", (PLAIN,), {"topic": "n" * 200}),
            ("a longer name", (PLAIN,), {"topic": "n" * 300}),
            ("an empty name", (PLAIN,), {"topic": ""}),
            ("an internal topic", (PLAIN,), {"topic": "__consumer_offsets"}),
            ("two batches", (bytes(PLAIN) * 2,), {}),
            ("cut off", (bytes(PLAIN[:-1]),), {}),
        )
    },
    "compressed": frame(batch(b"a", codec=Compression.GZIP)),
    "no producer epoch": frame(broken(batch(b"a", producer=Producer(7, 0, 0)), ">h", 51, -1)),
    "no sequence": frame(broken(batch(b"a", producer=Producer(7, 0, 0)), ">i", 53, -1)),
    "half a batch behind": frame(bytes(PLAIN) + bytes(PLAIN[:30])),
    "CRC": frame(bytes(PLAIN).replace(b"a", b"b")),
    "base offset": frame(broken(PLAIN, ">q", 0, 5)),
    "magic 1": frame(broken(PLAIN, ">b", 16, 1)),
    "control": frame(broken(PLAIN, ">h", 21, 0x20)),
    "transactional": frame(broken(PLAIN, ">h", 21, 0x10)),
    "append time": frame(broken(PLAIN, ">h", 21, 0x08)),
    "unknown attribute": frame(broken(PLAIN, ">h", 21, 0x0100)),
    "last offset delta": frame(broken(PLAIN, ">i", 23, 1)),
    "base timestamp": frame(broken(PLAIN, ">q", 27, NOW + 1)),
    "max timestamp": frame(broken(PLAIN, ">q", 35, NOW + 1)),
    "no records in the header": frame(broken(PLAIN, ">i", 57, 0)),
    "too many records": frame(broken(broken(PLAIN, ">i", 57, 2), ">i", 23, 1)),
    "malformed record": frame(broken(PLAIN, ">b", 61, 2)),
    "negative time": frame(batch(b"a", timestamp=-1)),
    "the lowest time": frame(broken(broken(PLAIN, ">q", 27, -(2**63)), ">q", 35, -(2**63))),
    "the highest time": frame(batch(b"a", timestamp=2**63 - 1)),
    "large": frame(batch(b"a" * FRAME_BYTES_MAX)),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_request_takes_the_general_path(what: str) -> None:
    assert send_both([frame(PLAIN, acks=0), UNUSUAL[what]]).taken == 0


@pytest.mark.parametrize("at", [-1, -2, -3])
def test_request_with_tags_takes_the_general_path(at: int) -> None:
    asked = bytearray(frame(PLAIN))
    # One tagged field, number 9, of one byte, in place of none.
    tags = b"\x01\x09\x01x"
    end = len(asked) + at
    asked[end : end + 1] = tags
    struct.pack_into(">i", asked, 0, len(asked) - 4)
    assert send_both([frame(PLAIN), bytes(asked)]).taken == 0


@pytest.mark.parametrize("length", [-1, 0, len(PLAIN) - 1, len(PLAIN) + 1])
def test_length_that_is_not_that_of_the_batch_takes_the_general_path(length: int) -> None:
    asked = bytearray(frame(PLAIN, version=7))
    struct.pack_into(">i", asked, len(asked) - len(PLAIN) - 4, length)
    assert send_both([frame(PLAIN, version=7), bytes(asked)]).taken == 0


@pytest.mark.parametrize("version", [7, 9])
def test_bytes_after_the_body_are_ignored(version: int) -> None:
    asked = frame(PLAIN, version=version) + b"xyz"
    asked = struct.pack(">i", len(asked) - 4) + asked[4:]
    broker = send_both([frame(PLAIN), asked])
    assert broker.taken == 0
    assert broker.hosted[0].log.log_end_offset == 2


# -- what the topic says ------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "late", "expected"),
    [
        ({}, 0, 1),
        ({"cleanup_policy": ["compact"]}, 0, 1),
        ({"message_timestamp_type": "LogAppendTime"}, 0, 0),
        ({"compression_type": "gzip"}, 0, 0),
        ({"compression_type": "uncompressed"}, 0, 1),
        ({"max_message_bytes": len(PLAIN)}, 0, 1),
        ({"max_message_bytes": len(PLAIN) - 1}, 0, 0),
        (BOUNDED, HOUR, 1),
        (BOUNDED, HOUR + 1, 0),
        (BOUNDED, -HOUR, 1),
        (BOUNDED, -HOUR - 1, 0),
        ({"flush_messages": 1}, 0, 1),
        ({"confluent_key_schema_validation": True}, 0, 0),
    ],
)
def test_topics_rules_apply_on_both_paths(
    config: dict[str, object], late: int, expected: int
) -> None:
    asked = [frame(PLAIN, acks=0), frame(batch(b"a", timestamp=NOW + late))]
    shown = [each for each in asked[:1] if expected] + asked[1:]
    assert send_both([*shown, asked[1]], config=TopicConfig(**config)).taken >= expected
    if not expected:
        assert send_both([asked[1]] * 3, config=TopicConfig(**config)).taken == 0


@pytest.mark.parametrize("key", [b"k", None])
def test_compacted_topic_rejects_null_key(key: bytes | None) -> None:
    config = TopicConfig(cleanup_policy=["compact"])
    asked = [frame(PLAIN), frame(batch(b"a", b"b", key=key))]
    assert send_both(asked, config=config).taken == (key is not None)


@pytest.mark.parametrize(("acks", "taken"), [(0, 2), (1, 2), (-1, 2)])
def test_followers_are_waited_for_with_acks_all(acks: int, taken: int) -> None:
    asked = [frame(PLAIN), frame(PLAIN, acks=acks), frame(PLAIN, acks=acks)]
    broker = send_both(asked, replicas=(0, 1))
    assert broker.taken == taken
    assert broker.hosted[0].log.high_watermark == 0


@pytest.mark.parametrize("version", range(3, 14))
def test_request_that_waits_for_followers_is_served_on_the_fast_path(version: int) -> None:
    sent = [
        frame(batch(b"a"), version=version, acks=1),
        frame(batch(b"b", b"c"), version=version, acks=-1),
        *(frame(of_producer(0, each), version=version, acks=-1) for each in range(3)),
        frame(of_producer(0, 1), version=version, acks=-1),  # a duplicate
        frame(of_producer(0, 9), version=version, acks=-1),  # a gap
    ]

    async def both() -> None:
        fast, general = (
            Broker(has_fast_path, TopicConfig(), LogConfig(), (0, 1))
            for has_fast_path in (True, False)
        )
        for broker in (fast, general):
            for each in sent:
                broker.receive(each, 1 << 20)
            partition = broker.hosted[0]
            partition.follower_fetched(1, partition.log.log_end_offset, log_start=0)
            for _ in range(3):
                await asyncio.sleep(0)
        assert fast.outcome() == general.outcome()
        assert fast.taken == 4, "all but the first one of the connection, a duplicate and a gap"

    asyncio.run(both())


def test_request_behind_a_queued_one_takes_the_general_path() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig(), (0, 1))
        ticket = broker.handler._order.enter([("other", 0, 1)])
        for _ in range(2):
            broker.receive(frame(PLAIN, acks=-1), 1 << 20)
        assert broker.taken == 0
        broker.handler._order.leave(ticket)
        broker.receive(frame(PLAIN, acks=-1), 1 << 20)
        assert broker.taken == 1
        assert broker.hosted[0].log.log_end_offset == 3
        broker.connection.cancel_pending()
        await asyncio.sleep(0)

    asyncio.run(story())


def test_too_small_isr_is_rejected() -> None:
    async def story(has_fast_path: bool) -> Broker:
        config = TopicConfig(min_insync_replicas=2)
        broker = Broker(has_fast_path, config, LogConfig(), (0, 1))
        broker.hosted[0].apply(registration(replicas=(0, 1), isr=(0,), partition_epoch=1))
        for _ in range(2):
            broker.receive(frame(PLAIN, acks=-1), 1 << 20)
        return broker

    fast, general = asyncio.run(story(True)), asyncio.run(story(False))
    assert fast.outcome() == general.outcome()
    assert fast.taken == 0
    assert fast.hosted[0].log.log_end_offset == 0


def test_replies_keep_the_order_of_requests_behind_one_that_waits() -> None:
    async def story(has_fast_path: bool) -> Broker:
        broker = Broker(has_fast_path, TopicConfig(), LogConfig(), (0, 1))
        for number, acks in enumerate((1, -1, 1, 0, -1)):
            broker.receive(frame(PLAIN, acks=acks, number=number), 1 << 20)
        sent = len(broker.transport.written)
        await asyncio.sleep(0)
        assert len(broker.transport.written) == sent, "one reply, the others wait behind acks=all"
        partition = broker.hosted[0]
        partition.follower_fetched(1, partition.log.log_end_offset, log_start=0)
        for _ in range(3):
            await asyncio.sleep(0)
        return broker

    fast, general = asyncio.run(story(True)), asyncio.run(story(False))
    assert fast.outcome() == general.outcome()
    assert fast.taken == 4


@pytest.mark.parametrize("limits", [{"segment_bytes": 400}, {"segment_index_bytes": 24}])
def test_segments_roll_alike_on_both_paths(limits: dict[str, int]) -> None:
    log_config = LogConfig(index_interval_bytes=100, **limits)
    broker = send_both([frame(PLAIN, number=n) for n in range(12)], log_config=log_config)
    assert broker.taken == 11
    assert len(broker.hosted[0].log.segments) > 2


# -- what changes meanwhile ---------------------------------------------------


def test_partition_handle_is_looked_at_again_after_changes() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig())
        partition = broker.hosted[0]
        for _ in range(2):
            broker.receive(frame(PLAIN), 1 << 20)
        assert broker.taken == 1
        stricter = replace(broker.config, max_message_bytes=50)
        partition.configure(stricter, LogConfig(max_message_bytes=50))
        broker.receive(frame(PLAIN), 1 << 20)
        assert broker.taken == 1, "another configuration"
        partition.configure(broker.config, LogConfig())
        broker.receive(frame(PLAIN), 1 << 20)
        assert broker.taken == 2
        partition.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
        broker.receive(frame(PLAIN), 1 << 20)
        assert broker.taken == 2, "another leader"
        assert partition.log.log_end_offset == 3
        partition.apply(registration(leader=0, epoch=2, partition_epoch=2))
        broker.receive(frame(PLAIN), 1 << 20)
        assert broker.taken == 3
        assert partition.log.epochs.latest_epoch == 2

    asyncio.run(story())


def test_full_cache_of_partition_handles_is_dropped() -> None:
    async def story() -> None:
        broker = Broker(True, TopicConfig(), LogConfig())
        broker.receive(frame(PLAIN, topic="nobody"), 1 << 20)
        for number in range(HANDLES_MAX + 5):
            broker.receive(frame(PLAIN, topic=f"n{number}", acks=0), 1 << 20)
        broker.receive(frame(PLAIN), 1 << 20)

    asyncio.run(story())


def test_failed_disk_gives_the_same_error_on_both_paths() -> None:
    async def story(has_fast_path: bool) -> dict[str, object]:
        broker = Broker(has_fast_path, TopicConfig(), LogConfig())
        broker.receive(frame(PLAIN), 1 << 20)
        log = broker.hosted[0].log
        broker.machine.disk.fail("write", path_contains=".log")
        for _ in range(2):
            broker.receive(frame(PLAIN), 1 << 20)
        assert log.log_end_offset == 1
        return broker.outcome()

    assert asyncio.run(story(True)) == asyncio.run(story(False))


# -- at the end of a turn -----------------------------------------------------


class Lines:
    """One broker, and some connections to it beside its own."""

    def __init__(self) -> None:
        self.broker = Broker(True, TopicConfig(), LogConfig())
        self.senders = [self.broker, self.broker.neighbour(), self.broker.neighbour()]
        for sender in self.senders:
            sender.receive(frame(PLAIN), 1 << 20)
        self.before = self.replies()

    def replies(self) -> list[int]:
        return [len(sender.transport.written) for sender in self.senders]

    def since(self) -> list[bool]:
        return [now > was for now, was in zip(self.replies(), self.before, strict=True)]


def test_replies_of_one_iteration_are_coalesced_and_sent_at_its_end() -> None:
    async def story() -> None:
        lines = Lines()
        lines.senders[0].receive(frame(PLAIN), 1 << 20)
        assert lines.since() == [True, False, False], "alone so far: at once"
        for sender in lines.senders[1:]:
            sender.receive(frame(PLAIN), 1 << 20)
        assert lines.since() == [True, False, False]
        await asyncio.sleep(0)
        assert lines.since() == [True, True, True]
        lines.senders[2].receive(frame(PLAIN), 1 << 20)
        assert lines.replies()[2] == 3 * lines.before[2], "alone again"

    asyncio.run(story())


def test_coalesced_reply_is_not_overtaken() -> None:
    async def story() -> None:
        lines = Lines()
        first, second = lines.senders[:2]
        first.receive(frame(PLAIN), 1 << 20)
        second.receive(frame(PLAIN, number=5), 1 << 20)
        second.receive(frame(PLAIN, PLAIN, number=6) + frame(PLAIN, number=7), 1 << 20)
        await asyncio.sleep(0)
        written, numbers = bytes(second.transport.written), []
        while written:
            (size, number) = struct.unpack_from(">ii", written)
            numbers.append(number)
            written = written[size + 4 :]
        assert numbers == [1, 5, 6, 7]

    asyncio.run(story())


def test_coalesced_reply_is_sent_before_a_drained_connection_closes() -> None:
    async def story() -> None:
        lines = Lines()
        lines.senders[0].receive(frame(PLAIN), 1 << 20)
        lines.senders[1].receive(frame(PLAIN), 1 << 20)
        lines.senders[1].connection.drain()
        assert lines.since()[1] and lines.senders[1].transport.is_closed

    asyncio.run(story())


# -- anything -----------------------------------------------------------------

BATCHES = st.one_of(
    st.sampled_from([bytes(PLAIN), bytes(batch(b"a", b"b")), bytes(batch(b"", key=None))]),
    st.builds(
        lambda epoch, sequence, count: bytes(of_producer(epoch, sequence, count)),
        *(st.integers(0, 1), st.integers(0, 3), st.integers(1, 2)),
    ),
    st.builds(
        lambda ms, count: bytes(batch(*[b"v"] * count, timestamp=NOW + ms)),
        st.sampled_from([0, 1, -HOUR, HOUR, -HOUR - 1, HOUR + 1, -NOW, -NOW - 1]),
        st.integers(1, 3),
    ),
    st.builds(
        lambda at, number: bytes(broken(PLAIN, ">B", at, number)),
        st.integers(0, len(PLAIN) - 1),
        st.integers(0, 255),
    ),
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A Produce that is mostly plain, and now and then has one byte that it should not have."""
    asked = bytearray(
        frame(
            *draw(st.lists(BATCHES, min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 2])))),
            version=draw(st.sampled_from([9, 10, 12, 13, 8, 7, 4, 3])),
            acks=draw(st.sampled_from([1, 1, 0, -1, 2])),
            client=draw(st.sampled_from(["c", "c", "d", None])),
            number=draw(st.integers(-(2**31), 2**31 - 1)),
        )
    )
    if draw(st.integers(0, 3)) == 0:
        # Where it lies within the first 45 bytes it is header, body or a batch's header.
        at = draw(st.one_of(st.integers(4, 45), st.integers(4, len(asked) - 1)))
        asked[at] = draw(st.integers(0, 255))
    return bytes(asked)


CONFIGS = st.sampled_from(
    [
        {},
        BOUNDED,
        {"cleanup_policy": ["compact"]},
        {"message_timestamp_type": "LogAppendTime"},
        {"min_insync_replicas": 2},
    ]
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(frames(), min_size=1, max_size=5),
    st.sampled_from([1 << 20, 7, 60]),
    CONFIGS,
    st.sampled_from([(0,), (0,), (0, 1)]),
)
@example([frame(PLAIN), frame(PLAIN)], 1 << 20, {}, (0,))
def test_both_paths_agree_on_arbitrary_requests(
    asked: list[bytes], step: int, config: dict[str, object], replicas: tuple[int, ...]
) -> None:
    send_both([b"".join(asked)], step, TopicConfig(**config), replicas=replicas)
    send_both(asked, step, TopicConfig(**config), replicas=replicas)


@pytest.mark.parametrize("has_fast_path", [True, False])
def test_request_after_bad_bytes_is_not_served(has_fast_path: bool) -> None:
    async def story() -> None:
        broker = Broker(has_fast_path, TopicConfig(), LogConfig())
        bad = bytearray(frame(PLAIN))
        bad[4] = 1  # an unknown API key
        broker.receive(frame(PLAIN) + bytes(bad) + frame(PLAIN), 1 << 20)
        assert broker.transport.is_closed
        assert broker.hosted[0].log.log_end_offset == 1

    asyncio.run(story())
