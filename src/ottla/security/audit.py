"""The audit lines of authorization decisions: one for many names, and few per principal. Pure.

A request may name hundreds of thousands of topics that its client may not see. So a decision only
counts: decisions of the same subject, operation, resource type and outcome are one entry, with its
first names. `AuditTrail.drain`, which is called every `TICK_MS`, returns the lines of entries that
did not grow since the last tick, or have grown for `GROWING_TICKS_MAX`: one line for a request.

Each principal has a bucket of `LINES_SAVED_MAX` lines that gains `LINES_PER_TICK` per tick. An
entry without a line left stays and counts on. Entries above `ENTRIES_MAX` are counted only.

Names come from clients: they are escaped and shortened, so that a name cannot forge a line.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from ottla.security.acl import AclOperation, ResourceType, Subject

TICK_MS: Final = 100
GROWING_TICKS_MAX: Final = 10
NAMES_MAX: Final = 5
"""Names in one line."""
NAME_LENGTH_MAX: Final = 100
PRINCIPAL_LENGTH_MAX: Final = 300
LINES_SAVED_MAX: Final = 20
LINES_PER_TICK: Final = 0.2
ENTRIES_MAX: Final = 1000


class _Entry(msgspec.Struct):
    """Decisions of one kind. ``seen`` is the count at the last tick."""

    count: int = 0
    seen: int = 0
    ticks: int = 0
    names: list[str] = msgspec.field(default_factory=list)

    def is_due(self) -> bool:
        """Say whether to write the line now; call it once per tick."""
        self.ticks += 1
        has_grown, self.seen = self.count != self.seen, self.count
        return not has_grown or self.ticks >= GROWING_TICKS_MAX


class _Key(msgspec.Struct, frozen=True, eq=True):
    subject: Subject
    operation: AclOperation
    resource_type: ResourceType
    is_allowed: bool

    def line(self, entry: _Entry) -> str:
        names = ",".join(repr(name) for name in entry.names)
        outcome = "allowed" if self.is_allowed else "denied"
        return (
            f"principal={self.subject.principal[:PRINCIPAL_LENGTH_MAX]!r} outcome={outcome}"
            f" operation={self.operation.name} resource={self.resource_type.name}:{names}"
            f" count={entry.count} host={self.subject.host}"
        )


class AuditTrail:
    """The decisions that have no line yet."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Subject, int, int, bool], tuple[_Key, _Entry]] = {}
        self._lines_left: dict[str, float] = {}
        self._uncounted = 0

    def record(
        self,
        subject: Subject,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed: bool,
    ) -> None:
        """Count one decision."""
        place = (subject, operation, resource_type, is_allowed)
        found = self._entries.get(place)
        if found is None:
            if len(self._entries) >= ENTRIES_MAX:
                self._uncounted += 1
                return
            found = (_Key(*place), _Entry())
            self._entries[place] = found
        entry = found[1]
        entry.count += 1
        if entry.count <= NAMES_MAX:
            entry.names.append(name[:NAME_LENGTH_MAX])

    def drain(self, *, is_final: bool = False) -> Iterator[tuple[bool, str]]:
        """Remove the entries that are due; return whether each was allowed, and its line.

        ``is_final``: every entry is due, such as when the node stops.
        """
        self._refill()
        for place, (key, entry) in list(self._entries.items()):
            principal = key.subject.principal
            left = self._lines_left.get(principal, LINES_SAVED_MAX)
            if is_final or (entry.is_due() and left >= 1):
                del self._entries[place]
                self._lines_left[principal] = left - 1
                yield key.is_allowed, key.line(entry)
        if self._uncounted:
            uncounted, self._uncounted = self._uncounted, 0
            yield False, f"decisions without a line count={uncounted}"

    def _refill(self) -> None:
        for principal, left in list(self._lines_left.items()):
            if left + LINES_PER_TICK >= LINES_SAVED_MAX:
                del self._lines_left[principal]
            else:
                self._lines_left[principal] = left + LINES_PER_TICK
