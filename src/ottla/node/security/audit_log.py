"""Writes the audit lines of the node's authorizer to the logger ``ottla.authorizer``."""

import asyncio
import logging
from collections.abc import Callable

from ottla.security.audit import TICK_MS, AuditTrail

audit = logging.getLogger("ottla.authorizer")


class AuditLog:
    """`Service`: denials at INFO, as in Kafka, and what is allowed at DEBUG."""

    name = "audit-log"

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    async def run(self, ready: Callable[[], None]) -> None:
        """Write lines until cancelled, then those that are left."""
        ready()
        try:
            while True:
                await asyncio.sleep(TICK_MS / 1000)
                self._write()
        finally:
            self._write(is_final=True)

    def _write(self, *, is_final: bool = False) -> None:
        for is_allowed, line in self._trail.drain(is_final=is_final):
            audit.log(logging.DEBUG if is_allowed else logging.INFO, "%s", line)
