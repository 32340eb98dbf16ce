"""Access control entries, by Kafka's numbers.

A resource is named literally, by the wildcard ``*``, or by a prefix (KIP-290). The numbers are
those of the wire and of the metadata log; 0 is a value that an older client does not know.
"""

import enum
from typing import Final, NamedTuple

import msgspec


class ResourceType(enum.IntEnum):
    """What an entry is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How the name of a resource is matched. ANY and MATCH occur in filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """What an entry allows or denies."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(enum.IntEnum):
    """Whether an entry allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"


class Subject(NamedTuple):
    """The principal of a request, as ``User:name``, and the address it was sent from."""

    principal: str
    host: str


class Acl(msgspec.Struct, frozen=True, gc=False):
    """One access control entry. The metadata image keeps it under an id."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
