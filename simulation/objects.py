"""A simulated object store: a bucket that is late, unavailable, truncated, stale or wrong."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ottla.protocol.types import Buffer
from ottla.runtime.object_keys import check_key, check_prefix
from ottla.runtime.ports import Disk, NewObject, ObjectMeta
from simulation.random import SimRandom

Request = Literal["put", "get", "head", "list", "delete"]
Trouble = Literal["unavailable", "truncated", "wrong bytes"]


@dataclass(slots=True)
class _Plan:
    trouble: Trouble
    request: Request
    skip: int
    times: int


class SimBucket:
    """The store itself, shared by all hosts; it outlives their processes.

    ``delay_s`` is the duration of each request; ``listing_lag_s`` is how long a listing omits a new
    object and still shows a removed one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seed: int = 0,
        *,
        note: Callable[[str, str], None] = lambda kind, detail: None,
    ) -> None:
        self.delay_s = 0.02
        self.listing_lag_s = 0.0
        self._loop = loop
        self._random = SimRandom(seed, "objects")
        self._note = note
        self._objects: dict[str, bytes] = {}
        # key -> [(since when, size or None if removed)], for listings that lag.
        self._history: dict[str, list[tuple[float, int | None]]] = {}
        self._plans: list[_Plan] = []

    def fail(
        self,
        trouble: Trouble,
        request: Request = "get",
        after: int = 0,
        times: int = 1,
    ) -> None:
        """Let ``after`` requests of a kind pass and inject a fault into the ``times`` after that.

        *unavailable* is an ``OSError`` (a 503): a put or delete may have happened all the same.
        *truncated* and *wrong bytes* are silent and concern ``get``.
        """
        self._plans.append(_Plan(trouble, request, after, times))

    def heal(self) -> None:
        """Remove every planned fault and delay."""
        self._plans.clear()
        self.delay_s = self.listing_lag_s = 0.0

    def contents(self) -> dict[str, bytes]:
        """Return what is stored, by key."""
        return dict(sorted(self._objects.items()))

    async def request(self, kind: Request, key: str) -> Trouble | None:
        """Wait as long as a request takes; return the fault injected into it."""
        await asyncio.sleep(self.delay_s * (0.5 + self._random.fraction()))
        self._note(kind, key)
        for plan in self._plans:
            if plan.request == kind and plan.times:
                if plan.skip:
                    plan.skip -= 1
                    continue
                plan.times -= 1
                return plan.trouble
        return None

    def store(self, key: str, data: bytes | None, trouble: Trouble | None) -> None:
        """Put or (None) remove an object; with a fault, possibly without effect, and raise."""
        if trouble is None or self._random.chance(0.5):
            if data is not None:
                self._objects[key] = data
            else:
                self._objects.pop(key, None)
            size = None if data is None else len(data)
            self._history.setdefault(key, []).append((self._loop.time(), size))
        if trouble is not None:
            raise _unavailable(key)

    def shuffle(self, contents: list[tuple[str, bytes, Trouble | None]]) -> None:
        """Put what is stored together into any order."""
        for last in range(len(contents) - 1, 0, -1):
            other = self._random.below(last + 1)
            contents[last], contents[other] = contents[other], contents[last]

    def load(self, key: str, trouble: Trouble | None) -> bytes:
        """Return an object."""
        if trouble == "unavailable":
            raise _unavailable(key)
        if key not in self._objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", key)
        return self._objects[key]

    def spoil(self, data: bytes, trouble: Trouble | None) -> bytes:
        """Return what a faulty reply carries of ``data``."""
        if trouble == "truncated":
            return data[: self._random.below(max(1, len(data)))]
        if trouble == "wrong bytes" and data:
            where = self._random.below(len(data))
            return data[:where] + bytes([data[where] ^ 0x10]) + data[where + 1 :]
        return data

    def listing(self, prefix: str) -> list[ObjectMeta]:
        """Return what a listing shows: the state some time ago."""
        horizon = self._loop.time() - self.listing_lag_s
        above = f"{prefix.removesuffix('/')}/" if prefix else ""
        found = []
        for key in sorted(self._history):
            known = [size for since, size in self._history[key] if since <= horizon]
            if key.startswith(above) and known and known[-1] is not None:
                found.append(ObjectMeta(key, known[-1]))
        return found


class SimObjects:
    """`ObjectStore` as one host sees the bucket; files to upload come from its disk."""

    def __init__(self, bucket: SimBucket, disk: Disk) -> None:
        self._bucket = bucket
        self._disk = disk

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object."""
        check_key(key)
        held = bytes(data)
        trouble = await self._bucket.request("put", key)
        self._bucket.store(key, held, trouble)

    async def put_file(self, key: str, path: str) -> None:
        """Store a file of this host's disk."""
        await self.put(key, self._disk.read(path))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return part of an object; with a fault too little of it, or wrong bytes."""
        check_key(key)
        trouble = await self._bucket.request("get", key)
        whole = self._bucket.load(key, trouble)
        return self._bucket.spoil(whole[start : start + length], trouble)

    async def head(self, key: str) -> ObjectMeta:
        """Describe an object."""
        check_key(key)
        trouble = await self._bucket.request("head", key)
        return ObjectMeta(key, len(self._bucket.load(key, trouble)))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Yield what the bucket shows, in key order."""
        check_prefix(prefix)
        if await self._bucket.request("list", prefix) is not None:
            raise _unavailable(prefix)
        for meta in self._bucket.listing(prefix):
            yield meta

    async def delete(self, key: str) -> None:
        """Remove an object."""
        check_key(key)
        self._bucket.store(key, None, await self._bucket.request("delete", key))


class SimGroupedObjects(SimObjects):
    """`ObjectGroups` as well, as in a directory.

    A process that is killed in the middle of a group leaves nothing of it, or some of the objects;
    a failure leaves any of them.
    """

    async def put_group(self, objects: Sequence[NewObject]) -> None:
        """Write all, then make them visible in any order."""
        contents: list[tuple[str, bytes, Trouble | None]] = []
        for each in objects:
            check_key(each.key)
            data = each.data if each.path is None else self._disk.read(each.path)
            contents.append((each.key, data, await self._bucket.request("put", each.key)))
        self._bucket.shuffle(contents)
        for key, data, trouble in contents:
            self._bucket.store(key, data, trouble)
            await asyncio.sleep(self._bucket.delay_s / 10)


def _unavailable(key: str) -> OSError:
    return OSError(errno.EAGAIN, "503 slow down", key)
