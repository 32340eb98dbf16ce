"""Serve a request with long lists in pieces; other requests are served in between.

    request   topics [ 200,000 ]  ->  handler with the first 200, handler with the next 200, ...
    reply     topics [ 200,000 ]  <-  one reply after the other, joined

For APIs whose handlers run to their end at once and whose items are independent of each other, as
they are in Kafka: each has its own result. `Handler.lists` in the surface says which list of a
request is answered by which list of the reply; ``items`` are lists within their rows, such as
partitions.
A row with more items than one piece has is split, too, and its results are joined again.

An error of the whole request ends it. Pieces are served one after the other. A request that names
a thing with many rows any number of times is refused with `ReplyTooLong`.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ottla.api.surface.replies import ROWS_MAX, Answer, Handled, ReplyTooLong, Result, finished
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import Lists
from ottla.protocol.schema import Message

ITEMS_PER_PIECE: Final = 200
"""Rows and their items that a handler gets at once: a few milliseconds of work."""


Handle = Callable[..., Handled]


def in_pieces(handle: Handle, lists: Sequence[Lists]) -> Handle:
    """Return a handler that calls ``handle`` for each piece of a request.

    ``lists``: the first whose list is not empty applies; the others are of other versions.
    """

    # The class of the request depends on the API, so it cannot be annotated here.
    def serve(caller: Caller, request: Any, version: int) -> Handled:  # noqa: ANN401
        for names in lists:
            rows = getattr(request, names.rows)
            if rows:
                if _is_one_piece(rows, names):
                    break
                return _serve(handle, names, caller, request, version)
        return handle(caller, request, version)

    return serve


def _is_one_piece(rows: list[Any], names: Lists) -> bool:
    count, items = len(rows), names.items
    if names.is_one_by_one:
        return count <= 1
    if not items or count > ITEMS_PER_PIECE:
        return count <= ITEMS_PER_PIECE
    return count + sum(len(getattr(row, items) or ()) for row in rows) <= ITEMS_PER_PIECE


# As above: requests and replies of any class.
async def _serve(
    handle: Handle,
    names: Lists,
    caller: Caller,
    request: Any,  # noqa: ANN401
    version: int,
) -> Result:
    joined: Result | None = None
    count = 0
    whole = getattr(request, names.rows)
    pieces = ([row] for row in whole) if names.is_one_by_one else split_rows(whole, names.items)
    for rows in pieces:
        piece = replace(request, **{names.rows: rows})
        result = await finished(handle(caller, piece, version))
        body = result.body if isinstance(result, Answer) else result
        if not isinstance(body, Message) or getattr(body, "error_code", None):
            return result
        count += max(0, rows_within(body) - 2 * len(rows))
        if count > ROWS_MAX:
            raise ReplyTooLong
        joined = result if joined is None else _join_results(joined, result, names)
        await asyncio.sleep(0)
    assert joined is not None, "there is at least one piece"
    return joined


def rows_within(message: Message) -> int:
    """Return how many elements the lists of a message have, those within its rows, too."""
    count = 0
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, list):
            count += len(value)
            if value and isinstance(value[0], Message):
                count += sum(map(rows_within, value))
    return count


def split_rows(rows: list[Any], items: str) -> Iterator[list[Any]]:
    """Yield rows in lists of at most `ITEMS_PER_PIECE` rows and items; split rows that are longer.

    A row without items counts, too: it has a result.
    """
    piece: list[Any] = []
    free = ITEMS_PER_PIECE
    for row in rows:
        whole = getattr(row, items) if items else None
        left = len(whole or ())
        at = 0
        while True:
            if free <= 1:
                yield piece
                piece, free = [], ITEMS_PER_PIECE
            taken = min(left - at, free - 1)
            part = row
            if whole is not None and taken < left:
                part = replace(row, **{items: whole[at : at + taken]})
            piece.append(part)
            at += taken
            free -= taken + 1
            if at >= left:
                break
    if piece:
        yield piece


def _join_results(first: Result, second: Result, names: Lists) -> Result:
    """Append the results of a piece to those before it; the longest throttle time counts."""
    into = first.body if isinstance(first, Answer) else first
    more = second.body if isinstance(second, Answer) else second
    assert isinstance(into, Message)
    assert isinstance(more, Message)
    join(into, more, names)
    if isinstance(first, Answer) and isinstance(second, Answer):
        return replace(first, throttle_ms=max(first.throttle_ms, second.throttle_ms))
    return replace(second, body=into) if isinstance(second, Answer) else first


def join(first: Message, second: Message, names: Lists) -> Message:
    """Append the results of ``second`` to ``first``, and return that."""
    results, more = getattr(first, names.results), getattr(second, names.results)
    if names.item_results and results and more and _are_parts(results[-1], more[0], names):
        getattr(results[-1], names.item_results).extend(getattr(more[0], names.item_results))
        more = more[1:]
    results.extend(more)
    return first


def _are_parts(one: Any, other: Any, names: Lists) -> bool:  # noqa: ANN401 - rows of any class
    """Say whether two results are of one row that was split: only their items differ."""
    return all(
        getattr(one, field) == getattr(other, field)
        for field in one.__struct_fields__
        if field != names.item_results
    )
