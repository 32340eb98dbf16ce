"""The memory that this machine, or this container, has."""

from typing import Final

from ottla.runtime import system_calls

# cgroup version 2; "max" means no limit.
_CGROUP_LIMIT: Final = "/sys/fs/cgroup/memory.max"


def machine_memory_bytes() -> int:
    """Return the physical memory of the machine, or the limit of the container if it is lower."""
    physical = system_calls.physical_memory_bytes()
    try:
        with open(_CGROUP_LIMIT, encoding="ascii") as limit:  # pathlib would slow down every start
            return min(physical, int(limit.read()))
    except (OSError, ValueError):
        return physical
