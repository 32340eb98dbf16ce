"""Waiting for an image that fulfils a condition."""

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
    """The last publisher: keeps the newest image, and wakes those who wait for it.

    A waiter costs one call of its condition per image, so conditions are cheap look-ups. A
    waiter that is cancelled is forgotten at the next image.
    """

    name = "watch"

    def __init__(self) -> None:
        self._image = EMPTY
        self._waiters: list[_Waiter] = []

    @property
    def image(self) -> Image:
        """The newest published image; the empty one before the first."""
        return self._image

    def on_image(self, delta: Delta, image: Image) -> None:
        """Take the newest image and wake whoever waited for it."""
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
        """Return the first image from now on, the present one included, that fulfils."""
        if condition(self._image):
            return self._image
        waiter = _Waiter(condition, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        return await waiter.found
