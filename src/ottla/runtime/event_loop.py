"""Which event loop a process runs: uvloop's where it is installed, else asyncio's own.

uvloop is faster and optional (``ottla[fast]``). The choice concerns the whole process, so commands
make it, never a node: an embedding process runs its own loop.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, uvloop's if installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[object, object, Result]) -> Result:
    """Run ``main`` to its end, as `asyncio.run` does, on the faster loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
