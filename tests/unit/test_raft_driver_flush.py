"""A sync covers only what was appended before it began."""

import asyncio
from collections.abc import Sequence

from raft_bench import Bench, record, wait_role, wait_until

from ottla.protocol.types import LeaderEpoch
from ottla.raft.core.effects import Role
from ottla.raft.driver import RaftDriver
from ottla.runtime.ports import Syncable


class Gate:
    """A committer whose rounds end when the test ends them."""

    def __init__(self) -> None:
        self.rounds: list[asyncio.Future[None]] = []

    async def close(self) -> None:
        pass

    async def commit(self, files: Sequence[Syncable]) -> None:
        self.rounds.append(asyncio.get_running_loop().create_future())
        await self.rounds[-1]


def test_records_appended_during_a_sync_are_not_covered_by_it() -> None:
    bench = Bench()
    gate = bench.committer = Gate()

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await wait_until(lambda: len(gate.rounds) == 1)
        base = await driver.propose([record("a")], LeaderEpoch(1))
        assert driver.describe().high_watermark in (None, 0)
        gate.rounds[0].set_result(None)
        await wait_until(lambda: len(gate.rounds) == 2)
        assert driver.describe().high_watermark == base
        assert bench.listener.values == []
        gate.rounds[1].set_result(None)
        await wait_until(lambda: bench.listener.values == ["a"])

    bench.play(scenario)
