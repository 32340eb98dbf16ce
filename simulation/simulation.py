"""A simulation of hosts on one loop, one network and one seed.

    simulation = Simulation(seed)
    node = simulation.host("node")
    async def director(): node.start(main); ...; node.crash(); node.restart()
    simulation.run(director)

A host runs `main(ports)`. ``crash`` cuts its power: its tasks never run again, its disk keeps what
was synced, its peers are not notified. ``kill`` ends only the process: the page cache survives and
peers receive resets. Both may also be planned, at the n-th disk operation or before the n-th
callback.
"""

import asyncio
import contextvars
import gc
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ottla.runtime.ports import Clock, Committer, Disk, Network, ObjectStore, Random
from simulation.clock import SimClock
from simulation.committer import SimCommitter
from simulation.disk import SimCrash, SimDisk
from simulation.journal import Journal
from simulation.loop import PROCESS, Process, make_loop
from simulation.network import SimNetwork
from simulation.objects import SimBucket, SimObjects
from simulation.platter import Keep
from simulation.random import SimRandom


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that a host's program receives."""

    clock: Clock
    random: Random
    disk: Disk
    network: Network
    objects: ObjectStore
    committer: Callable[[str], Committer]


# Cleanup within cleanup within cleanup; no code here nests deeper.
CLOSES_MAX = 8

Main = Callable[[Ports], Coroutine[Any, Any, None]]


class Host:
    """One machine: its disk, clock and random stream outlive its processes."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.name = name
        self.clock = SimClock(simulation.loop)
        self.disk = SimDisk(
            simulation.random.stream(name).below(1 << 48),
            clock=self.clock,
            journal=self._note_disk,
            on_crash=self._crash_point,
        )
        self.sync_delay_s: Callable[[], float] = lambda: 0.002
        self._simulation = simulation
        self._random = simulation.random.stream(f"{name}/program")
        self._main: Main | None = None
        self._process: Process | None = None
        self._context = contextvars.Context()
        self._down = asyncio.Event()
        self._down.set()

    @property
    def is_up(self) -> bool:
        """Say whether a program runs on it."""
        return self._process is not None

    def start(self, main: Main, *, crash_at_step: int = 0) -> None:
        """Switch on and run ``main``. An error it raises fails the whole simulation."""
        if self._process is not None:
            raise RuntimeError(f"{self.name} is up already")
        self._main = main
        self._process = process = Process(self.name, self._crash_point)
        process.crash_at_step = crash_at_step
        self._down.clear()
        self.disk.restart()
        self._simulation.network.power_on(self.name)
        self._simulation.journal.note(self.name, "start")
        self._context = context = contextvars.Context()
        context.run(PROCESS.set, process)
        task = self._simulation.loop.create_task(
            main(self.ports()), name=self.name, context=context
        )
        task.add_done_callback(
            lambda ended: self._ended(process, ended), context=contextvars.Context()
        )

    def restart(self, *, crash_at_step: int = 0) -> None:
        """Run the same program again."""
        if self._main is None:
            raise RuntimeError(f"{self.name} never ran")
        self.start(self._main, crash_at_step=crash_at_step)

    def spare(self) -> None:
        """Cancel a planned crash, at a disk operation or at a step."""
        self.disk.crash_at(0)
        if self._process is not None:
            self._process.crash_at_step = 0

    def call_inside(self, act: Callable[[], object]) -> None:
        """Run ``act`` next in the context of the host's process, as a signal would; no-op when
        down.

        If a director called it itself, the timers and tasks it starts would belong to no process,
        and so outlive it.
        """
        if self._process is not None:
            self._simulation.loop.call_soon(act, context=self._context.copy())

    def crash(self, keep: Keep = Keep.SEEDED) -> None:
        """Lose power now. A host that is down already loses its page cache."""
        self._simulation.journal.note(self.name, "power loss")
        process = self._end_process()
        if process is not None:
            self._simulation.network.lose_power(self.name, process)
        self.disk.crash(keep)

    def kill(self) -> None:
        """End the process now; the machine stays up."""
        self._simulation.journal.note(self.name, "kill")
        process = self._end_process()
        if process is not None:
            self._simulation.network.kill(process)
        self.disk.kill()

    async def wait_down(self) -> None:
        """Return once no program runs on it."""
        await self._down.wait()

    def ports(self) -> Ports:
        """Return the ports of its program."""
        network = self._simulation.network.port_of(self.name)
        objects = SimObjects(self._simulation.bucket, self.disk)
        return Ports(self.clock, self._random, self.disk, network, objects, self._committer)

    def _committer(self, directory: str) -> Committer:
        return SimCommitter(directory, delay_s=lambda: self.sync_delay_s())

    def _note_disk(self, kind: str, path: str, detail: str) -> None:
        """Journal a disk operation; fail the simulation if another process made it.

        Tests and directors, which have no process, may use the disk of a host that is down.
        """
        self._simulation.journal.note(self.name, kind, f"{path} {detail}")
        if PROCESS.get() is not self._process:
            self._simulation.fail(RuntimeError(f"{self.name}: {kind} {path} by another process"))

    def _end_process(self) -> Process | None:
        process, self._process = self._process, None
        if process is not None:
            process.is_over = True
            self._simulation.freeze()
            self._down.set()
        return process

    def _crash_point(self) -> None:
        """Handle a planned crash: nothing of this process runs from here on.

        Power is lost with the next callback, outside the stack of the crashing code.
        """
        if self._process is not None and not self._process.is_over:
            self._process.is_over = True
            self._simulation.freeze()
            self._simulation.loop.call_soon(self.crash, context=contextvars.Context())

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._process is not process or process.is_over:
            return  # crashed: what it raised meanwhile does not matter
        self.kill()
        if error is not None:
            self._simulation.fail(error)


class Simulation:
    """Everything that runs on one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # The name of a stream is part of its seed: another name would give other runs.
        self.random = SimRandom(seed, "world")
        self.loop = make_loop(seed)
        self.loop.on_error = self.fail
        self.journal = Journal(self.loop.time)
        self.network = SimNetwork(self.loop, seed, journal=self.journal)
        self.bucket = SimBucket(
            self.loop, seed, note=lambda kind, detail: self.journal.note("bucket", kind, detail)
        )
        self._hosts: dict[str, Host] = {}
        self._frozen: dict[asyncio.Task[Any], None] = {}
        self._outcome: asyncio.Future[None] = self.loop.create_future()

    def host(self, name: str) -> Host:
        """Return the host called ``name``, created at the first call."""
        if name not in self._hosts:
            self._hosts[name] = Host(self, name)
        return self._hosts[name]

    def run(self, director: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``director`` to its end, then switch everything off. Once per simulation.

        Cyclic garbage is not collected before the end: collecting it runs cleanup at a moment that
        no seed decides, and took a fifth of the time.

        Raises:
            What the director raised, or the first error of any host's program or callback.
        """
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            task = self.loop.create_task(director(), name="director")
            task.add_done_callback(self._director_ended)
            self.loop.run_until_complete(self._outcome)
        finally:
            self._switch_off()
            if is_collecting:
                gc.enable()

    def fail(self, error: BaseException) -> None:
        """End the run with ``error``, unless it has ended."""
        if not self._outcome.done():
            self.journal.note("*", "failure", repr(error))
            self._outcome.set_exception(error)

    def freeze(self) -> None:
        """Keep a reference to every task: those of an ended process must not be collected.

        Collecting one would run its cleanup, at a moment that no seed decides.
        """
        self._frozen.update(dict.fromkeys(asyncio.all_tasks(self.loop)))

    def _director_ended(self, task: asyncio.Task[None]) -> None:
        error = task.exception() if not task.cancelled() else asyncio.CancelledError()
        if error is not None:
            self.fail(error)
        elif not self._outcome.done():
            self._outcome.set_result(None)

    def _switch_off(self) -> None:
        """Cut the power of every host, then close the remaining coroutines without effect."""
        self.freeze()
        for host in self._hosts.values():
            host.crash(Keep.NOTHING)
        self.loop.close()
        for task in self._frozen:
            if not task.done():
                _unwind(task)
        self._frozen.clear()


def _unwind(task: asyncio.Task[Any]) -> None:
    """Close a task's coroutine; errors of its cleanup without ports do not matter.

    Cleanup that awaits (a task group waits for its children) is interrupted in turn.
    """
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine)
    for _ in range(CLOSES_MAX):
        try:
            with warnings.catch_warnings():
                # A task that never ran leaves the coroutine it was to await never awaited.
                warnings.simplefilter("ignore", RuntimeWarning)
                coroutine.close()
        except (Exception, BaseExceptionGroup, SimCrash):  # noqa: BLE001, S110
            pass
        if getattr(coroutine, "cr_frame", None) is None:
            return
