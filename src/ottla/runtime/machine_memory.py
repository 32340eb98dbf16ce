"""The memory that this machine, or this container, has."""

import os
from typing import Final

# cgroup version 2; "max" means no limit.
_CGROUP_LIMIT: Final = "/sys/fs/cgroup/memory.max"


def machine_memory_bytes() -> int:
    """Return the physical memory of the machine, or the limit of the container if it is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(_CGROUP_LIMIT, encoding="ascii") as limit:  # pathlib would slow down every start
            return min(physical, int(limit.read()))
    except (OSError, ValueError):
        return physical
