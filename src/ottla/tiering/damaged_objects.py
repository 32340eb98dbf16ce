"""The objects in remote storage that could not be read, for the log and the metrics. Pure.

A consumer repeats a fetch that fails, several times a second: each object is logged once per
`LOG_MS`, and at most `OBJECTS_MAX` of them are remembered.
"""

from typing import Final

import msgspec

from ottla.protocol.types import Millis
from ottla.tiering.segment_metadata import SegmentMetadata

LOG_MS: Final = 60_000
SHOWN_MS: Final = 600_000
"""How long after its last failure an object is shown."""
REREAD_MS: Final = 30_000
"""How long an object that was read whole, and has changed, is not read again."""
OBJECTS_MAX: Final = 100


class DamagedObject(msgspec.Struct):
    """An object that is missing or not what was stored; times are monotonic."""

    key: str
    problem: str
    metadata: SegmentMetadata
    logged_ms: Millis
    failed_ms: Millis
    is_changed: bool = False  # all of it was read, and differs


class DamagedObjects:
    """The objects that could not be read lately."""

    def __init__(self) -> None:
        self._objects: dict[str, DamagedObject] = {}

    def note(self, failed: DamagedObject) -> bool:
        """Remember that an object could not be read just now; return whether to log it."""
        now, known = failed.failed_ms, self._objects.get(failed.key)
        if known is None:
            self._forget_old(now)
            if len(self._objects) >= OBJECTS_MAX:
                return False
            self._objects[failed.key] = failed
            return True
        known.problem, known.failed_ms = failed.problem, now
        known.is_changed = failed.is_changed
        if now - known.logged_ms < LOG_MS:
            return False
        known.logged_ms = now
        return True

    def changed(self, key: str, now: Millis) -> str | None:
        """Return what is wrong with an object that was read whole within `REREAD_MS`."""
        known = self._objects.get(key)
        if known is None or not known.is_changed or now - known.failed_ms >= REREAD_MS:
            return None
        return known.problem

    def current(self, now: Millis) -> list[DamagedObject]:
        """Return the objects whose last failure is not older than `SHOWN_MS`."""
        self._forget_old(now)
        return list(self._objects.values())

    def _forget_old(self, now: Millis) -> None:
        self._objects = {
            key: each for key, each in self._objects.items() if now - each.failed_ms <= SHOWN_MS
        }
