"""The settings of transactions, from the broker and from the cluster's features."""

from collections.abc import Callable

import msgspec

from ottla.coordinators.transactions.transaction import EPOCH_BUMPING_VERSION


def newest_version() -> int:
    """Return the newest transaction version."""
    return EPOCH_BUMPING_VERSION


class TransactionSettings(msgspec.Struct, frozen=True):
    """Times are milliseconds. ``server_version`` returns the finalized ``transaction.version``."""

    timeout_ms_max: int = 900_000
    expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expire_interval_ms: int = 3_600_000
    server_version: Callable[[], int] = newest_version
