"""Requests that wait for their answer on the event loop, and most that need not."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from ottla.protocol.faults import Fault


class AsyncReplyFuture:
    """A `ReplyFuture` for a handler: an answer that is there at once costs no future."""

    __slots__ = ("_fault", "_future", "_is_done", "_reply")

    def __init__(self) -> None:
        self._reply: Any = None
        self._fault: Fault | None = None
        self._is_done = False
        self._future: asyncio.Future[Any] | None = None

    def answer(self, reply: Any) -> None:  # noqa: ANN401 - each request has a reply of its own
        """Let the reply leave. A request that was cancelled meanwhile has no answer."""
        assert not self._is_done, "answered twice"
        self._is_done = True
        if self._future is None:
            self._reply = reply
        elif not self._future.done():
            self._future.set_result(reply)

    def fail(self, fault: Fault) -> None:
        """Let the request fail."""
        assert not self._is_done, "answered twice"
        self._is_done = True
        if self._future is None:
            self._fault = fault
        elif not self._future.done():
            self._future.set_exception(fault)

    def outcome(self) -> Any | Awaitable[Any]:  # noqa: ANN401 - as above
        """Return the reply, or what to await for it. Raises the fault it failed with."""
        if not self._is_done:
            self._future = asyncio.get_running_loop().create_future()
            return self._future
        if self._fault is not None:
            raise self._fault
        return self._reply
