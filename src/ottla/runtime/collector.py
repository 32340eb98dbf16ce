"""When Python's cyclic garbage collector runs in the process of a node.

    hold()      while the node's code is loaded: nothing of it is garbage, and looking is work
    settle()    once it serves: what is there by then stays, and is never looked at again

Reference counts free nearly everything; the collector is for cycles alone (tracebacks, tasks that
failed). Its pauses are part of every client's latency, so it looks seldom and at little. It
concerns the whole process, so the command calls it, never a node: an embedder has its own mind.
"""

import gc
from typing import Final

# Objects made before the young are looked at, and how often older ones are then looked at, too.
# A full look is also bound to a quarter more objects than last time (CPython's own rule).
THRESHOLDS: Final = (10_000, 20, 50)


def hold() -> None:
    """Do not collect until `settle`."""
    gc.disable()


def settle() -> None:
    """Collect once, set aside everything that is left, and collect seldom from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
