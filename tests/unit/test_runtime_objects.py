"""Object stores: one contract for a directory, memory, and S3 on a local server."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from ottla.runtime.directory_objects import DirectoryObjects
from ottla.runtime.objects import PART_BYTES, ObstoreObjects
from ottla.runtime.ports import ObjectStore

pytestmark = pytest.mark.slow

CREDENTIALS = {"region": "eu-central-1", "access_key_id": "test", "secret_access_key": "test"}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server on a free local port, for the session."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str) -> ObstoreObjects:
    import urllib.request

    bucket = f"bucket-{os.urandom(4).hex()}"
    body = (
        b'<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        b"<LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>"
    )
    request = urllib.request.Request(f"{s3_endpoint}/{bucket}", data=body, method="PUT")
    urllib.request.urlopen(request).close()
    config = {**CREDENTIALS, "endpoint": s3_endpoint, "virtual_hosted_style_request": "false"}
    return ObstoreObjects.in_s3(bucket, config, allow_http=True)


@pytest.fixture(params=["directory", "uncached directory", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param.endswith("directory"):
        is_cached = request.param == "directory"
        return DirectoryObjects(str(tmp_path / "objects"), is_cached=is_cached)
    if request.param == "memory":
        return ObstoreObjects.in_memory()
    found: ObstoreObjects = request.getfixturevalue("s3")
    return found


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [meta.key async for meta in store.list(prefix)]


def test_objects_are_stored_read_described_listed_and_removed(store: ObjectStore) -> None:
    async def scenario() -> None:
        await store.put("t/b", b"0123456789")
        await store.put("t/a", memoryview(b"first"))
        await store.put("tb/c", b"")
        assert await store.get_range("t/b", 2, 3) == b"234"
        assert await store.get_range("t/b", 8, 100) == b"89"
        assert await store.get_range("t/b", 10, 5) == b""
        assert await store.get_range("t/b", 99, 5) == b""
        assert await store.get_range("t/b", 3, 0) == b""
        meta = await store.head("t/a")
        assert (meta.key, meta.size) == ("t/a", 5)
        assert await keys(store, "t") == await keys(store, "t/") == ["t/a", "t/b"]
        assert await keys(store, "") == ["t/a", "t/b", "tb/c"]
        assert await keys(store, "none") == []
        await store.put("t/a", b"replaced")
        assert await store.get_range("t/a", 0, 99) == b"replaced"
        await store.delete("t/a")
        await store.delete("t/a")
        assert await keys(store, "t") == ["t/b"]

    run(scenario())


def test_missing_object_raises_file_not_found(store: ObjectStore) -> None:
    async def scenario() -> None:
        calls: list[Callable[[], Coroutine[None, None, object]]] = [
            lambda: store.get_range("gone", 0, 1),
            lambda: store.get_range("gone", 0, 0),
            lambda: store.head("gone"),
        ]
        for call in calls:
            with pytest.raises(FileNotFoundError):
                await call()

    run(scenario())


def test_file_is_uploaded_in_parts(store: ObjectStore, tmp_path: Path) -> None:
    async def scenario() -> None:
        block = bytes(range(256)) * 4096
        for size in (0, 5, PART_BYTES + 12345):
            contents = (block * (size // len(block) + 1))[:size]
            (tmp_path / "segment").write_bytes(contents)
            await store.put_file("segments/1", str(tmp_path / "segment"))
            assert (await store.head("segments/1")).size == size
            assert await store.get_range("segments/1", 0, size + 1) == contents
        with pytest.raises(FileNotFoundError):
            await store.put_file("segments/2", str(tmp_path / "missing"))

    run(scenario())


@pytest.mark.parametrize(
    "key", ["", "/a", "a//b", "../a", "a/..", "./a", "a\\b", "a\0b", "a/", ".incoming/a"]
)
def test_invalid_keys_are_rejected_before_the_store(key: str, tmp_path: Path) -> None:
    store = DirectoryObjects(str(tmp_path / "objects"))

    async def scenario() -> None:
        calls: list[Callable[[], Coroutine[None, None, object]]] = [
            lambda: store.put(key, b"x"),
            lambda: store.put_file(key, str(tmp_path)),
            lambda: store.get_range(key, 0, 1),
            lambda: store.head(key),
            lambda: store.delete(key),
        ]
        for call in calls:
            with pytest.raises(ValueError):
                await call()

    run(scenario())
    assert sorted(os.listdir(tmp_path)) == ["objects"]


def test_plain_http_must_be_enabled(s3_endpoint: str) -> None:
    async def scenario() -> None:
        store = ObstoreObjects.in_s3("bucket", {**CREDENTIALS, "endpoint": s3_endpoint})
        with pytest.raises(OSError, match="store failed"):
            await store.head("k")

    run(scenario())


def test_failure_of_the_store_raises_os_error() -> None:
    async def scenario() -> None:
        config = {**CREDENTIALS, "endpoint": "https://127.0.0.1:1"}
        store = ObstoreObjects.in_s3("bucket", config)
        with pytest.raises(OSError, match="store failed"):
            await asyncio.wait_for(store.head("k"), 60)

    run(scenario())


def test_import_error_names_the_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ImportError, match=r"ottla\[objects\]"):
        ObstoreObjects.in_memory()
