"""Wait for an event or a timeout, whichever comes first."""

import asyncio


async def wait_or_timeout(event: asyncio.Event, timeout_ms: int) -> None:
    """Return when ``event`` is set, or after ``timeout_ms``."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
