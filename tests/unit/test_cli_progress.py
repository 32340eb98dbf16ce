"""Progress of long commands: what is shown on a terminal, in a log, and at the end."""

import asyncio

import pytest

from ottla.cli.commands import move_progress
from ottla.cli.commands.move_progress import copied_bytes
from ottla.cli.commands.reassign_throttle import Move
from ottla.cli.terminal.progress import LiveLine, WorkProgress, duration
from ottla.operations.reset_plan import PlannedOffset, reset_summary
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.types import TopicPartition

GIB = 1 << 30


class SteppedClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 5_000

    def monotonic(self) -> int:
        return self.ms

    def now(self) -> int:
        return self.ms


def test_terminal_shows_one_line_that_is_overwritten_and_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    clock = SteppedClock()
    work = WorkProgress(clock, "moved", "partitions", 12, is_terminal=True)
    work.show()
    assert capsys.readouterr().err == "", "it is too early"
    clock.ms += 2_000
    work.done, work.bytes, work.bytes_total = 3, GIB, 4 * GIB
    work.show()
    assert capsys.readouterr().err == "\rmoved 3 of 12 partitions, 1.0 GiB of 4.\x1b[K"
    work.done, work.bytes = 12, 4 * GIB
    assert work.end() == "moved 12 partitions, 4.0 GiB, in 2 s"
    assert capsys.readouterr().err == "\r\x1b[K"


def test_log_of_a_job_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SteppedClock()
    work = WorkProgress(clock, "verified", "segments", 100, is_terminal=False)
    for _ in range(250):  # 25 seconds
        clock.ms += 100
        work.done += 1
        work.show()
    assert capsys.readouterr().err == "verified 100 of 100 segments\nverified 200 of 100 segments\n"
    work.end()
    assert capsys.readouterr().err == ""


def test_rate_and_time_left_are_shown_once_they_are_known() -> None:
    clock = SteppedClock()
    work = WorkProgress(clock, "moved", "partitions", 2)
    assert work.text() == "moved 0 of 2 partitions"
    work.bytes, work.bytes_total = GIB, 4 * GIB
    clock.ms += 100
    assert work.text() == "moved 0 of 2 partitions, 1.0 GiB of 4.0 GiB (25%)"
    clock.ms += 9_900
    assert work.text() == (
        "moved 0 of 2 partitions, 1.0 GiB of 4.0 GiB (25%), 102.4 MiB/s, 30 s left"
    )


def test_line_is_due_once_per_interval() -> None:
    clock = SteppedClock()
    line = LiveLine(clock, is_terminal=True)
    clock.ms += 200
    assert (line.is_due(), line.is_due()) == (True, False)


def test_copied_bytes_count_only_replicas_that_are_added() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    moves = {one: Move([1, 2], [2, 3]), two: Move([1], [3, 2])}
    sizes = {1: {one: 100, two: 50}, 2: {one: 100, two: 20}, 3: {one: 40}}
    assert copied_bytes(moves, sizes, {one, two}) == (40 + 20, 100 + 100)
    assert copied_bytes(moves, sizes, {two}) == (100 + 20, 200), "a done one is whole"
    assert copied_bytes(moves, {}, {one}) == (0, 0), "no broker told"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (0.44, "0.4 s"), (45, "45 s"), (200, "3 min")]
)
def test_durations_have_a_suitable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_reset_summary_says_how_far_offsets_move() -> None:
    places = [TopicPartition("t", at) for at in range(4)]
    planned = [
        PlannedOffset(places[0], 1000, 10),
        PlannedOffset(places[1], 5, 7),
        PlannedOffset(places[2], 3, 3),
        PlannedOffset(places[3], None, 9),
    ]
    assert reset_summary("g", planned, is_done=True) == (
        "g: 4 partitions set: 1 back by 990 offsets, 1 forward by 2 offsets, 1 unchanged, "
        "1 without an offset before"
    )
    assert "nothing was changed" in reset_summary("g", planned[:1], is_done=False)


def test_waiting_for_a_reassignment_shows_partitions_and_bytes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, one, two = SteppedClock(), TopicPartition("t", 0), TopicPartition("t", 1)
    left = [{one, two}, {two}, set()]
    copied = [0, 512]

    async def list_reassignments(cluster: object) -> set[TopicPartition]:
        clock.ms += 250
        return left.pop(0)

    async def describe_log_dirs(
        cluster: object, broker: int, partitions: object
    ) -> list[DescribeLogDirsResult]:
        size = copied.pop(0) if broker == 2 and copied else 1024
        rows = [DescribeLogDirsPartition(at, size) for at in (0, 1)]
        return [DescribeLogDirsResult(topics=[DescribeLogDirsTopic("t", rows)])]

    async def sleep(seconds: float) -> None:
        pass

    monkeypatch.setattr(move_progress, "list_reassignments", list_reassignments)
    monkeypatch.setattr(move_progress, "describe_log_dirs", describe_log_dirs)
    monkeypatch.setattr(move_progress.asyncio, "sleep", sleep)
    monkeypatch.setattr(move_progress, "_POLLS_PER_SIZE", 1)
    work = WorkProgress(clock, "moved", "partitions", 2, is_terminal=True)
    moves = {name: Move([1], [2]) for name in (one, two)}
    asyncio.run(move_progress.wait_reassigned(None, moves, work))  # type: ignore[arg-type]
    shown = [line.removesuffix("\x1b[K") for line in capsys.readouterr().err.split("\r")[1:]]
    assert shown == [
        "moved 0 of 2 partitions, 0 B of 2.0 KiB (0%)",
        "moved 1 of 2 partitions, 1.5 KiB of 2.0 KiB (75%)",
    ]
    assert work.end() == "moved 2 partitions, 2.0 KiB, in 0.8 s"
