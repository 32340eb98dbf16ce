"""Hold a client's first requests until this broker can answer them.

A broker listens before the controller has registered and unfenced it, since other brokers connect
to it as soon as it is registered. A reply in that time lists no brokers and no controller, or all
brokers but this one, and some clients take that for the cluster and fail for a minute. So the
rows of the surface with ``waits_until_unfenced`` wait until this broker has been unfenced once, for
a bounded time; after that the gate costs one check of a flag.

    no broker is unfenced     up to `EMPTY_WAIT_S`
    other brokers are         up to `OTHERS_WAIT_S`; they can serve the client
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ottla.api.surface.replies import Handled, Result, finished
from ottla.api.surface.routes import Caller
from ottla.metadata.image import Image

EMPTY_WAIT_S: Final = 10.0
OTHERS_WAIT_S: Final = 2.0
POLL_S: Final = 0.01


class StartGate:
    """Opens when this broker is first unfenced, and stays open."""

    def __init__(self, image: Callable[[], Image], node_id: int) -> None:
        self._image = image
        self._node_id = node_id
        self._is_open = False

    def is_open(self) -> bool:
        """Say whether this broker has been unfenced since it started."""
        if not self._is_open:
            self._is_open = self._image().cluster.is_unfenced(self._node_id)
        return self._is_open

    async def wait(self) -> None:
        """Return when the gate is open, or the longest wait is over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self.is_open():
            has_others = any(True for _ in self._image().cluster.unfenced())
            if loop.time() - began >= (OTHERS_WAIT_S if has_others else EMPTY_WAIT_S):
                return
            await asyncio.sleep(POLL_S)

    def hold(self, handle: Callable[..., Handled]) -> Callable[..., Handled]:
        """Return a handler that waits for this gate before it calls ``handle``."""

        # The class of the request depends on the key, so it cannot be annotated here.
        def held(caller: Caller, request: Any, version: int) -> Handled:  # noqa: ANN401
            if self.is_open():
                return handle(caller, request, version)
            return later(caller, request, version)

        async def later(caller: Caller, request: Any, version: int) -> Result:  # noqa: ANN401
            await self.wait()
            return await finished(handle(caller, request, version))

        return held
