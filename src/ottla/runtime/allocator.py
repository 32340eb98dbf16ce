"""Give free memory back to the operating system, where the C library keeps it."""

import logging
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


def release_free_memory() -> None:
    """Call glibc's ``malloc_trim``; do nothing where the C library has none (musl, macOS).

    glibc keeps what was freed in its heaps. Buffers of a few MiB end up there, too, because glibc
    raises the size from which it maps memory separately as soon as one such block is freed.
    May take milliseconds; safe in any thread, and does not hold the GIL.
    """
    trim = _malloc_trim()
    if trim is not None:
        has_released = trim(0)
        log.debug("gave free memory back released=%s", bool(has_released))


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
