"""The operations that a caller may perform on a resource, as bits (KIP-430).

Bit n stands for Kafka's ACL operation n. Without an authorizer every caller may perform every
operation of the resource type. A reply to a request that does not ask for the operations keeps the
default of the field, -2^31.
"""

from typing import Final

_READ: Final = 1 << 3
_WRITE: Final = 1 << 4
_CREATE: Final = 1 << 5
_DELETE: Final = 1 << 6
_ALTER: Final = 1 << 7
_DESCRIBE: Final = 1 << 8
_CLUSTER_ACTION: Final = 1 << 9
_DESCRIBE_CONFIGS: Final = 1 << 10
_ALTER_CONFIGS: Final = 1 << 11
_IDEMPOTENT_WRITE: Final = 1 << 12

_CONFIGS: Final = _DESCRIBE_CONFIGS | _ALTER_CONFIGS

NOT_ASKED: Final = -(2**31)
TOPIC_OPERATIONS: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _CONFIGS
CLUSTER_OPERATIONS: Final = (
    _CREATE | _CLUSTER_ACTION | _ALTER | _DESCRIBE | _IDEMPOTENT_WRITE | _CONFIGS
)
GROUP_OPERATIONS: Final = _READ | _DELETE | _DESCRIBE | _CONFIGS
