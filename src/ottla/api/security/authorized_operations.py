"""The operations that a caller may perform on a resource, as bits (KIP-430).

Bit n stands for Kafka's ACL operation n. A reply to a request that does not ask for the operations
keeps the default of the field, -2^31.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.security.acl import AclOperation, ResourceType

NOT_ASKED: Final = -(2**31)

_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE),
            *(AclOperation.ALTER, AclOperation.DESCRIBE, *_CONFIGS),
        ),
        ResourceType.GROUP: (
            *(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
        ),
        ResourceType.CLUSTER: (
            *(AclOperation.CREATE, AclOperation.CLUSTER_ACTION, AclOperation.ALTER),
            *(AclOperation.DESCRIBE, AclOperation.IDEMPOTENT_WRITE, *_CONFIGS),
        ),
    }
)
"""The operations that exist on each type of resource."""


def bit_of(operation: AclOperation) -> int:
    """Return the bit of an operation."""
    return 1 << operation


def _all(resource_type: ResourceType) -> int:
    return sum(map(bit_of, OPERATIONS[resource_type]))


GROUP_OPERATIONS: Final = _all(ResourceType.GROUP)
