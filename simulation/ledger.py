"""What clients were told, against what a store holds after it came back.

One store, one order. The rules, checked each time it has recovered:

* nothing acknowledged is missing, and it stands where the acknowledgement said;
* what is there is a prefix of what the previous run had appended, in its order; behind
  it may stand, whole, the one value it was about to append when it died;
* an acknowledgement names a place that no other value was acknowledged for.
"""


class InvariantBroken(AssertionError):
    """A promise of the store does not hold. The message says which, and for what."""


class Ledger:
    """Watches one store from outside its simulation; it survives every crash."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.recoveries = 0
        self._held: list[bytes] = []
        self._attempt: bytes | None = None

    def attempted(self, value: bytes) -> None:
        """The store is about to append ``value``; it may die over it."""
        self._attempt = value

    def appended(self, offset: int, value: bytes) -> None:
        """The store has put ``value`` at ``offset``, not durably yet."""
        if offset != len(self._held):
            raise InvariantBroken(f"appended at {offset}, expected {len(self._held)}")
        self._held.append(value)
        self._attempt = None

    def heard(self, offset: int, value: bytes) -> None:
        """A client was told that ``value`` is durable at ``offset``."""
        if self.acknowledged.setdefault(offset, value) != value:
            raise InvariantBroken(
                f"offset {offset} acknowledged for {self.acknowledged[offset]!r} and {value!r}"
            )

    def recovered(self, values: list[bytes]) -> None:
        """The store is back and holds ``values``."""
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
            raise InvariantBroken(f"recovery {self.recoveries} gave no prefix of what was appended")
        self._held = list(values)
        self._attempt = None
