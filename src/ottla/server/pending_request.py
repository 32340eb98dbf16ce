"""A request whose reply is not known yet, and the memory that replies hold."""

import asyncio

import msgspec

from ottla.api.replies import LaterReply, Result, is_file, length_of
from ottla.api.routes import Caller
from ottla.server.dispatch import Call, Outgoing
from ottla.server.frame_memory import Grant
from ottla.server.reply_order import ReplySlot


class PendingRequest(msgspec.Struct, eq=False):
    """A request whose handler has not finished. ``granted`` is memory to give back.

    ``since`` is when the request was read, in the loop's time. ``is_long``: the reply may be large
    and is encoded in steps. ``size`` is that of the frame. ``spent_s`` is the time that the request
    has kept the event loop busy, measured if a quota is in force.
    """

    call: Call
    caller: Caller
    slot: ReplySlot[Outgoing]
    granted: Grant
    since: float
    is_long: bool = False
    size: int = 0
    spent_s: float = 0.0
    is_charged: bool = False
    work: "asyncio.Future[Result] | asyncio.Task[None] | LaterReply | None" = None

    def spend(self, seconds: float) -> None:
        """Add to the time that the request has kept the event loop busy."""
        self.spent_s += seconds


def held(outgoing: Outgoing) -> int:
    """Return the memory that a reply holds until it is sent; file slices hold none."""
    return sum(length_of(chunk) for chunk in outgoing.chunks if not is_file(chunk))
