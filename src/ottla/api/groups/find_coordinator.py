"""FindCoordinator: which broker coordinates a group, a transactional id or a share key.

The coordinator is the leader of the partition that the key belongs to. The first request creates a
missing topic, on behalf of the broker; until it exists there is no coordinator.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.groups.group_access import ALLOW_ALL, GroupAccess
from ottla.api.surface.replies import Steps, collect
from ottla.api.surface.routes import Caller
from ottla.coordinators.topics import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    partition_for,
)
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.uuids import parse_uuid

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
_TOPICS: Final = {
    GROUP: CONSUMER_OFFSETS,
    TRANSACTION: TRANSACTION_STATE,
    SHARE: SHARE_GROUP_STATE,
}
# The first version with several keys per request.
_BATCH_SINCE: Final = 4
_SHARE_SINCE: Final = 6
_NOBODY: Final = -1


class FindCoordinatorHandler(msgspec.Struct, frozen=True):
    """The handler of one broker. ``create`` has an internal topic created, and does not wait."""

    image: Callable[[], Image]
    create: Callable[[str], None]
    access: GroupAccess = ALLOW_ALL

    def find_coordinator_steps(
        self, caller: Caller, request: FindCoordinatorRequest, version: int
    ) -> Steps[FindCoordinatorResponse]:
        """Find the coordinator of one key, or from version 4 on of several."""
        if version >= _BATCH_SINCE:
            found = (
                self._find(caller, key, request.key_type, version)
                for key in request.coordinator_keys
            )
            return FindCoordinatorResponse(coordinators=(yield from collect(found, _cost)))
        one = self._find(caller, request.key, request.key_type, version)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _find(self, caller: Caller, key: str, key_type: int, version: int) -> Coordinator:
        code = self._objection(caller, key, key_type, version)
        if code is not ErrorCode.NONE:
            return _nobody(key, code)
        name = _TOPICS[key_type]
        image = self.image()
        topic = image.topics.named(name)
        if topic is None or not topic.partitions:
            self.create(name)
            return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        broker = image.cluster.brokers.get(partition.leader)
        if broker is None or broker.fenced or caller.listener not in broker.listeners:
            return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        at = broker.listeners[caller.listener]
        return Coordinator(key, broker.id, at.host, at.port, error_message=None)

    def _objection(self, caller: Caller, key: str, key_type: int, version: int) -> ErrorCode:
        match key_type:
            case _ if key_type == GROUP:
                if not self.access.describe_group(caller, key):
                    return ErrorCode.GROUP_AUTHORIZATION_FAILED
            case _ if key_type == TRANSACTION:
                if not self.access.describe_transactional_id(caller, key):
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            case _ if key_type == SHARE and version >= _SHARE_SINCE:
                if not self.access.cluster_action(caller):
                    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if not _is_share_key(key):
                    return ErrorCode.INVALID_REQUEST
            case _:
                return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE


def _is_share_key(key: str) -> bool:
    """Whether a key is ``group:topic id:partition``; the group may have colons of its own."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not all(parts) or not (parts[2].isascii() and parts[2].isdigit()):
        return False
    try:
        parse_uuid(parts[1])
    except ValueError:
        return False
    return True


def _nobody(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key, _NOBODY, "", _NOBODY, code, code.name)


def _cost(found: Coordinator) -> int:
    """Return how much work a key was: a long one takes long to hash."""
    return 1 + len(found.key) // 512
