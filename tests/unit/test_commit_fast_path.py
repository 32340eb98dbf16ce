"""The OffsetCommit fast path gives the same replies, log and state as the general path."""

import asyncio
import struct
from collections.abc import Callable, Sequence
from unittest.mock import patch

import pytest
from commit_pair import (
    NONE,
    PARTITIONS,
    WIDER,
    Broker,
    commit,
    frame,
    offset,
    topic_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_fixtures import registration

from ottla.api.groups.commit_fast_path import FRAME_BYTES_MAX, NAMES_MAX
from ottla.coordinators.groups.offsets import committed
from ottla.coordinators.groups.offsets.committed import UNREAD_MIN
from ottla.coordinators.groups.settings import GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.storage.log.log_config import LogConfig

pytestmark = pytest.mark.engine

# Turns of the loop in which a frame is served that is decoded in steps.
TURNS_OF_A_LARGE_FRAME = 10
FIRST = commit()  # begins the group, and shows who the client is
JOIN = frame(
    JoinGroupRequest(
        "joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    ),
    3,
)
FETCH = frame(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")]), 9)


def send_both(
    frames: Sequence[bytes | Callable[[Broker], None]], step: int = 1 << 20, **options: object
) -> Broker:
    """Send two brokers the same requests; return the one with the fast path. They must agree."""

    async def both() -> Broker:
        fast, general = (Broker(has_fast_path, **options) for has_fast_path in (True, False))  # type: ignore[arg-type]
        for broker in (fast, general):
            for each in frames:
                if callable(each):
                    each(broker)
                else:
                    broker.receive(each, step)
                for _ in range(TURNS_OF_A_LARGE_FRAME):
                    await asyncio.sleep(0)
        assert fast.outcome() == general.outcome()
        assert general.taken == 0
        for broker in (fast, general):
            broker.connection.cancel_pending()
        await asyncio.sleep(0)
        return fast

    return asyncio.run(both())


def last_code(broker: Broker) -> int:
    """The error of the only partition in the last reply, by name."""
    return struct.unpack_from(">h", broker.transport.written, len(broker.transport.written) - 5)[0]


# -- served by the fast path ------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 9, 10])
def test_plain_commit_takes_the_fast_path(version: int) -> None:
    asked = [commit(version=version, number=n) for n in (1, -2, 3)]
    broker = send_both([FIRST, *asked, FETCH])
    assert broker.taken == 3
    assert broker.partition.log.log_end_offset == 4
    assert last_code(send_both([FIRST, commit()])) == ErrorCode.NONE


def test_commit_of_many_partitions_of_several_topics() -> None:
    many = [offset(n, 1 << 40 | n, n % 7, "é" * (n % 5)) for n in range(PARTITIONS)]
    asked = commit(topic_of(*many), topic_of(*many[:3], name="ünï"))
    assert send_both([FIRST, asked, asked, FETCH]).taken == 2


def test_metadata_up_to_the_limit_is_committed() -> None:
    texts = ["m", "m" * 126, "m" * 127, "m" * 4096, "ü" * 4096, None, ""]
    asked = [commit(topic_of(offset(metadata=text))) for text in texts]
    assert send_both([FIRST, *asked, FETCH]).taken == len(texts)


def test_last_offset_of_a_partition_named_twice_counts() -> None:
    assert send_both([FIRST, commit(topic_of(offset(0, 7), offset(0, 3))), FETCH]).taken == 1


def test_commit_of_the_last_partition_of_a_topic() -> None:
    edge = [topic_of(offset(at)) for at in (PARTITIONS - 1, PARTITIONS)]
    assert send_both([FIRST, *map(commit, edge)]).taken == 1


def test_commit_extends_the_session_of_its_member() -> None:
    def receive(broker: Broker) -> None:
        broker.machine.clock.pass_ms(3000)

    member = joined()
    more = {"group_id": "joined", "member_id": member, "generation_id_or_member_epoch": 1}
    broker = send_both([JOIN, settle, receive, commit(**more), receive, commit(**more)])
    assert broker.taken == 2
    broker = send_both([JOIN, settle, commit(**more, group_instance_id="i"), commit(**more)])
    assert broker.taken == 1, "it is no static member"


def joined() -> str:
    """The id that the first member is given."""

    async def ask() -> str:
        broker = Broker(False)
        broker.receive(JOIN)
        settle(broker)
        (group,) = [broker.runtime.shard(0).machine.groups["joined"]]
        return next(iter(group.members))  # type: ignore[attr-defined]

    return asyncio.run(ask())


def settle(broker: Broker) -> None:
    """Let the initial delay of a rebalance pass, and the leader assign."""
    broker.machine.clock.pass_ms(3000)
    for _, shard in list(broker.runtime.active()):
        shard.on_due()
    group = broker.runtime.shard(0).machine.groups["joined"]
    assert group.state_name() == "CompletingRebalance"
    member = next(iter(group.members))  # type: ignore[attr-defined]
    broker.receive(frame(SyncGroupRequest("joined", 1, member), 3))
    assert group.state_name() == "Stable"


# -- declined ------------------------------------------------------------

PLAIN = topic_of(offset())
UNUSUAL = {
    "version 7": commit(version=7),
    "version 2, which may expire": commit(version=2, retention_time_ms=5),
    "a group that is not there": commit(group_id="new"),
    "a group without a name": commit(group_id=""),
    "a long name of a group": commit(group_id="g" * 200),
    "a generation": commit(generation_id_or_member_epoch=1),
    "a member": commit(member_id="m", generation_id_or_member_epoch=0),
    "an instance": commit(group_instance_id="i", generation_id_or_member_epoch=0),
    "no partitions": commit(topic_of()),
    "a topic twice": commit(PLAIN, topic_of(offset(1))),
    "an unknown topic": commit(topic_of(offset(), name="nobody")),
    "an unknown id": commit(topic_of(offset(), name="nobody"), version=10),
    "an unknown topic among others": commit(PLAIN, topic_of(offset(), name="nobody")),
    "an unknown partition": commit(topic_of(offset(PARTITIONS))),
    "a partition below zero": commit(topic_of(offset(-1))),
    "metadata too long": commit(topic_of(offset(metadata="m" * 4097))),
    "metadata far too long": commit(topic_of(offset(metadata="m" * 20_000))),
    "large": commit(topic_of(*[offset()] * (FRAME_BYTES_MAX // 18))),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_commit_takes_the_general_path(what: str) -> None:
    assert send_both([FIRST, UNUSUAL[what], commit(), FETCH]).taken == 1


def test_invalid_utf8_takes_the_general_path() -> None:
    plain = commit(topic_of(offset(metadata="mmmm")), member_id="memb")
    for text in (b"mmmm", b"memb", b"orders", b"\x02g"):
        broken = plain.replace(text, text[:-1] + b"\xff")
        assert send_both([FIRST, broken]).taken == 0, text


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_paths_agree_on_damaged_requests(data: st.DataObject) -> None:
    """Any byte may be wrong, and a frame may end anywhere: both ways say the same."""
    partitions = [offset(1, 77, 3, "note"), offset(2, 78)]
    version = data.draw(st.sampled_from([8, 9, 10]))
    plain = bytearray(
        commit(topic_of(*partitions), topic_of(offset(), name="ünï"), version=version)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, len(plain) - 1))
        plain[at] = data.draw(
            st.one_of(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]), st.integers(0, 255))
        )
    cut = data.draw(st.sampled_from([len(plain), data.draw(st.integers(16, len(plain)))]))
    del plain[cut:]
    plain[:4] = (len(plain) - 4).to_bytes(4, "big")
    send_both([FIRST, bytes(plain), commit(number=9)])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_paths_agree_on_arbitrary_commits(data: st.DataObject) -> None:
    """Requests of all kinds in any order: equal replies, logs, states and states loaded again."""
    texts = st.one_of(st.none(), st.just(""), st.text(max_size=3), st.just("m" * 300))
    numbers = st.one_of(st.integers(-1, 2), st.integers(-(1 << 63), (1 << 63) - 1))
    epochs = st.one_of(st.integers(-1, 2), st.integers(-(1 << 31), (1 << 31) - 1))
    offsets = st.builds(offset, st.integers(-1, 4), numbers, epochs, texts)
    topics = st.builds(
        lambda found, name: topic_of(*found, name=name),
        st.lists(offsets, max_size=4),
        st.sampled_from(["orders", "orders", "ünï", "nobody"]),
    )
    requests = st.builds(
        lambda found, version, group, epoch: commit(
            *found, version=version, group_id=group, generation_id_or_member_epoch=epoch
        ),
        st.lists(topics, min_size=1, max_size=3),
        st.sampled_from([2, 7, 8, 9, 9, 10, 10]),
        st.sampled_from(["g", "g", "h"]),
        st.sampled_from([-1, -1, -1, 0]),
    )
    asked = data.draw(st.lists(requests, max_size=6))
    with patch.object(committed, "UNREAD_MIN", data.draw(st.sampled_from([1, UNREAD_MIN]))):
        send_both([FIRST, *asked, FETCH], step=data.draw(st.sampled_from([1 << 20, 7])))


# -- what changes meanwhile ---------------------------------------------------


def test_commit_with_followers_takes_the_general_path() -> None:
    def replicate(broker: Broker) -> None:
        broker.partition.apply(registration(replicas=(0, 1), partition_epoch=1))

    broker = send_both([FIRST, replicate, commit(), commit()])
    assert broker.taken == 0
    assert broker.partition.log.high_watermark == 1
    assert broker.partition.log.log_end_offset == 3


@pytest.mark.parametrize(("linger_ms", "taken"), [(-1, 1), (0, 1), (5, 0)])
def test_lingering_commit_takes_the_general_path(linger_ms: int, taken: int) -> None:
    def wait(broker: Broker) -> None:
        broker.machine.clock.pass_ms(5)
        broker.runtime.shard(0).on_due()

    assert send_both([FIRST, commit(), wait], linger_ms=linger_ms).taken == taken


def test_shard_that_was_unloaded_and_loaded_again() -> None:
    def lose(broker: Broker) -> None:
        broker.partition.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
        broker.runtime.on_unled("__consumer_offsets", 0, None)

    def regain(broker: Broker) -> None:
        broker.partition.apply(registration(leader=0, epoch=2, partition_epoch=2))
        broker.runtime.on_led("__consumer_offsets", 0, 2)  # type: ignore[arg-type]

    asked = [FIRST, commit(), lose, commit(), regain, commit(), Broker.load, commit(), FETCH]
    broker = send_both(asked)
    assert broker.taken == 2
    assert broker.partition.log.epochs.latest_epoch == 2


def test_replaced_leader_writes_nothing() -> None:
    def lose(broker: Broker) -> None:
        broker.partition.apply(registration(leader=0, epoch=1, partition_epoch=1))

    assert send_both([FIRST, lose, commit()]).taken == 0


def test_topic_that_gains_partitions_and_is_deleted() -> None:
    def grow(broker: Broker) -> None:
        broker.image = WIDER

    def go(broker: Broker) -> None:
        broker.image = NONE

    more = commit(topic_of(offset(PARTITIONS)))
    by_id = commit(version=10)
    asked = [FIRST, more, grow, more, commit(), by_id, go, commit(), by_id]
    assert send_both(asked).taken == 3


def test_batch_above_the_limit_of_the_log_is_rejected() -> None:
    many = commit(topic_of(*[offset(n) for n in range(20)]))
    for limits in ({"max_message_bytes": 700}, {"segment_bytes": 700}):
        broker = send_both([FIRST, many, commit()], log_config=LogConfig(**limits))
        assert broker.taken == 1, limits


def test_log_with_log_append_time() -> None:
    assert send_both([FIRST, commit()], log_config=LogConfig(is_log_append_time=True)).taken == 0


def test_failed_disk_gives_the_same_error_on_both_paths() -> None:
    def fail(broker: Broker) -> None:
        broker.machine.disk.fail("write", path_contains=".log")

    broker = send_both([FIRST, fail, commit(), commit()])
    assert broker.taken == 0
    assert broker.partition.log.log_end_offset == 1


def test_full_cache_of_names_is_dropped() -> None:
    async def story() -> None:
        broker = Broker(True)
        broker.receive(FIRST)
        for number in range(NAMES_MAX + 5):
            broker.receive(commit(group_id=f"g{number}"))
            await asyncio.sleep(0)
        broker.receive(commit())
        await asyncio.sleep(0)
        assert broker.taken == 1

    asyncio.run(story())


def test_metadata_limit_follows_the_setting() -> None:
    asked = [FIRST, *(commit(topic_of(offset(metadata="m" * n))) for n in (3, 4))]
    assert send_both(asked, settings=GroupSettings(offset_metadata_max_bytes=3)).taken == 1


def test_fast_path_declines_other_apis() -> None:
    asked = frame(HeartbeatRequest("g", 0, "m"), 4)
    assert send_both([FIRST, asked, commit()]).taken == 1
