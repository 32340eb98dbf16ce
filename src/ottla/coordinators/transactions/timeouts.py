"""When a transaction times out. Pure.

A transaction is aborted once it has been open for longer than the timeout of its producer. Its age
by wall time is measured once, when it is first checked; from then on its deadline is monotonic. So
a clock that jumps neither aborts a transaction nor keeps it open.
"""

from collections.abc import Iterable

from ottla.coordinators.transactions.transaction import Status, Transaction
from ottla.protocol.types import Millis
from ottla.runtime.trusted_time import Times


class TransactionTimeouts:
    """The deadlines of ongoing transactions, by id, as of the last check."""

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[Millis, Millis]] = {}

    def late(self, transactions: Iterable[Transaction], times: Times) -> list[str]:
        """Return the ids of the transactions that have timed out."""
        self._deadlines = {
            each.transactional_id: self._deadline(each, times)
            for each in transactions
            if each.status is Status.ONGOING
        }
        return [name for name, (_, due) in self._deadlines.items() if due < times.monotonic]

    def _deadline(self, ongoing: Transaction, times: Times) -> tuple[Millis, Millis]:
        """Return the start time of a transaction, by its record, and its deadline, monotonic.

        One that began in the future has just begun.
        """
        known = self._deadlines.get(ongoing.transactional_id)
        if known is not None and known[0] == ongoing.started_at:
            return known
        age_ms = max(0, times.expiry - ongoing.started_at)
        return ongoing.started_at, Millis(times.monotonic + ongoing.timeout_ms - age_ms)
