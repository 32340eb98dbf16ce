"""What the rest of the machine does while a broker is measured.

The load average counts the broker and its client as well. The CPU time of all other processes does
not: it is that of the machine without that of this process and its children.
"""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# The columns of /proc/stat in which a core works for a process: user, nice, system, steal.
# Interrupts are left out: most of them are those of the measured connections.
WORKING = (0, 1, 2, 7)


def machine_ticks(stat: str) -> int:
    """Return the ticks that all cores have worked, from the text of /proc/stat."""
    columns = [int(each) for each in stat.split("\n", 1)[0].split()[1:]]
    return sum(columns[at] for at in WORKING if at < len(columns))


def process_ticks(stat: str, parent: int) -> int:
    """Return the ticks of a process and its reaped children from its stat; 0 for other parents."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) if int(fields[1]) == parent else 0


def others_seconds() -> float:
    """Return the CPU seconds of all processes but this one and its children, since the boot.

    A difference of two calls is meaningful, if no child of a child has outlived its parent.
    """
    machine = machine_ticks(Path("/proc/stat").read_text()) / TICKS
    own = sum(os.times()[:4])
    live = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                live += process_ticks((entry / "stat").read_text(), os.getpid())
            except OSError:
                continue  # it has ended meanwhile
    return machine - own - live / TICKS
