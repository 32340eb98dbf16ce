"""Acknowledgements to clients, compared with a store's content after recovery.

One store, one order. Checked after each recovery:

* nothing acknowledged is missing, and it is at its acknowledged offset;
* the content is a prefix of what the previous run had appended, in order; it may be followed,
  complete, by the one value whose append the crash interrupted;
* no two values are acknowledged at the same offset.
"""


class InvariantBroken(AssertionError):
    """An invariant of the store does not hold. The message says which, and for what."""


class Ledger:
    """Watch one store from outside its simulation; it survives every crash."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.recoveries = 0
        self._held: list[bytes] = []
        self._attempt: bytes | None = None

    def attempted(self, value: bytes) -> None:
        """Record that the store is about to append ``value``; it may crash meanwhile."""
        self._attempt = value

    def appended(self, offset: int, value: bytes) -> None:
        """Record that the store has put ``value`` at ``offset``, not durably yet."""
        if offset != len(self._held):
            raise InvariantBroken(f"appended at {offset}, expected {len(self._held)}")
        self._held.append(value)
        self._attempt = None

    def received(self, offset: int, value: bytes) -> None:
        """Record that a client received the acknowledgement of ``value`` at ``offset``."""
        if self.acknowledged.setdefault(offset, value) != value:
            raise InvariantBroken(
                f"offset {offset} acknowledged for {self.acknowledged[offset]!r} and {value!r}"
            )

    def recovered(self, values: list[bytes]) -> None:
        """Check the ``values`` that the store holds after recovery."""
        self.recoveries += 1
        for offset, value in sorted(self.acknowledged.items()):
            found = values[offset] if offset < len(values) else None
            if found != value:
                raise InvariantBroken(
                    f"acknowledged {value!r} at offset {offset}, found {found!r} "
                    f"of {len(values)} after recovery {self.recoveries}"
                )
        possible = self._held if self._attempt is None else [*self._held, self._attempt]
        if values != possible[: len(values)]:
            raise InvariantBroken(
                f"recovery {self.recoveries} is not a prefix of what was appended"
            )
        self._held = list(values)
        self._attempt = None
