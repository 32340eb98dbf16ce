"""The simulated bucket: the guarantees of a store, and each of its faults."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.runtime.ports import OpenMode
from simulation.disk import SimDisk
from simulation.loop import run_simulated
from simulation.objects import SimBucket, SimObjects


def simulate(scenario: Callable[[SimBucket, SimObjects], Awaitable[None]], seed: int = 0) -> None:
    async def main() -> None:
        bucket = SimBucket(asyncio.get_running_loop(), seed)
        disk = SimDisk()
        disk.make_dirs("/d")
        disk.open("/d/segment", OpenMode.CREATE).pwrite(b"segment bytes", 0)
        await scenario(bucket, SimObjects(bucket, disk))

    run_simulated(main())


async def keys(store: SimObjects, prefix: str = "") -> list[str]:
    return [meta.key async for meta in store.list(prefix)]


def test_put_get_list_and_delete() -> None:
    async def scenario(bucket: SimBucket, store: SimObjects) -> None:
        await store.put("t/b", b"bytes")
        await store.put_file("t/a", "/d/segment")
        assert await store.get_range("t/b", 1, 3) == b"yte"
        assert await store.get_range("t/b", 3, 99) == b"es"
        assert (await store.head("t/a")).size == 13
        assert await keys(store, "t/") == ["t/a", "t/b"]
        assert await keys(store, "t") == ["t/a", "t/b"]
        assert await keys(store, "t/b") == await keys(store, "u") == []
        await store.delete("t/a")
        await store.delete("t/a")
        for call in (store.get_range("t/a", 0, 1), store.head("t/a")):
            with pytest.raises(FileNotFoundError):
                await call
        assert bucket.contents() == {"t/b": b"bytes"}

    simulate(scenario)


def test_unavailable_store_raises_and_the_put_may_have_happened() -> None:
    outcomes = set()

    async def scenario(bucket: SimBucket, store: SimObjects) -> None:
        bucket.fail("unavailable", "put")
        with pytest.raises(OSError, match="503"):
            await store.put("k", b"v")
        outcomes.add(len(bucket.contents()))
        bucket.fail("unavailable", "list")
        with pytest.raises(OSError):
            await keys(store)
        bucket.fail("unavailable", "get", after=1)
        await store.put("k", b"v")
        await store.get_range("k", 0, 1)
        with pytest.raises(OSError) as caught:
            await store.get_range("k", 0, 1)
        assert not isinstance(caught.value, FileNotFoundError)

    for seed in range(20):
        simulate(scenario, seed)
    assert outcomes == {0, 1}


def test_replies_may_be_truncated_or_wrong_silently() -> None:
    async def scenario(bucket: SimBucket, store: SimObjects) -> None:
        await store.put("k", b"0123456789")
        bucket.fail("truncated")
        assert len(await store.get_range("k", 0, 10)) < 10
        bucket.fail("wrong bytes")
        wrong = await store.get_range("k", 0, 10)
        assert len(wrong) == 10 and wrong != b"0123456789"
        assert await store.get_range("k", 0, 10) == b"0123456789"

    simulate(scenario)


def test_listing_may_lag() -> None:
    async def scenario(bucket: SimBucket, store: SimObjects) -> None:
        bucket.listing_lag_s = 10
        await store.put("k", b"v")
        assert await keys(store) == []
        await asyncio.sleep(11)
        assert await keys(store) == ["k"]
        await store.delete("k")
        assert await keys(store) == ["k"]
        await asyncio.sleep(11)
        assert await keys(store) == []
        bucket.heal()

    simulate(scenario)


def test_slow_store_takes_simulated_time() -> None:
    async def scenario(bucket: SimBucket, store: SimObjects) -> None:
        bucket.delay_s = 60
        began = asyncio.get_running_loop().time()
        await store.put("k", b"v")
        assert asyncio.get_running_loop().time() - began >= 30

    simulate(scenario)


@pytest.mark.parametrize(
    "key", ["", "/a", "a//b", "../a", "a/..", "a/./b", "a\\b", "a\nb", "x" * 1025]
)
def test_keys_that_escape_the_bucket_are_rejected(key: str) -> None:
    async def scenario(bucket: SimBucket, store: SimObjects) -> None:
        for call in (store.put(key, b""), store.get_range(key, 0, 1), store.head(key)):
            with pytest.raises(ValueError):
                await call
        with pytest.raises(ValueError):
            await store.delete(key)

    simulate(scenario)
