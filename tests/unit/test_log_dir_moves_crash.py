"""A crash at every disk operation of a move: nothing synced is lost, and the move can be finished.

The work is run once to count its operations, then once more for each of them: the process is
killed there (the page cache stays) or the power fails there (what was not synced is kept, lost or
torn). Whatever is found after that must be one log with everything that was synced.
"""

import asyncio
from collections.abc import Callable

import pytest
from moves_fixtures import NOW, ORDERS, Mover, led
from partition_fixtures import batch_of

from ottla.replication.maintenance import log_dir_moves
from ottla.storage.log.log_maintenance import delete_old_segments
from simulation.disk import SimCrash
from simulation.platter import Keep

pytestmark = pytest.mark.slow

SMALL = {"internal.segment.bytes": "400", "file.delete.delay.ms": "0"}


class Story:
    """A move and what its user may rely on."""

    def __init__(self, configs: dict[str, str] | None = None) -> None:
        self.configs = {**SMALL, **(configs or {})}
        self.mover = Mover().start(led(configs=self.configs))
        self.written: list[bytes] = []
        self.synced = 0
        self.append(6)
        self.flush()

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            value = b"value-%04d" % len(self.written)
            self.written.append(value)
            self.mover.partition.append(batch_of(value), now=NOW)

    def flush(self) -> None:
        self.mover.partition.log.flush()
        self.synced = len(self.written)

    def step(self) -> None:
        if self.mover.moves.moves:
            self.mover.step()


def plain(story: Story) -> None:
    story.mover.move()
    story.mover.carry_out()
    story.append()


def under_load(story: Story) -> None:
    story.mover.move()
    for _ in range(2):
        story.step()
        story.append()
        story.flush()
    story.mover.carry_out()
    story.append(2)
    story.flush()
    story.append()


def there_and_back(story: Story) -> None:
    for _ in range(2):
        story.mover.move()
        story.mover.carry_out()
        story.append(2)
        story.flush()
        sum(story.mover.broker.replicas.purge())


def given_up(story: Story) -> None:
    story.mover.move()
    story.step()
    story.step()
    story.mover.moves.alter(ORDERS, story.mover.here.path)
    sum(story.mover.broker.replicas.purge())
    story.append()


def trimmed(story: Story) -> None:
    story.mover.move()
    story.step()
    story.step()
    delete_old_segments(story.mover.partition.log, NOW)
    story.mover.carry_out()
    story.append()


STORIES: list[tuple[Callable[[Story], None], dict[str, str]]] = [
    (plain, {}),
    (under_load, {}),
    (there_and_back, {}),
    (given_up, {}),
    (trimmed, {"retention.bytes": "300"}),
]


def check(story: Story) -> None:
    """Restart twice: once to find a log with what was synced, once more after the move."""
    again = story.mover.again(led(1, configs=story.configs))
    found = again.values()
    start = again.partition.log.log_start_offset
    assert found == story.written[start : start + len(found)]
    assert start + len(found) >= story.synced
    assert "future" not in str(again.names(again.here.path))
    again.append(b"after")
    again.carry_out()
    assert again.moves.moves == {}
    assert again.values() == [*found, b"after"]
    again.broker.stop()
    third = again.again(led(2, configs=story.configs))
    assert third.moves.moves == {} and third.values() == [*found, b"after"]
    for path in ("/d1", "/d2"):
        assert "future" not in str(third.names(path))


def operations_of(work: Callable[[Story], None], configs: dict[str, str]) -> int:
    story = Story(configs)
    before = story.mover.disk.operations
    work(story)
    return story.mover.disk.operations - before


CASES = [(work, configs, ending) for work, configs in STORIES for ending in ("nothing", "seeded")]
CASES += [(plain, {}, "kill"), (under_load, {}, "kill"), (given_up, {}, "kill")]
CASES.remove((there_and_back, {}, "nothing"))


@pytest.mark.parametrize(
    ("work", "configs", "ending"), CASES, ids=[f"{work.__name__}-{end}" for work, _, end in CASES]
)
def test_crash_at_every_operation_of_a_move(
    work: Callable[[Story], None],
    configs: dict[str, str],
    ending: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_dir_moves, "CHUNK_BYTES", 200)
    count = operations_of(work, configs)
    assert count > 20
    for step in range(1, count + 1):
        story = Story(configs)
        disk = story.mover.disk
        disk.crash_at(step)
        with pytest.raises(SimCrash):
            work(story)
        if ending == "kill":
            disk.kill()
        else:
            disk.crash(Keep.NOTHING if ending == "nothing" else Keep.SEEDED)
        disk.restart()
        check(story)


def test_accepted_move_survives_a_power_failure() -> None:
    story = Story()
    story.mover.move()
    story.mover.disk.crash(Keep.NOTHING)
    story.mover.disk.restart()
    again = story.mover.again(led(1, configs=story.configs))
    assert list(again.moves.moves) == [ORDERS]


def test_crash_recovery_uses_a_new_event_loop() -> None:
    """Each step runs in an event loop of its own: a move is not bound to one."""
    story = Story()
    story.mover.move()
    (move,) = story.mover.moves.moves.values()
    asyncio.run(move.go_on())
    asyncio.run(move.go_on())
    assert move.future.log_end_offset > 0
