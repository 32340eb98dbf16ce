"""Bounded caches of what was read from remote storage.

Batches are read in blocks, larger than a fetch, so that a consumer that reads on finds the next
ones here. A block that several readers need is requested once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from ottla.protocol.types import Buffer

BLOCK_BYTES: Final = 4 << 20
"""The size of a ranged GET. Four of a consumer's default fetches."""
BLOCKS_BYTES_MAX: Final = 64 << 20
INDEX_BYTES_MAX: Final = 64 << 20

Key = TypeVar("Key", bound=Hashable)


class ReadCache(Generic[Key]):
    """Values by key, least recently used out first, at most ``bytes_max`` in total."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._values: OrderedDict[Key, Buffer] = OrderedDict()
        self._loading: dict[Key, asyncio.Future[Buffer]] = {}
        self.size = 0
        self.hits = 0
        self.misses = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._values or key in self._loading

    def peek(self, key: Key) -> Buffer | None:
        """Return a value that is here, and load none."""
        return self._values.get(key)

    async def get(self, key: Key, load: Callable[[], Awaitable[Buffer]]) -> Buffer:
        """Return a value; ``load`` is called once, however many readers wait for it.

        A failure of ``load`` is raised to all of them, and is not kept.
        """
        while True:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
                self.hits += 1
                return value
            waiting = self._loading.get(key)
            if waiting is None:
                return await self._load(key, load)
            try:
                return await asyncio.shield(waiting)
            except asyncio.CancelledError:
                if not waiting.cancelled():
                    raise  # this reader was cancelled; the other one goes on

    async def _load(self, key: Key, load: Callable[[], Awaitable[Buffer]]) -> Buffer:
        self.misses += 1
        loading: asyncio.Future[Buffer] = asyncio.get_running_loop().create_future()
        self._loading[key] = loading
        try:
            value = await load()
        except asyncio.CancelledError:
            loading.cancel()
            raise
        except Exception as error:
            loading.set_exception(error)
            loading.exception()  # retrieved, even if no other reader waits
            raise
        finally:
            del self._loading[key]
        loading.set_result(value)
        self._put(key, value)
        return value

    def _put(self, key: Key, value: Buffer) -> None:
        self._values[key] = value
        self.size += len(value)
        while self.size > self.bytes_max and self._values:
            self.size -= len(self._values.popitem(last=False)[1])

    def drop(self, matches: Callable[[Key], bool]) -> None:
        """Forget values, so that they are loaded again."""
        for key in [key for key in self._values if matches(key)]:
            self.size -= len(self._values.pop(key))
