"""Refuse changes of the cluster that are too long to be decided at once.

A decision of the active controller takes one turn of the event loop and writes its records in one
batch. As in Kafka, an operation that needs more than `RECORDS_MAX` records is refused with
POLICY_VIOLATION. A request with more rows than that is refused without being decided, and in steps:
what the client may not change gets the error of authorization, as always, and everything else
POLICY_VIOLATION.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ottla.api.surface.error_reply import error_reply
from ottla.api.surface.item_limits import has_long_list
from ottla.api.surface.pieces import join, split_rows
from ottla.api.surface.replies import Steps
from ottla.api.surface.row import Lists
from ottla.controller.decision import RECORDS_MAX
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import response_class
from ottla.protocol.schema import Message

_PARTITION_KEYS = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS)
# Kafka's texts.
_PARTITIONS_REFUSAL = "Excessively large number of partitions per request."
_REFUSAL = "Unable to perform excessively large batch operation."
Authorize = Callable[[Any], tuple[Any, Sequence[Any]]]
"""Takes the rows out of a request that the client may not change; returns it and their results."""


def all_authorized(request: Any) -> tuple[Any, Sequence[Any]]:  # noqa: ANN401 - of any class
    """Leave the request as it is: its client was authorized as a whole."""
    return request, ()


def is_long(request: Message) -> bool:
    """Say whether a request has more rows, or items within them, than one decision may change."""
    return has_long_list(request, RECORDS_MAX)


def refuse_long(
    key: ApiKey, version: int, request: Message, lists: Sequence[Lists], authorize: Authorize
) -> Steps[Message]:
    """Return the reply to a request that `is_long`, and yield often."""
    refusal = _PARTITIONS_REFUSAL if key in _PARTITION_KEYS else _REFUSAL
    nothing = replace(request, **{names.rows: [] for names in lists})
    joined: Message | None = None
    for names in lists:
        for rows in split_rows(getattr(request, names.rows) or [], names.items):
            kept, refused = authorize(replace(nothing, **{names.rows: rows}))
            reply = error_reply(key, version, kept, ErrorCode.POLICY_VIOLATION, refusal)
            reply = reply or response_class(key)()  # the client may change none of these rows
            getattr(reply, names.results).extend(refused)
            joined = reply if joined is None else join(joined, reply, names)
            yield
    assert joined is not None, "a long request has rows"
    return joined
