"""`ottla up` starts a node that exits again, with the back-off of every supervisor."""

import asyncio
from pathlib import Path

import pytest

from ottla.cli.host.supervision import BACK_OFF_S, STABLE_S
from ottla.cli.up import processes as up_processes
from ottla.cli.up.plan import PlannedNode
from ottla.cli.up.processes import Processes
from ottla.client.connection import Options


class SteppedClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic(self) -> int:
        return self.ms

    def now(self) -> int:
        return self.ms


class ShortRun:
    """A process that exits after a given time of the clock."""

    pid, returncode = 1, 1

    def __init__(self, clock: SteppedClock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    async def wait(self) -> int:
        self.clock.ms += int(self.seconds * 1000)
        return 1


def test_node_that_ran_for_a_minute_is_restarted_without_a_long_back_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, runs, slept = SteppedClock(), [1.0, 1.0, 1.0, STABLE_S, 1.0], list[float]()
    node = PlannedNode(1, 1, 2, str(tmp_path))
    Path(node.log_file).write_text("the end of the log\n")
    processes = Processes([node], Options(), lambda: None, clock)

    async def start(node: PlannedNode) -> ShortRun:
        if len(runs) == 1:
            processes.stop()
        return ShortRun(clock, runs.pop(0))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def wait_ready(self: Processes) -> bool:
        return True

    monkeypatch.setattr(up_processes, "_start", start)
    monkeypatch.setattr(Processes, "_wait_ready", wait_ready)
    monkeypatch.setattr(up_processes.asyncio, "sleep", sleep)
    asyncio.run(processes.run())
    assert slept == [BACK_OFF_S, 2 * BACK_OFF_S, 4 * BACK_OFF_S, BACK_OFF_S]
    assert capsys.readouterr().err.count(f"starting node 1 again in {BACK_OFF_S:g} s") == 2
