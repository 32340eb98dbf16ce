"""Messages to systemd."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from ottla.runtime.service_manager import ALIVE, READY, ServiceManager


@pytest.fixture
def receiver(tmp_path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(str(tmp_path / "notify"))
    found.settimeout(SECONDS_MAX)
    return found


def test_messages_arrive_at_the_socket(receiver: socket.socket) -> None:
    with receiver:
        manager = ServiceManager({"NOTIFY_SOCKET": receiver.getsockname()})
        manager.notify(READY, "STATUS=node 1")
        assert receiver.recv(100) == b"READY=1\nSTATUS=node 1"


def test_abstract_names_begin_with_a_zero_byte() -> None:
    name = f"ottla-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(SECONDS_MAX)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).notify(READY)
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_missing_socket_is_no_error(environment: dict[str, str]) -> None:
    ServiceManager(environment).notify(READY)


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_is_fed_twice_per_interval(more: dict[str, str], seconds: float | None) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/s", **more}).alive_interval_s == seconds


def test_running_loop_says_that_it_is_alive(receiver: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": receiver.getsockname(), "WATCHDOG_USEC": "2000"}

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(ServiceManager(environment).keep_alive())
            for _ in range(3):
                await asyncio.to_thread(receiver.recv, 100)
            keeping.cancel()

    with receiver:
        asyncio.run(main())
    assert ALIVE == "WATCHDOG=1"
