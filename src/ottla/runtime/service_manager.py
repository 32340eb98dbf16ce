"""Messages to systemd, for services of ``Type=notify``: ready, stopping, still alive.

``NOTIFY_SOCKET`` names a datagram socket; without it nothing is sent. A message that cannot be sent
is dropped: the service manager's own timeouts handle its absence.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from ottla.runtime import system_calls

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"


class ServiceManager:
    """The service manager that started this process, or none."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._path = variables.get("NOTIFY_SOCKET", "")
        interval = variables.get("WATCHDOG_USEC", "")
        is_ours = variables.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_s = int(interval) / 1e6 if interval.isdecimal() and is_ours else 0.0

    @property
    def alive_interval_s(self) -> float | None:
        """Seconds between two messages that the process is alive; None: none are expected."""
        return self._watchdog_s / 2 if self._path and self._watchdog_s else None

    def notify(self, *states: str) -> None:
        """Send a message."""
        if not self._path:
            return
        # A leading @ stands for the zero byte of an abstract name.
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            system_calls.send_datagram(address, "\n".join(states).encode())
        except OSError:
            return

    async def keep_alive(self) -> None:
        """Say twice per watchdog interval that the event loop runs; end at once if nobody asks."""
        interval_s = self.alive_interval_s
        while interval_s is not None:
            self.notify(ALIVE)
            await asyncio.sleep(interval_s)
