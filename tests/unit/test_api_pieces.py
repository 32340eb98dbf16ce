"""Long requests in pieces: the reply is that of the whole request, and the loop runs in between."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api.cluster.long_changes import all_authorized, is_long, refuse_long
from ottla.api.surface.pieces import ITEMS_PER_PIECE, in_pieces, split_rows
from ottla.api.surface.replies import Answer, finish
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import Lists
from ottla.api.surface.table import SURFACE
from ottla.controller.decision import RECORDS_MAX
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import request_class, response_class
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.schema import Kind
from ottla.runtime.ports import Address

CALLER = Caller("User:alice", None, Address("192.0.2.1", 1), "PLAINTEXT")
LISTS = Lists("topics", "topics", "partitions", "partitions")


def request_of(counts: list[int]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        "g",
        [
            OffsetDeleteRequestTopic(f"t{number}", [*map(OffsetDeleteRequestPartition, range(n))])
            for number, n in enumerate(counts)
        ],
    )


class Handler:
    """Repeats the partitions of a request, and remembers how many each call got."""

    def __init__(self, *, is_async: bool = False, error_from: int = 10**9) -> None:
        self.sizes: list[int] = []
        self._is_async = is_async
        self._error_from = error_from

    def __call__(self, caller: Caller, request: OffsetDeleteRequest, version: int) -> Any:
        self.sizes.append(len(request.topics) + sum(len(t.partitions) for t in request.topics))
        reply = OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponseTopic(
                    topic.name,
                    [OffsetDeleteResponsePartition(p.partition_index) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )
        if len(self.sizes) > self._error_from:
            reply = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return self._later(reply) if self._is_async else reply

    async def _later(self, reply: OffsetDeleteResponse) -> Answer:
        await asyncio.sleep(0)
        return Answer(reply, throttle_ms=len(self.sizes))


async def ask(handler: Handler, request: OffsetDeleteRequest) -> tuple[Any, int]:
    """Return the result, and how often the loop ran other callbacks meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    result = in_pieces(handler, (LISTS,))(CALLER, request, 0)
    if not isinstance(result, OffsetDeleteResponse):
        result = await result
    counting.cancel()
    return result, turns


counts_of_partitions = st.lists(st.integers(0, 3 * ITEMS_PER_PIECE), max_size=8)


@given(counts_of_partitions, st.booleans())
def test_reply_in_pieces_equals_that_of_the_whole_request(counts: list[int], later: bool) -> None:
    request = request_of(counts)
    whole = Handler()(CALLER, request_of(counts), 0)
    handler = Handler(is_async=later)

    async def main() -> None:
        result, turns = await ask(handler, request)
        body = result.body if isinstance(result, Answer) else result
        assert body == whole
        assert max(handler.sizes) <= ITEMS_PER_PIECE or len(counts) == 0
        assert turns >= len(handler.sizes) - 1

    if counts:
        asyncio.run(main())


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_split_rows_keep_every_item_in_order(counts: list[int]) -> None:
    rows = request_of(counts).topics
    pieces = list(split_rows(rows, "partitions"))
    found = [(t.name, p.partition_index) for piece in pieces for t in piece for p in t.partitions]
    assert found == [(t.name, p.partition_index) for t in rows for p in t.partitions]
    assert {t.name for piece in pieces for t in piece} == {t.name for t in rows}


def test_error_of_the_whole_request_ends_it() -> None:
    handler = Handler(error_from=2)

    async def main() -> None:
        result, _ = await ask(handler, request_of([1] * 5 * ITEMS_PER_PIECE))
        assert result.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert len(handler.sizes) == 3

    asyncio.run(main())


def test_longest_throttle_time_counts() -> None:
    async def main() -> None:
        result, _ = await ask(Handler(is_async=True), request_of([1] * 300))
        assert isinstance(result, Answer)
        assert result.throttle_ms == 3

    asyncio.run(main())


def test_lists_of_the_surface_name_fields_of_their_messages() -> None:
    for key, row in SURFACE.items():
        for handler in (row.broker, row.controller):
            for lists in () if handler is None else handler.lists:
                _assert_list(request_class(key).SCHEMA, lists.rows, lists.items)
                _assert_list(response_class(key).SCHEMA, lists.results, lists.item_results)


def _assert_list(schema: Any, name: str, inner: str) -> None:
    field = next(field for field in schema.fields if field.name == name)
    assert field.type.kind is Kind.ARRAY
    if inner:
        _assert_list(field.type.element.struct.SCHEMA, inner, "")


def test_change_with_too_many_rows_is_refused_in_steps() -> None:
    key, lists = ApiKey.CREATE_TOPICS, (Lists("topics", "topics"),)
    topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(RECORDS_MAX + 1)]
    assert not is_long(CreateTopicsRequest(topics[:-1]))
    request = CreateTopicsRequest(topics)
    assert is_long(request)
    steps = refuse_long(key, 7, request, lists, all_authorized)
    next(steps)
    reply: Any = finish(steps)
    assert [topic.name for topic in reply.topics] == [topic.name for topic in topics]
    assert {topic.error_code for topic in reply.topics} == {ErrorCode.POLICY_VIOLATION}
    assert {topic.error_message for topic in reply.topics} == {
        "Excessively large number of partitions per request."
    }


def test_change_with_too_many_rows_of_a_client_without_rights_is_refused_by_row() -> None:
    key, lists = ApiKey.CREATE_TOPICS, (Lists("topics", "topics"),)
    topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(RECORDS_MAX + 1)]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def refuse_all(request: Any) -> tuple[Any, list[Any]]:
        rows = [CreatableTopicResult(topic.name, error_code=denied) for topic in request.topics]
        return CreateTopicsRequest(), rows

    reply: Any = finish(refuse_long(key, 7, CreateTopicsRequest(topics), lists, refuse_all))
    assert [topic.name for topic in reply.topics] == [topic.name for topic in topics]
    assert {topic.error_code for topic in reply.topics} == {denied}


@pytest.mark.parametrize("field", ["assignments", "configs"])
def test_change_with_too_many_items_in_one_row_is_long(field: str) -> None:
    topic = CreatableTopic("t")
    (kind,) = (each.type.element.struct for each in topic.SCHEMA.fields if each.name == field)
    setattr(topic, field, [kind()] * RECORDS_MAX)
    assert not is_long(CreateTopicsRequest([topic]))
    getattr(topic, field).append(kind())
    assert is_long(CreateTopicsRequest([topic]))
