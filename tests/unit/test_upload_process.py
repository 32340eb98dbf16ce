"""Copies in another process: the same results and errors as in this one, and its life."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX
from tier_harness import Objects

from ottla.runtime.directory_objects import DirectoryObjects
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import NewObject
from ottla.runtime.worker import InlineWorker
from ottla.tiering import upload_child
from ottla.tiering.store_settings import DIRECTORY, StoreSettings
from ottla.tiering.upload_child import PIECE_REST_S, REST_S_MAX, UploadChild
from ottla.tiering.upload_messages import (
    CrcOfFile,
    CrcOfRange,
    OpenStore,
    PutGroup,
    UploadReply,
    decode_reply,
    decode_request,
    encode,
    failed,
)
from ottla.tiering.upload_process import UploadProcess
from ottla.tiering.uploads import LocalUploads, Uploads, crc_of

pytestmark = pytest.mark.slow

CONTENTS = bytes(range(256)) * 9000


def with_process(
    root: Path, work: Callable[[UploadProcess], Awaitable[None]], unused_s: float = 60
) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            process = UploadProcess(StoreSettings(DIRECTORY, str(root / "store")), unused_s)
            service = asyncio.ensure_future(process.run(lambda: None))
            try:
                await work(process)
            finally:
                service.cancel()
                await asyncio.wait([service])

    (root / "segment").write_bytes(CONTENTS)
    asyncio.run(scenario())


async def copy(uploads: Uploads, root: Path) -> list[int]:
    """Copy a file; return the checksums before and after, in two pieces."""
    path = str(root / "segment")
    before = await uploads.crc_of_file(path, len(CONTENTS))
    objects = [NewObject("t/0.log", path=path), NewObject("t/0.index", b"index")]
    await uploads.put_group(objects)
    first = await uploads.crc_of_range("t/0.log", 0, 4096, 0)
    after = await uploads.crc_of_range("t/0.log", 4096, len(CONTENTS) - 4096, first)
    return [before, first, after]


async def put(uploads: Uploads, key: str) -> None:
    await uploads.put_group([NewObject(key, b"x")])


def test_process_stores_and_checks_as_this_process_does(tmp_path: Path) -> None:
    local = LocalUploads(DirectoryObjects(str(tmp_path / "local")), RealDisk(), InlineWorker())

    async def work(process: UploadProcess) -> None:
        found = await copy(process, tmp_path)
        assert found == await copy(local, tmp_path)
        assert found[0] == found[2]
        assert (tmp_path / "store/t/0.log").read_bytes() == CONTENTS
        assert (tmp_path / "store/t/0.index").read_bytes() == b"index"
        with pytest.raises(FileNotFoundError):
            await process.crc_of_range("t/1.log", 0, 9, 0)
        with pytest.raises(FileNotFoundError):
            await process.put_group([NewObject("t/1.log", path=str(tmp_path / "gone"))])
        with pytest.raises(OSError, match="5 bytes instead of 6"):
            await process.crc_of_range("t/0.index", 0, 6, 0)
        assert process.starts == 1
        assert process.is_grouped
        assert local.is_grouped

    with_process(tmp_path, work)


def test_process_is_replaced_by_a_faster_one_when_copies_are_behind(tmp_path: Path) -> None:
    async def work(process: UploadProcess) -> None:
        def policy() -> int:
            assert process.pid is not None
            return os.sched_getscheduler(process.pid)

        for is_hurried, expected in ((False, os.SCHED_IDLE), (True, os.SCHED_OTHER)) * 2:
            process.hurry(is_hurried)
            await put(process, "a")
            process.hurry(is_hurried)
            await put(process, "a")
            assert policy() == expected
        assert process.starts == 4

    with_process(tmp_path, work)


def test_process_that_crashed_is_started_again(tmp_path: Path) -> None:
    async def work(process: UploadProcess) -> None:
        await put(process, "a")
        assert process.pid is not None
        os.kill(process.pid, 9)
        for _ in range(100):
            try:
                await put(process, "b")
                break
            except OSError:  # it had not been noticed yet
                await asyncio.sleep(0.05)
        assert process.starts == 2
        assert (tmp_path / "store/b").read_bytes() == b"x"

    with_process(tmp_path, work)


def test_process_without_work_ends(tmp_path: Path) -> None:
    async def work(process: UploadProcess) -> None:
        await put(process, "a")
        while process.pid is not None:  # noqa: ASYNC110 - no one event
            await asyncio.sleep(0.01)
        await put(process, "b")
        assert process.starts == 2

    with_process(tmp_path, work, unused_s=0.05)


def test_messages_keep_their_contents() -> None:
    settings = StoreSettings("s3", "bucket", "prefix", {"secret_access_key": "s"}, allow_http=True)
    for request in (OpenStore(settings), CrcOfRange("k", 1, 2, 3)):
        assert decode_request(encode(request)) == request
    reply = decode_reply(encode(failed(PermissionError(13, "denied", "key"))))
    with pytest.raises(PermissionError, match=r"denied.*key"):
        reply.result()
    assert decode_reply(encode(UploadReply(7))).result() == 7
    with pytest.raises(OSError, match="timed out"):
        failed(TimeoutError("timed out")).result()


def test_store_that_returns_too_little_is_noticed(tmp_path: Path) -> None:
    """A bucket has no checksums of its own: its objects are read."""
    local = LocalUploads(Objects(), RealDisk(), InlineWorker())

    async def scenario() -> None:
        await local.put_group([NewObject("a", CONTENTS), NewObject("b", b"x")])
        assert await local.crc_of_range("a", 0, len(CONTENTS), 0) == crc_of(0, CONTENTS)
        with pytest.raises(OSError, match="1 bytes instead of 2"):
            await local.crc_of_range("b", 0, 2, 0)

    assert not local.is_grouped
    asyncio.run(scenario())


def test_checksum_of_a_local_file_rests_after_each_piece(tmp_path: Path) -> None:
    """A file in the page cache would keep a core busy from its first byte to its last one."""
    (tmp_path / "segment").write_bytes(CONTENTS)
    rests: list[int] = []
    local = LocalUploads(Objects(), RealDisk(), InlineWorker(), lambda: rests.append(1))
    crc = asyncio.run(local.crc_of_file(str(tmp_path / "segment"), len(CONTENTS)))
    assert crc == crc_of(0, CONTENTS)
    assert len(rests) == -(-len(CONTENTS) // (256 << 10))


@pytest.mark.parametrize(("is_paced", "rests"), [(True, {PIECE_REST_S}), (False, {0})])
def test_process_rests_between_pieces_only_if_it_is_paced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_paced: bool, rests: set[float]
) -> None:
    rested: list[float] = []
    monkeypatch.setattr(upload_child, "rest_thread", rested.append)
    (tmp_path / "segment").write_bytes(CONTENTS)

    async def scenario() -> None:
        child = UploadChild()
        opened = OpenStore(StoreSettings(DIRECTORY, str(tmp_path / "store")), is_paced=is_paced)
        for request in (opened, CrcOfFile(str(tmp_path / "segment"), len(CONTENTS))):
            decode_reply(await child.answer(encode(request))).result()

    asyncio.run(scenario())
    assert set(rested) == rests


def test_only_a_bucket_has_no_groups() -> None:
    for settings in (StoreSettings(DIRECTORY, "/tier"), StoreSettings("s3", "bucket")):
        assert UploadProcess(settings).is_grouped is (settings.kind == DIRECTORY)


@pytest.mark.parametrize(
    ("is_paced", "step_s", "rests"),
    [(True, 0.25, [0.25, 0.25]), (True, 9.0, [REST_S_MAX, REST_S_MAX]), (False, 0.25, [])],
)
def test_process_that_is_paced_rests_as_long_as_a_step_took(
    tmp_path: Path, *, is_paced: bool, step_s: float, rests: list[float]
) -> None:
    slept: list[float] = []
    ticks = iter(range(100))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def scenario() -> None:
        child = UploadChild(lambda: next(ticks) * step_s, sleep)
        settings = StoreSettings(DIRECTORY, str(tmp_path))
        for request in (OpenStore(settings, is_paced=is_paced), PutGroup((NewObject("a", b"x"),))):
            assert decode_reply(await child.answer(encode(request))).result() == 0

    asyncio.run(scenario())
    assert slept == rests
