"""Waits for an image that fulfils a condition."""

import asyncio
from collections.abc import Callable

import msgspec

from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image

Condition = Callable[[Image], bool]


class _Waiter(msgspec.Struct, frozen=True):
    condition: Condition
    found: asyncio.Future[Image]


class ImageWatch:
    """The last publisher: keeps the newest image, and wakes the tasks that wait for it.

    A waiter costs one call of its condition per image, so conditions must be cheap look-ups. A
    cancelled waiter is dropped at the next image.
    """

    name = "watch"

    def __init__(self) -> None:
        self._image = EMPTY
        self._waiters: list[_Waiter] = []

    @property
    def image(self) -> Image:
        """The newest published image; the empty image before the first."""
        return self._image

    def current(self) -> Image:
        """Return `image`, for parts that take a function."""
        return self._image

    def on_image(self, delta: Delta, image: Image) -> None:
        """Store the newest image and wake the waiters whose condition it fulfils."""
        self._image = image
        waiting: list[_Waiter] = []
        for waiter in self._waiters:
            if waiter.found.done():
                continue
            if waiter.condition(image):
                waiter.found.set_result(image)
            else:
                waiting.append(waiter)
        self._waiters = waiting

    async def wait_image(self, condition: Condition) -> Image:
        """Return the first image, starting with the current one, that fulfils the condition."""
        if condition(self._image):
            return self._image
        waiter = _Waiter(condition, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        return await waiter.found
