"""Replies of requests on the event loop; most are available at once."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from ottla.protocol.faults import Fault


class AsyncReplyFuture:
    """A `ReplyFuture` for a handler. No asyncio future is created for an immediate reply."""

    __slots__ = ("_fault", "_future", "_is_done", "_reply")

    def __init__(self) -> None:
        self._reply: Any = None
        self._fault: Fault | None = None
        self._is_done = False
        self._future: asyncio.Future[Any] | None = None

    def answer(self, reply: Any) -> None:  # noqa: ANN401 - each request has a reply of its own
        """Send the reply. A request that was cancelled meanwhile gets none."""
        assert not self._is_done, "answered twice"
        self._is_done = True
        if self._future is None:
            self._reply = reply
        elif not self._future.done():
            self._future.set_result(reply)

    def fail(self, fault: Fault) -> None:
        """Fail the request."""
        assert not self._is_done, "answered twice"
        self._is_done = True
        if self._future is None:
            self._fault = fault
        elif not self._future.done():
            self._future.set_exception(fault)

    def outcome(self) -> Any | Awaitable[Any]:  # noqa: ANN401 - as above
        """Return the reply, or an awaitable of it. Raises the fault if the request failed."""
        if not self._is_done:
            self._future = asyncio.get_running_loop().create_future()
            return self._future
        if self._fault is not None:
            raise self._fault
        return self._reply
