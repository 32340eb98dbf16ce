"""Settings of Python's cyclic garbage collector in the process of a node.

    hold()      while the node's code is loaded: none of it is garbage, and scanning it costs time
    settle()    once it serves: the objects allocated so far are never scanned again

Reference counting frees nearly everything; the collector is needed only for cycles (tracebacks,
failed tasks). Its pauses add to the latency of every client, so it runs rarely and scans little.
The settings are global, so the command sets them, never a node: an embedding process has its own.
"""

import gc
from typing import Final

# Allocations between collections of the young generation, and how many of those lead to a
# collection of the next one, which scans all of their survivors: a large request makes them
# 40,000 objects, a few milliseconds. CPython runs a full collection only after 25% more objects.
THRESHOLDS: Final = (10_000, 4, 250)


def hold() -> None:
    """Disable collection until `settle`."""
    gc.disable()


def settle() -> None:
    """Collect once, exempt all remaining objects, and collect rarely from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
