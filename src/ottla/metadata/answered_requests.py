"""Forwarded requests that changed the cluster, with their replies, for repeated attempts.

A broker that loses its connection to the active controller cannot know whether its request was
processed. It sends the request again under the same id, and the controller, the same or a new one,
finds here whether the first attempt was committed. The entries are part of the metadata log (tagged
fields of a `NoOpRecord` in the batch of the change itself), so an entry is committed if and only if
the change is.
"""

from typing import Final

import msgspec
from immutables import Map

from ottla.protocol.types import Uuid

# A broker has at most 100 requests to the controller in flight, so only the last few hundred of a
# cluster can be sent again.
COUNT_MAX: Final = 4_000
BYTES_MAX: Final = 4 * 1024 * 1024


class RequestIdentity(msgspec.Struct, frozen=True):
    """A request that may be sent more than once."""

    id: Uuid
    is_resent: bool = False
    """Whether an earlier attempt may have reached a controller."""


class AnsweredRequest(msgspec.Struct, frozen=True, gc=False):
    """One request: its API, and its reply encoded in the API's highest version."""

    api_key: int
    reply: bytes


class AnsweredRequests(msgspec.Struct, frozen=True, gc=False):
    """The newest requests in log order, at most `COUNT_MAX` and `BYTES_MAX` of replies."""

    by_id: Map[Uuid, AnsweredRequest] = Map()
    order: tuple[Uuid, ...] = ()
    reply_bytes: int = 0

    def get(self, request_id: Uuid) -> AnsweredRequest | None:
        """Return the stored reply; None for a request that is not known to be processed."""
        return self.by_id.get(request_id)

    def with_request(self, request_id: Uuid, request: AnsweredRequest) -> "AnsweredRequests":
        """Return the requests with a newer one; the oldest are dropped to stay in bounds."""
        if request_id in self.by_id:
            return self
        by_id = self.by_id.set(request_id, request)
        size = self.reply_bytes + len(request.reply)
        dropped = 0
        while len(by_id) > COUNT_MAX or (size > BYTES_MAX and len(by_id) > 1):
            size -= len(by_id[self.order[dropped]].reply)
            by_id = by_id.delete(self.order[dropped])
            dropped += 1
        return AnsweredRequests(by_id, (*self.order[dropped:], request_id), size)
