"""Return free memory, which the C library keeps, to the operating system."""

import logging

from ottla.runtime import system_calls

log = logging.getLogger(__name__)


def release_free_memory() -> None:
    """Call glibc's ``malloc_trim``; do nothing if the C library has none (musl, macOS).

    glibc keeps freed memory in its heaps. Buffers of a few MiB end up there, too, because glibc
    raises the size from which it maps memory separately as soon as one such block is freed.
    May take milliseconds; safe in any thread; does not hold the GIL.
    """
    trim = system_calls.c_function("malloc_trim")
    if trim is not None:
        import ctypes  # not needed to start a node

        has_released = trim(ctypes.c_size_t(0))
        log.debug("returned free memory to the operating system released=%s", bool(has_released))
