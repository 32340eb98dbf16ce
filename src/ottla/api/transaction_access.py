"""Who may do what to transactional ids. Without an authorizer: everybody."""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.group_access import May, everybody
from ottla.api.routes import Caller


def anybody(caller: Caller) -> bool:
    """Let everybody."""
    return True


class TransactionAccess(msgspec.Struct, frozen=True):
    """The questions, by Kafka's operations and resources."""

    write_transactional_id: May = everybody
    describe_transactional_id: May = everybody
    write_topic: May = everybody
    describe_topic: May = everybody
    read_topic: May = everybody
    read_group: May = everybody
    # Between brokers.
    cluster_action: Callable[[Caller], bool] = anybody
    # For operators who end transactions that hang (KIP-664).
    alter_cluster: Callable[[Caller], bool] = anybody


ALLOW_ALL: Final = TransactionAccess()
