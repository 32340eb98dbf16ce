"""The authorization decisions of Produce. Without an authorizer everything is allowed."""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.access_decisions import unchanging
from ottla.api.group_access import May, everybody


class ProduceAccess(msgspec.Struct, frozen=True):
    """Decisions by Kafka's operations and resources; ``version`` changes with the decisions."""

    write_topic: May = everybody
    write_transactional_id: May = everybody
    version: Callable[[], int] = unchanging


ALLOW_ALL: Final = ProduceAccess()
