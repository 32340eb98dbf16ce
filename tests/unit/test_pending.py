"""`Pending`: who is notified when, of what, and what ends with the reply."""

import asyncio
from typing import Any

import pytest

from ottla.protocol.faults import NotCoordinator
from ottla.runtime.pending import Pending, completed


def test_answer_notifies_the_receiver_by_a_callback_of_its_own() -> None:
    async def main() -> None:
        reply: Pending[int] = Pending()
        received: list[Any] = []
        reply.when_done(received.append)
        reply.answer(7)
        assert reply.is_done and reply.outcome() == 7
        assert received == [], "the maker may be in the middle of another request"
        await asyncio.sleep(0)
        assert received == [7]

    asyncio.run(main())


def test_answer_now_notifies_after_the_end_of_what_the_reply_needed() -> None:
    order: list[Any] = []
    reply: Pending[int] = Pending(lambda: order.append("end"))
    reply.when_done(order.append)
    reply.answer_now(7)
    assert order == ["end", 7]


def test_reply_that_has_come_is_received_within_when_done() -> None:
    received: list[Any] = []
    completed(7).when_done(received.append)
    assert received == [7]


def test_cancelled_request_gets_no_reply_and_a_second_reply_is_a_bug() -> None:
    cancelled: Pending[int] = Pending()
    received: list[Any] = []
    cancelled.when_done(received.append)
    cancelled.cancel()
    cancelled.answer(7)
    (error,) = received
    assert isinstance(error, asyncio.CancelledError)
    with pytest.raises(AssertionError):
        completed(1).answer(2)


def test_awaiting_returns_the_reply_or_raises_its_fault() -> None:
    async def main() -> None:
        assert await completed(7) == 7
        late: Pending[int] = Pending()
        asyncio.get_running_loop().call_soon(late.fail, NotCoordinator("g"))
        with pytest.raises(NotCoordinator):
            await late

    asyncio.run(main())


def test_cancelling_the_task_that_awaits_ends_the_reply() -> None:
    async def main() -> None:
        ended: list[str] = []
        reply: Pending[int] = Pending(lambda: ended.append("end"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await reply
        assert ended == ["end"]

    asyncio.run(main())


def test_map_changes_replies_and_faults_and_passes_a_cancellation_on() -> None:
    assert completed(7).map(str).outcome() == "7"
    failed: Pending[int] = Pending()
    mapped = failed.map(str, lambda fault: fault.code.name)
    failed.answer_now(NotCoordinator("g"))
    assert mapped.outcome() == "NOT_COORDINATOR"
    source: Pending[int] = Pending()
    source.map(str).cancel()
    assert source.is_done

    def breaks(reply: int) -> str:
        raise ValueError(reply)

    with pytest.raises(ValueError, match="7"):
        completed(7).map(breaks).outcome()


def test_map_forwards_announcements() -> None:
    announced: list[str] = []
    source: Pending[int] = Pending()
    mapped = source.map(str).map(int)
    source.announce()
    mapped.when_announced(lambda: announced.append("announced"))
    source.announce()
    assert announced == ["announced"]
    source.answer_now(7)
    source.announce()
    assert announced == ["announced"], "a reply that has come is not announced"
