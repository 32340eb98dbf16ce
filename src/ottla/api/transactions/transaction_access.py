"""Authorization of requests about transactional ids. Without an authorizer all are allowed."""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.groups.group_access import May, everybody
from ottla.api.surface.routes import Caller


def anybody(caller: Caller) -> bool:
    """Allow every caller."""
    return True


class TransactionAccess(msgspec.Struct, frozen=True):
    """The checks, by Kafka's operations and resource types."""

    write_transactional_id: May = everybody
    describe_transactional_id: May = everybody
    write_topic: May = everybody
    describe_topic: May = everybody
    read_topic: May = everybody
    read_group: May = everybody
    # A producer id without a transactional id.
    init_producer: Callable[[Caller], bool] = anybody
    # Between brokers.
    cluster_action: Callable[[Caller], bool] = anybody
    # For operators who abort hanging transactions (KIP-664).
    alter_cluster: Callable[[Caller], bool] = anybody


ALLOW_ALL: Final = TransactionAccess()
