"""Group commit: shared rounds, permanent failure, and no commit left waiting."""

import asyncio
import errno
import threading
from collections.abc import Coroutine

import pytest
from tests.patience import SECONDS_MAX

from ottla.protocol.faults import StorageFailed
from ottla.runtime.disk import RealDisk
from ottla.runtime.group_commit import GroupCommit
from ottla.runtime.ports import OpenMode


class FakeFile:
    """A file whose sync waits for a gate, counts, and fails on demand."""

    path = "/fake"

    def __init__(self, *, gated: bool = False, error: Exception | None = None) -> None:
        self.syncs = 0
        self.error = error
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0 if gated else 1_000_000)

    def sync(self) -> None:
        self.syncs += 1
        self.entered.release()
        assert self.gate.acquire(timeout=SECONDS_MAX)
        if self.error:
            raise self.error

    async def wait_entered(self) -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, self.entered.acquire, True, 30)


async def started(group: asyncio.TaskGroup, *waits: Coroutine) -> list[asyncio.Task]:
    """Start ``waits`` and let each run to its first suspension."""
    tasks = [group.create_task(wait) for wait in waits]
    await asyncio.sleep(0)
    return tasks


def run(scenario: Coroutine) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_commits_that_arrive_during_a_sync_share_the_next_one() -> None:
    async def scenario() -> None:
        committer, file, other = GroupCommit("/d", lambda e: None), FakeFile(gated=True), FakeFile()
        async with asyncio.TaskGroup() as group:
            first = await started(group, committer.commit([file]))
            await file.wait_entered()
            rest = await started(group, *(committer.commit([file, other]) for _ in range(50)))
            file.gate.release()
            await asyncio.wait(first)
            assert not any(task.done() for task in rest), "their writes may be after that sync"
            file.gate.release()
        assert (file.syncs, other.syncs) == (2, 1)
        await committer.close()

    run(scenario())


def test_failed_sync_fails_all_later_commits_and_is_not_retried() -> None:
    async def scenario() -> None:
        received: list[Exception] = []
        committer = GroupCommit("/d", received.append)
        bad = FakeFile(gated=True, error=OSError(errno.EIO, "lost pages"))
        good = FakeFile()
        outcomes = []

        async def attempt(file: FakeFile) -> None:
            with pytest.raises(StorageFailed) as caught:
                await committer.commit([file])
            outcomes.append((caught.value.directory, type(caught.value.__cause__), len(received)))

        async with asyncio.TaskGroup() as group:
            await started(group, attempt(bad))
            await bad.wait_entered()
            await started(group, attempt(good), attempt(bad))
            bad.gate.release()
        bad.error = None
        await attempt(bad)
        await attempt(good)
        assert outcomes == [("/d", OSError, 1)] * 5
        assert (bad.syncs, good.syncs) == (1, 0)
        assert [type(error) for error in received] == [OSError]
        await committer.close()

    run(scenario())


def test_unexpected_error_in_the_thread_fails_all_commits() -> None:
    async def scenario() -> None:
        committer = GroupCommit("/d", lambda e: None)
        with pytest.raises(StorageFailed, match="surprise"):
            await committer.commit([FakeFile(error=ValueError("surprise"))])
        await committer.close()

    run(scenario())


def test_cancelled_commit_does_not_affect_others() -> None:
    async def scenario() -> None:
        committer, file = GroupCommit("/d", lambda e: None), FakeFile(gated=True)
        async with asyncio.TaskGroup() as group:
            gone, stays = await started(group, committer.commit([file]), committer.commit([file]))
            await file.wait_entered()
            gone.cancel()
            file.gate.release()
            file.gate.release()
            await stays
        assert gone.cancelled()
        await committer.close()

    run(scenario())


def test_close_finishes_pending_work_and_rejects_more() -> None:
    async def scenario() -> None:
        committer, file = GroupCommit("/d", lambda e: None), FakeFile(gated=True)
        async with asyncio.TaskGroup() as group:
            waits = await started(group, committer.commit([file]))
            await file.wait_entered()
            waits += await started(group, committer.commit([file]))
            closing = (await started(group, committer.close()))[0]
            assert not closing.done()
            file.gate.release()
            file.gate.release()
        assert all(task.done() for task in waits)
        assert not any(thread.name == "commit /d" for thread in threading.enumerate())
        await committer.close()
        with pytest.raises(RuntimeError, match="after close"):
            await committer.commit([file])

    run(scenario())


def test_waiting_commits_are_limited() -> None:
    async def scenario() -> None:
        committer, file = GroupCommit("/d", lambda e: None, waiters_max=2), FakeFile(gated=True)
        async with asyncio.TaskGroup() as group:
            await started(group, committer.commit([file]))
            await file.wait_entered()
            await started(group, *(committer.commit([file]) for _ in range(4)))
            for _ in range(6):
                file.gate.release()
        assert file.syncs >= 3, "two at a time: five waiters cannot share two syncs"
        await committer.close()

    run(scenario())


def test_slow_disk_does_not_block_the_event_loop() -> None:
    async def scenario() -> None:
        committer, file = GroupCommit("/d", lambda e: None), FakeFile(gated=True)
        async with asyncio.TaskGroup() as group:
            waits = await started(group, committer.commit([file]))
            await file.wait_entered()
            turns = 0
            while turns < 100:
                await asyncio.sleep(0)
                turns += 1
            assert not waits[0].done()
            file.gate.release()
        await committer.close()

    run(scenario())


def test_commit_syncs_real_files(tmp_path) -> None:
    async def scenario() -> None:
        committer = GroupCommit(str(tmp_path), lambda e: None)
        file = RealDisk().open(str(tmp_path / "a"), OpenMode.CREATE)
        file.pwrite(b"x", 0)
        await committer.commit([file, file])
        await committer.commit([])
        await committer.close()
        file.close()

    run(scenario())
