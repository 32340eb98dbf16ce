"""Return free memory, which the C library keeps, to the operating system."""

import logging
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


def release_free_memory() -> None:
    """Call glibc's ``malloc_trim``; do nothing if the C library has none (musl, macOS).

    glibc keeps freed memory in its heaps. Buffers of a few MiB end up there, too, because glibc
    raises the size from which it maps memory separately as soon as one such block is freed.
    May take milliseconds; safe in any thread; does not hold the GIL.
    """
    trim = _malloc_trim()
    if trim is not None:
        has_released = trim(0)
        log.debug("returned free memory to the operating system released=%s", bool(has_released))


@cache
def _malloc_trim() -> "Callable[[int], int] | None":
    import ctypes  # not needed to start a node

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    return trim
