"""Rounds that follow each other without the fetcher's task, compared with those through it."""

from collections.abc import Sequence

import pytest
from following_fixtures import FAST, FollowingBroker, Leader, image
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from partition_fixtures import append, values_in

from ottla.protocol.codec import encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic

VERSION = 18
Step = tuple[str, int]


class Scripted(Leader):
    """Takes a step of a script before each answer, and counts the calls of `send`."""

    def __init__(self, steps: Sequence[Step] = (), *, sends_at_once: bool = True) -> None:
        super().__init__()
        self.steps = list(steps)
        self.sends_at_once = sends_at_once
        self.sent = 0
        self.asked: list[bytes] = []
        self.named: list[FetchTopic] = []  # the partitions of the session

    async def send(self, request, *, timeout_ms: int, reader=None):
        self.sent += isinstance(request, FetchRequest)
        return await super().send(request, timeout_ms=timeout_ms, reader=reader)

    async def answer(self, request):
        if not isinstance(request, FetchRequest):
            return await super().answer(request)
        self.asked.append(encode(request, VERSION))
        what, number = self.steps.pop(0) if self.steps else ("", 0)
        if what in ("append", "damage"):
            for each in range(number):
                append(self.partition, bytes((each,)) * 40)
        elif what == "session":
            self.session_id = number
        elif what == "refuse":
            self.refusals = [ErrorCode(number)]
        elif what == "lose":
            raise ConnectionResetError("lost")
        self.named = request.topics or (self.named if request.session_epoch else [])
        answer = await super().answer(replace(request, topics=self.named))
        if what == "fail":
            return FetchResponse(error_code=number, session_id=self.session_id)
        for topic in answer.responses if what == "damage" else ():
            for row in topic.partitions:
                if row.records:
                    row.records = bytes(row.records[:-1]) + b"\xee"
        return answer


def follow(steps: Sequence[Step], *, sends_at_once: bool) -> tuple[Scripted, FollowingBroker]:
    leader = Scripted(steps, sends_at_once=sends_at_once)
    following = FollowingBroker(FAST, leader)
    following.until(
        lambda: not leader.steps and following.mine.log.high_watermark
        == leader.partition.log.log_end_offset
    )  # fmt: skip
    return leader, following


CODES = (
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
FAILURES = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3)),
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("session"), st.sampled_from([0, 7, 8])),
        st.tuples(st.just("refuse"), st.sampled_from([int(code) for code in CODES])),
        st.tuples(st.just("fail"), st.sampled_from([int(code) for code in FAILURES])),
        st.tuples(st.just("damage"), st.integers(0, 2)),
        st.tuples(st.just("lose"), st.just(0)),
    ),
    max_size=10,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_requests_sent_at_once_are_those_of_the_task(steps: list[Step]) -> None:
    by_task, followed = follow(steps, sends_at_once=False)
    at_once, following = follow(steps, sends_at_once=True)
    count = min(len(by_task.asked), len(at_once.asked))
    assert count >= len(steps)
    assert at_once.asked[:count] == by_task.asked[:count]
    assert values_in(following.mine.log) == values_in(followed.mine.log)
    assert following.broker.host.damaged_fetches == followed.broker.host.damaged_fetches


def test_task_of_a_fetcher_sends_only_its_first_request() -> None:
    leader, _ = follow([("session", 7), *[("append", 1)] * 9], sends_at_once=True)
    assert len(leader.asked) > 9
    assert leader.sent == 1


@pytest.mark.parametrize(
    "step",
    [
        ("refuse", int(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        ("fail", int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)),
        ("damage", 1),
    ],
)
def test_response_with_more_than_records_is_for_the_task(step: Step) -> None:
    leader, _ = follow([("append", 1), ("append", 1), step, ("append", 1)], sends_at_once=True)
    assert leader.sent == 2


def test_diverging_history_is_truncated_by_the_task() -> None:
    leader = Scripted()
    following = FollowingBroker(FAST, leader)
    append(leader.partition, b"a")
    following.until(lambda: following.mine.log.log_end_offset == 1)
    following.broker.publish(image(1, 1, leader=1))
    append(following.mine, b"mine")
    following.lead(2, 2)
    append(leader.partition, b"theirs")
    leader.sent = 0
    following.broker.publish(image(2, 2))
    following.until(lambda: following.mine.log.high_watermark == 2)
    assert leader.sent == 2, "the first, and the one after the truncation"
    assert values_in(following.mine.log) == [b"a", b"theirs"]


def test_fetcher_ends_when_the_last_partition_leaves_between_two_rounds() -> None:
    leader = Scripted([("append", 1)] * 3)
    following = FollowingBroker(FAST, leader)
    (fetcher,) = following.fetchers._fetchers.values()
    answered = leader.answer

    async def leave(request):
        answer = await answered(request)
        if len(leader.asked) == 3:
            following.fetchers.unfollow(following.mine)
        return answer

    leader.answer = leave
    following.until(lambda: fetcher.is_over)
    assert (leader.sent, len(leader.asked)) == (1, 3)


def test_throttled_follower_waits() -> None:
    leader = Scripted([("session", 7), ("append", 1)])
    following = FollowingBroker(FAST, leader)
    held: list[bool] = []

    def holds_back(partition) -> bool:
        held.append(len(leader.asked) == 2)
        return held[-1] and held.count(True) < 5

    following.broker.host.throttles.holds_back = holds_back  # type: ignore[method-assign]
    following.until(lambda: len(leader.asked) == 4)
    assert held.count(True) >= 5
    assert leader.sent == 2, "the task waits, and then sends the next request"
    assert [request.session_epoch for request in leader.requests[:4]] == [0, 1, 2, 3]
