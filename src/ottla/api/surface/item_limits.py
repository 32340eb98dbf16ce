"""Limit the lists of requests that are served in one turn of the event loop.

    ConsumerGroupHeartbeat   subscribed_topic_names [ 200,000 ]   ->   INVALID_REQUEST

A coordinator or the active controller decides a request as a whole, and nothing else is served
meanwhile. So the elements of each list are counted over the whole request, the lists within its
rows, too. Lists of numbers may be longer: a number costs less than a name or a row. Kafka has no
such limit, but a request beyond it would stall the node for every other client.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.api.surface.replies import Handled
from ottla.api.surface.routes import Caller
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.schema import Kind, Message

NUMBERS_PER_ITEM: Final = 4
"""How many numbers, such as partitions, count as one name or row."""

Handle = Callable[..., Handled]


class TooManyItems(Fault):
    """A list of a request is longer than is served at once."""

    code = ErrorCode.INVALID_REQUEST


class _List(NamedTuple):
    name: str
    is_struct: bool
    is_array: bool
    weight: int
    """How many elements count as one item."""


def limited(handle: Handle, items_max: int) -> Handle:
    """Return a handler that refuses requests with longer lists."""

    # The class of the request depends on the API, so it cannot be annotated here.
    def serve(caller: Caller, request: Any, version: int) -> Handled:  # noqa: ANN401
        if has_long_list(request, items_max):
            raise TooManyItems(f"A list of a request may have at most {items_max} elements.")
        return handle(caller, request, version)

    return serve


def has_long_list(message: Message, items_max: int) -> bool:
    """Say whether a list has more than ``items_max`` items in all rows of the message together.

    It looks at no more than ``items_max`` rows of any list.
    """
    return _is_long([message], items_max)


def _is_long(rows: Sequence[Message], items_max: int) -> bool:
    for field in _lists(type(rows[0])):
        count_max = items_max * field.weight
        count = 0
        below: list[Message] = []
        for row in rows:
            value = getattr(row, field.name)
            if not value:
                continue
            if not field.is_array:
                below.append(value)
                continue
            count += len(value)
            if count > count_max:
                return True
            if field.is_struct:
                below += value
        if below and _is_long(below, items_max):
            return True
    return False


@cache
def _lists(kind: type[Message]) -> tuple[_List, ...]:
    """Return the lists of a message or row, and its structs, which may have lists."""
    found = []
    for field in kind.SCHEMA.fields:
        element = field.type.element
        if element is not None:
            is_named = element.kind in (Kind.STRUCT, Kind.STRING, Kind.BYTES, Kind.UUID)
            weight = 1 if is_named else NUMBERS_PER_ITEM
            found.append(_List(field.name, element.kind is Kind.STRUCT, True, weight))
        elif field.type.kind is Kind.STRUCT:
            found.append(_List(field.name, True, False, 1))
    return tuple(found)
