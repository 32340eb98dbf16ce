"""The supervisor: ordered start, reverse stop, the first error and nothing left running."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ottla.runtime.supervisor import (
    Service,
    ServiceStopped,
    ServiceStuck,
    is_failing,
    supervise,
)
from simulation.loop import run_simulated


@dataclass
class Scripted:
    """A scripted service that records when it starts and stops."""

    name: str
    journal: list[str]
    error: BaseException | None = None
    after_s: float = 1e9
    ready_after_s: float = 0
    cleanup_s: float = 0
    cleanup_error: Exception | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        self.journal.append(f"+{self.name}")
        try:
            if self.ready_after_s:
                await asyncio.sleep(self.ready_after_s)
            ready()
            self.journal.append(f"{self.name} ready")
            await asyncio.sleep(self.after_s)
            if self.error:
                raise self.error
        finally:
            if self.cleanup_s:
                await asyncio.sleep(self.cleanup_s)
            self.journal.append(f"-{self.name}")
            if self.cleanup_error:
                raise self.cleanup_error


def run(services: list[Service], *, stop_after_s: float | None = None, grace_s: float = 30) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, stop.set)
        try:
            await supervise(services, stop, grace_s=grace_s)
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            names = {task.get_name() for task in left}
            assert names <= {"stop", "stuck"}, "something was left running"

    run_simulated(scenario())


def test_services_start_in_order_each_after_the_one_before_is_ready() -> None:
    journal: list[str] = []
    run(
        [Scripted("log", journal, ready_after_s=5), Scripted("net", journal)],
        stop_after_s=10,
    )
    assert journal == ["+log", "log ready", "+net", "net ready", "-net", "-log"]


def test_services_stop_in_reverse_order_one_after_the_other() -> None:
    journal: list[str] = []
    services = [Scripted(name, journal, cleanup_s=3) for name in "abc"]
    run(list(services), stop_after_s=1)
    assert journal[-3:] == ["-c", "-b", "-a"]


def test_failing_service_stops_all_and_its_error_is_raised() -> None:
    journal: list[str] = []
    error = OSError("disk")
    with pytest.raises(OSError, match="disk") as caught:
        run([Scripted("log", journal), Scripted("net", journal, error=error, after_s=2)])
    assert caught.value is error
    assert journal[-2:] == ["-net", "-log"]


def test_cancelled_service_can_tell_a_failure_from_a_stop() -> None:
    replies: list[bool] = []

    @dataclass
    class Asking:
        name: str = "net"

        async def run(self, ready: Callable[[], None]) -> None:
            ready()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError as cancelled:
                replies.append(is_failing(cancelled))
                raise

    run([Asking()], stop_after_s=1)
    with pytest.raises(OSError, match="disk"):
        run([Scripted("log", [], error=OSError("disk"), after_s=2), Asking()])
    assert replies == [False, True]


def test_service_that_returns_raises_service_stopped_with_its_name() -> None:
    with pytest.raises(ServiceStopped, match="net"):
        run([Scripted("log", []), Scripted("net", [], after_s=2)])


def test_service_that_cancels_itself_raises_service_stopped() -> None:
    with pytest.raises(ServiceStopped, match="net"):
        run([Scripted("net", [], error=asyncio.CancelledError(), after_s=2)])


def test_failure_during_start_stops_started_services_and_starts_no_more() -> None:
    journal: list[str] = []

    class Broken:
        name = "broken"

        async def run(self, ready: Callable[[], None]) -> None:
            raise ValueError("cannot start")

    with pytest.raises(ValueError, match="cannot start"):
        run([Scripted("a", journal), Broken(), Scripted("c", journal)])
    assert journal == ["+a", "a ready", "-a"]


def test_failure_of_a_running_service_ends_the_start_of_another() -> None:
    journal: list[str] = []
    services = [
        Scripted("a", journal, error=OSError("a"), after_s=2),
        Scripted("b", journal, ready_after_s=100),
        Scripted("c", journal),
    ]
    with pytest.raises(OSError, match="a"):
        run(list(services))
    assert journal == ["+a", "a ready", "+b", "-a", "-b"]


def test_stop_during_start_stops_the_started_services() -> None:
    journal: list[str] = []
    services = [
        Scripted("a", journal),
        Scripted("b", journal, ready_after_s=100),
        Scripted("c", journal),
    ]
    run(list(services), stop_after_s=1)
    assert journal == ["+a", "a ready", "+b", "-b", "-a"]


def test_stop_before_start_starts_nothing() -> None:
    journal: list[str] = []

    async def scenario() -> None:
        stop = asyncio.Event()
        stop.set()
        await supervise([Scripted("a", journal)], stop)

    run_simulated(scenario())
    assert journal == []


def test_service_stuck_in_its_cleanup_is_named_and_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal: list[str] = []
    services = [Scripted("a", journal), Scripted("stuck", journal, cleanup_s=1e6)]
    with pytest.raises(ServiceStuck, match="stuck"):
        run(list(services), stop_after_s=1, grace_s=7)
    assert "stuck did not stop within 7" in caplog.text
    assert "-a" in journal


def test_stuck_service_does_not_hide_the_first_error() -> None:
    services = [
        Scripted("stuck", [], cleanup_s=1e6),
        Scripted("b", [], error=OSError("first"), after_s=1),
    ]
    with pytest.raises(OSError, match="first"):
        run(list(services), grace_s=1)


def test_later_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    services = [
        Scripted("a", [], cleanup_error=ValueError("second")),
        Scripted("b", [], error=OSError("first"), after_s=1),
    ]
    with caplog.at_level(logging.ERROR), pytest.raises(OSError, match="first"):
        run(list(services))
    assert "a failed, too" in caplog.text
    assert "second" in caplog.text


def test_first_error_while_stopping_is_raised() -> None:
    services = [Scripted("a", []), Scripted("b", [], cleanup_error=ValueError("flush"))]
    with pytest.raises(ValueError, match="flush"):
        run(list(services), stop_after_s=1)


def test_cancelled_supervisor_stops_all_services_in_order_and_raises_cancelled() -> None:
    journal: list[str] = []

    async def scenario() -> None:
        services = [Scripted("a", journal, cleanup_s=5), Scripted("b", journal, cleanup_s=5)]
        task = asyncio.create_task(supervise(list(services), asyncio.Event()))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(2)
        task.cancel()  # impatience does not break the order
        with pytest.raises(asyncio.CancelledError):
            await task

    run_simulated(scenario())
    assert journal[-2:] == ["-b", "-a"]
