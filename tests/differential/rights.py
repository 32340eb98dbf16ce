"""The rights of the user that sends the requests, where the peers have an authorizer.

    all        no authorizer
    none       no right at all
    describe   may describe everything, but neither read, write nor change it
    read       may read all topics and groups
    write      may write to all topics and with all transactional ids
    cluster    may describe and create in the cluster, and see and change configurations
    mixed      other rights for every topic, group and transactional id, by the first digit of the
               case that uses it; prefixed entries, denials among them

Entries are created before the set-up of a family, by a super user.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.differential.script import Script
from tests.differential.steps import settle

ALL, NONE = "all", "none"
NAMES = (ALL, NONE, "describe", "read", "write", "cluster", "mixed")
DENIALS = ("29", "30", "31", "53", "65")
"""The error codes of a refusal, as the report shows them."""

_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID = 2, 3, 4, 5
_EVERYTHING, _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 2, 3, 4, 5, 6, 7, 8
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 10, 11, 12
_LITERAL, _PREFIXED = 3, 4
_DENY, _ALLOW = 2, 3
_CLUSTER_NAME = "kafka-cluster"


class Entry(NamedTuple):
    """An access control entry of the user, for all hosts."""

    resource_type: int
    resource_name: str
    operation: int
    resource_pattern_type: int = _LITERAL
    permission_type: int = _ALLOW


def grant(script: Script, rights: str, family: str) -> None:
    """Create the entries of the user on one peer and wait until they are in force."""
    creations = [
        {**entry._asdict(), "principal": "User:alice", "host": "*"}
        for entry in _entries(rights, family)
    ]
    if creations:
        reply = script.quietly("create_acls", 3, creations=creations)
        assert all(row["error_code"] == 0 for row in reply["results"]), reply
        settle(script)


def _entries(rights: str, family: str) -> Iterator[Entry]:
    match rights:
        case "describe":
            for kind in (_TOPIC, _GROUP, _TRANSACTIONAL_ID):
                yield Entry(kind, "*", _DESCRIBE)
            yield Entry(_CLUSTER, _CLUSTER_NAME, _DESCRIBE)
        case "read":
            yield Entry(_TOPIC, "*", _READ)
            yield Entry(_GROUP, "*", _READ)
        case "write":
            yield Entry(_TOPIC, "*", _WRITE)
            yield Entry(_TRANSACTIONAL_ID, "*", _WRITE)
        case "cluster":
            for operation in (_DESCRIBE, _CREATE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS):
                yield Entry(_CLUSTER, _CLUSTER_NAME, operation)
        case "mixed":
            yield from _mixed(family)


# kind of resource -> operations allowed by the first digit of the case's number.
_BY_DIGIT = {
    _TOPIC: {
        1: [_EVERYTHING],
        2: [_READ],
        3: [_WRITE],
        4: [_CREATE, _DELETE],
        6: [_ALTER, _ALTER_CONFIGS],
        7: [_DESCRIBE_CONFIGS],
    },
    _GROUP: {1: [_EVERYTHING], 2: [_READ], 3: [_DESCRIBE], 4: [_DELETE], 6: [_READ, _DELETE]},
    _TRANSACTIONAL_ID: {1: [_EVERYTHING], 2: [_DESCRIBE], 3: [_WRITE], 6: [_WRITE]},
}


def _mixed(family: str) -> Iterator[Entry]:
    yield Entry(_TOPIC, f"{family}-", _DESCRIBE, _PREFIXED)
    yield Entry(_TOPIC, f"{family}-topic", _READ)
    yield Entry(_TOPIC, f"{family}-5", _DESCRIBE, _PREFIXED, _DENY)
    yield Entry(_TOPIC, f"{family}-12", _WRITE, _PREFIXED, _DENY)
    yield Entry(_GROUP, f"{family.partition('_')[0]}-group", _READ)
    yield Entry(_CLUSTER, _CLUSTER_NAME, _IDEMPOTENT_WRITE)
    for kind, digits in _BY_DIGIT.items():
        for digit, operations in digits.items():
            for operation in operations:
                yield Entry(kind, f"{family}-{digit}", operation, _PREFIXED)
