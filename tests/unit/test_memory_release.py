"""When free memory is given back to the operating system."""

from itertools import pairwise

from ottla.protocol.types import Millis
from ottla.runtime.allocator import release_free_memory
from ottla.server.memory_release import (
    CONNECTIONS,
    LARGE_BYTES,
    PAUSE_MS,
    REQUEST_BYTES,
    MemoryRelease,
)

NOW = Millis(5)


def closed(release: MemoryRelease, count: int) -> None:
    for _ in range(count):
        release.connection_closed()


def test_memory_is_released_one_pause_after_many_connections_closed() -> None:
    release = MemoryRelease()
    closed(release, CONNECTIONS - 1)
    assert not release.is_due(NOW)
    assert not release.is_due(Millis(NOW + 10 * PAUSE_MS)), "too few to be worth it"
    closed(release, 1)
    assert not release.is_due(NOW)
    assert not release.is_due(Millis(NOW + PAUSE_MS - 1))
    assert release.is_due(Millis(NOW + PAUSE_MS))


def test_memory_is_released_after_large_requests_and_not_after_small_ones() -> None:
    release = MemoryRelease()
    for _ in range(REQUEST_BYTES // LARGE_BYTES + 1):
        release.request_freed(LARGE_BYTES)
    assert not release.is_due(NOW) and release.due_at is None
    release.request_freed(REQUEST_BYTES)
    assert not release.is_due(NOW)
    assert release.is_due(Millis(NOW + PAUSE_MS))


def test_memory_is_released_at_most_once_in_a_pause() -> None:
    release, times = MemoryRelease(), []
    for second in range(60):
        closed(release, CONNECTIONS)
        if release.is_due(Millis(second * 1000)):
            times.append(second)
    assert len(times) >= 5
    assert all(later - earlier >= PAUSE_MS / 1000 for earlier, later in pairwise(times))


def test_releasing_memory_works_on_this_platform_or_does_nothing() -> None:
    release_free_memory()
    release_free_memory()
