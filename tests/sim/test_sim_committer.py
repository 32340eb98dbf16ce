"""The simulated group commit gives the guarantee of the real one, on virtual time."""

import asyncio

import pytest

from ottla.protocol.faults import StorageFailed
from ottla.runtime.ports import OpenMode
from simulation.committer import SimCommitter
from simulation.disk import SimDisk
from simulation.loop import run_simulated


def test_commits_that_arrive_during_a_round_share_the_next() -> None:
    async def scenario() -> None:
        disk = SimDisk()
        disk.make_dirs("/d")
        file = disk.open("/d/a", OpenMode.CREATE)
        disk.sync_dir("/d")
        committer = SimCommitter("/d", delay_s=lambda: 1.0)
        before = disk.operations
        loop, ended = asyncio.get_running_loop(), []

        async def commit(at: float) -> None:
            await asyncio.sleep(at)
            file.pwrite(b"x", int(at * 10))
            await committer.commit([file, file])
            ended.append((at, loop.time()))
            durable = disk.durable("/d/a")
            assert durable is not None
            assert durable[int(at * 10)] == ord("x")

        async with asyncio.TaskGroup() as group:
            for at in (0.0, 0.2, 0.5, 0.9, 5.0):
                group.create_task(commit(at))
        assert ended == [(0.0, 1.0), (0.2, 2.0), (0.5, 2.0), (0.9, 2.0), (5.0, 6.0)]
        assert disk.operations - before == 5 + 3, "five writes, three syncs"

    run_simulated(scenario())


def test_failed_sync_fails_the_directory_forever() -> None:
    async def scenario() -> None:
        disk, received = SimDisk(), []
        disk.make_dirs("/d")
        file = disk.open("/d/a", OpenMode.CREATE)
        committer = SimCommitter("/d", received.append)
        disk.fail("sync")

        async def attempt(at: float) -> None:
            await asyncio.sleep(at)
            with pytest.raises(StorageFailed) as caught:
                await committer.commit([file])
            assert isinstance(caught.value.__cause__, OSError)

        async with asyncio.TaskGroup() as group:
            for at in (0.0, 0.001, 3.0):
                group.create_task(attempt(at))
        assert len(received) == 1

    run_simulated(scenario())
