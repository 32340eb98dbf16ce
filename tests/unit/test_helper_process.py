"""Helper processes: they answer, have the lowest priority, and end with their parent."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from ottla.runtime import event_loop
from ottla.runtime.helper_process import HelperEnded, HelperProcess

pytestmark = pytest.mark.slow

HELPER = """
import asyncio, os, sys
from ottla.runtime.helper_process import serve

async def answer(payload):
    if payload == b"policy":
        return str(os.sched_getscheduler(0)).encode()
    if payload == b"sleep":
        await asyncio.sleep(3600)
    if payload == b"exit":
        os._exit(3)
    return payload[::-1]

serve(answer, int(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reversing_helper.py").write_text(HELPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


async def start(*, is_low: bool = True) -> HelperProcess:
    return await HelperProcess.start("reversing_helper", is_low=is_low)


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_helper_answers_a_broker_with_the_faster_event_loop() -> None:
    """`ottla server` runs uvloop where it is installed; its transports have no class of asyncio."""
    pytest.importorskip("uvloop")

    async def scenario() -> None:
        helper = await start()
        assert await helper.call(b"abc") == b"cba"
        await helper.stop()
        assert not is_alive(helper.pid)

    event_loop.run(asyncio.wait_for(scenario(), 60))


def wait_for(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_helper_answers_many_requests_of_any_size() -> None:
    async def scenario() -> None:
        helper = await start()
        sent = [os.urandom(size) for size in (0, 1, 70_000, 3 << 20)]
        assert await asyncio.gather(*map(helper.call, sent)) == [each[::-1] for each in sent]
        await helper.stop()

    run(scenario())


def test_helper_runs_with_the_lowest_priority_unless_it_is_hurried() -> None:
    async def scenario() -> None:
        for is_low, policy in ((True, os.SCHED_IDLE), (False, os.SCHED_OTHER)):
            helper = await start(is_low=is_low)
            assert int(await helper.call(b"policy")) == policy
            await helper.stop()

    run(scenario())


def test_helper_runs_where_the_kernel_refuses_the_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)

    async def scenario() -> None:
        helper = await start()
        assert await helper.call(b"ab") == b"ba"
        await helper.stop()

    run(scenario())


def test_requests_fail_when_the_helper_ends() -> None:
    async def scenario() -> None:
        helper = await start()
        waiting = asyncio.ensure_future(helper.call(b"sleep"))
        await asyncio.sleep(0)
        with pytest.raises(HelperEnded):
            await helper.call(b"exit")
        with pytest.raises(HelperEnded):
            await waiting
        assert not helper.is_running
        with pytest.raises(HelperEnded):
            await helper.call(b"x")
        await helper.stop()

    run(scenario())


def test_request_that_is_given_up_ends_the_helper() -> None:
    """Otherwise it could store an object after its segment was deleted."""

    async def scenario() -> None:
        helper = await start()
        await helper.call(b"x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await helper.call(b"sleep")
        assert not helper.is_running
        await helper.stop()
        assert not is_alive(helper.pid)

    run(scenario())


def test_helper_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = (
        "import asyncio\n"
        "from ottla.runtime.helper_process import HelperProcess\n"
        "async def main():\n"
        "    helper = await HelperProcess.start('reversing_helper', is_low=True)\n"
        "    await helper.call(b'x')\n"
        "    print(helper.pid, flush=True)\n"
        "    await helper.call(b'sleep')\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert is_alive(pid)
        os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid))


def test_helper_that_cannot_be_started_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def scenario() -> None:
        with pytest.raises(OSError, match="cannot start the helper process reversing_helper"):
            await start()

    run(scenario())
