"""What is done where the operating system lacks a call; `make test-portable` uses all of it."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from ottla.runtime import system_calls


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = system_calls.open_file(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def test_positional_calls_by_seek_do_as_those_of_posix(descriptor: int) -> None:
    assert system_calls._pwrite_by_seek(descriptor, b"0123456789", 2) == 10
    assert system_calls._pwritev_by_seek(descriptor, [b"ab", memoryview(b"cd")], 4) == 4
    assert system_calls._pread_by_seek(descriptor, 20, 0) == b"\0\x0001abcd6789"
    assert system_calls._pread_by_seek(descriptor, 20, 100) == b""
    first, second = bytearray(3), bytearray(20)
    assert system_calls._preadv_by_seek(descriptor, [first, second], 2) == 10
    assert (bytes(first), bytes(second[:8])) == (b"01a", b"bcd6789\0")


def test_positional_calls_by_seek_of_several_threads_do_not_mix(descriptor: int) -> None:
    block, rounds = 4096, 200

    def work(number: int) -> None:
        data = bytes([number]) * block
        for _ in range(rounds):
            system_calls._pwrite_by_seek(descriptor, data, number * block)
            if system_calls._pread_by_seek(descriptor, block, number * block) != data:
                failures.append(number)

    failures: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert failures == []


def test_allocation_that_is_not_possible_is_reported() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)) as raised:
        system_calls._refuse_allocation(0, 0, 1)
    assert raised.value.errno == errno.ENOSYS


def test_copy_is_readable_by_its_path_and_removed() -> None:
    with system_calls.readable_copy(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
    with system_calls._temporary_copy(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        assert Path(path).stat().st_mode & 0o077 == 0
    assert not Path(path).exists()


def test_lock_excludes_a_second_descriptor_until_it_is_closed(tmp_path: Path) -> None:
    first, second = (
        system_calls.open_file(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2)
    )
    system_calls.lock_exclusively(first)
    with pytest.raises(BlockingIOError):
        system_calls.lock_exclusively(second)
    os.close(first)
    system_calls.lock_exclusively(second)
    os.close(second)


def test_space_of_a_file_system_is_known(tmp_path: Path) -> None:
    space = system_calls.file_system_space(str(tmp_path))
    assert 0 < space.free <= space.total


def test_missing_function_of_the_c_library_is_none() -> None:
    assert system_calls.c_function("no_such_function_anywhere") is None


def test_duplicate_of_a_socket_outlives_it() -> None:
    ours, theirs = socket.socketpair()
    copy = system_calls.duplicate_socket(ours)
    ours.close()
    copy.sendall(b"x")
    assert theirs.recv(1) == b"x"
    copy.close()
    theirs.close()


def test_keepalive_is_set_as_far_as_possible() -> None:
    with socket.socket() as target:
        system_calls.set_keepalive(
            target, idle_s=60, interval_s=10, count=3, user_timeout_ms=30_000
        )
        assert target.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("watch", [system_calls.on_child_end, None], ids=["chosen", "polling"])
def test_end_of_a_child_is_noticed(watch: Callable[..., None] | None) -> None:
    async def scenario() -> None:
        ended = asyncio.Event()
        if watch is None:
            system_calls._poll_child(asyncio.get_running_loop(), process.pid, ended.set)
        else:
            watch(process.pid, ended.set)
        async with asyncio.timeout(SECONDS_MAX):
            await ended.wait()

    if not system_calls.IS_POSIX:
        pytest.skip("children are watched where they inherit sockets")
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    asyncio.run(scenario())
    process.returncode = 0  # it was collected


def test_signal_calls_a_function_of_the_loop() -> None:
    async def scenario() -> None:
        seen = asyncio.Event()
        before = signal.getsignal(signal.SIGTERM)
        system_calls.on_signal(signal.SIGTERM, seen.set)
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS_MAX):
            await seen.wait()
        signal.signal(signal.SIGTERM, before)

    asyncio.run(scenario())


def test_process_that_ended_does_not_exist() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    assert system_calls.exists(os.getpid())
    process.wait()
    assert system_calls.exists(process.pid) is not system_calls.IS_POSIX


def test_datagram_to_a_missing_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No such file|not supported"):
        system_calls.send_datagram(str(tmp_path / "missing"), b"READY=1")
