"""Name the right that a client lacks, and the command that grants it. Pure.

The rules are those of the brokers (`ottla.api.security.authorization_rules`): the API that was
refused and the error code give the operation, the subject of the error gives the resource.
"""

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from ottla.api.security.authorization_rules import RULES
from ottla.client.cluster import Refused
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from ottla.security.jaas import BadJaas, parse_jaas

UNKNOWN_PRINCIPAL: Final = "User:NAME"
"""The principal in a command where the client cannot know its own."""

_RESOURCE_OF: Final = {
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): ResourceType.TOPIC,
    int(ErrorCode.GROUP_AUTHORIZATION_FAILED): ResourceType.GROUP,
    int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED): ResourceType.CLUSTER,
    int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ResourceType.TRANSACTIONAL_ID,
    int(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED): ResourceType.USER,
}
_OPTION_OF: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.USER: "--user-principal",
}
_OF_GROUPS: Final = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    }
)
"""APIs whose errors have the group as subject, also if a topic of the group is refused."""
_OF_PARTITIONS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    }
)
"""APIs whose errors have a partition as subject."""
_PURPOSES: Final[Mapping[str, Mapping[ResourceType, AclOperation]]] = {
    "produce": {ResourceType.TOPIC: AclOperation.WRITE},
    "consume": {ResourceType.TOPIC: AclOperation.READ, ResourceType.GROUP: AclOperation.READ},
    "sql": {ResourceType.TOPIC: AclOperation.READ},
    "group delete": {ResourceType.GROUP: AclOperation.DELETE},
    "share delete": {ResourceType.GROUP: AclOperation.DELETE},
    "share delete-offsets": {ResourceType.GROUP: AclOperation.DELETE},
    "txn abort": {ResourceType.TRANSACTIONAL_ID: AclOperation.WRITE},
}
"""Commands that look something up before they use it: the right to use it implies DESCRIBE."""
_PARTITION: Final = re.compile(r"-\d+$")
_IN_TEXT: Final = re.compile(r": (TOPIC|GROUP|CLUSTER|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED")
_SUBJECT_MAX: Final = 300


class MissingRight(msgspec.Struct, frozen=True):
    """An operation on a resource that a principal lacks; without ``name`` it is not known."""

    operation: AclOperation
    resource_type: ResourceType
    name: str | None

    def text(self, principal: str | None) -> str:
        """Return the end of a message: what is missing, and the command that grants it."""
        kind = self.resource_type.name.lower().replace("_", " ")
        if self.resource_type is ResourceType.CLUSTER:
            resource, options = "the cluster", ["--cluster"]
        else:
            resource = f"a {kind} that it uses" if self.name is None else f"{kind} {self.name}"
            options = [_OPTION_OF[self.resource_type], self.name or kind.upper().replace(" ", "-")]
        words = [
            *("ottla", "acl", "add", "--allow-principal", principal or UNKNOWN_PRINCIPAL),
            *("--operation", self.operation.name.lower(), *options),
        ]
        return (
            f"; {principal or 'this user'} lacks the right {self.operation.name} on {resource}; "
            f"an administrator grants it with: {shlex.join(words)}"
        )


def find_missing_right(
    refused: Refused, api: ApiKey | None, command: str = "", topic: str | None = None
) -> MissingRight | None:
    """Return the right that a request lacked; None if the error is about something else.

    ``command`` is the command without ``ottla``, ``topic`` the one that it was given, if any.
    """
    kind = _RESOURCE_OF.get(refused.code)
    if kind is None:
        return None
    purpose = _PURPOSES.get(command, {})
    if api is ApiKey.INIT_PRODUCER_ID and kind is ResourceType.CLUSTER and topic is not None:
        # The right to write to a topic is enough, and needed next.
        return MissingRight(AclOperation.WRITE, ResourceType.TOPIC, topic)
    operation = _operation(api, kind)
    if operation is AclOperation.DESCRIBE:
        operation = purpose.get(kind, operation)
    if operation is None:
        return None
    return MissingRight(operation, kind, _name(refused.subject, api, kind) or topic)


def find_right_in_text(text: str, written: Collection[str] = ()) -> MissingRight | None:
    """Return the right that a failed pipeline lacked, by the error of a broker in its message.

    A pipeline reads its topics and writes those in ``written``. The tasks of Spark report their
    errors as text.
    """
    found = _IN_TEXT.search(text)
    if found is None:
        return None
    kind = _RESOURCE_OF[int(ErrorCode[f"{found[1]}_AUTHORIZATION_FAILED"])]
    words = text[max(0, found.start() - _SUBJECT_MAX) : found.start()].split()
    name = words[-1] if words else None
    operation = AclOperation.READ
    if kind is ResourceType.TOPIC:
        topic = _PARTITION.sub("", name or "")
        name = name if name in written else topic
        operation = AclOperation.WRITE if name in written else AclOperation.READ
    elif kind is ResourceType.TRANSACTIONAL_ID:
        operation = AclOperation.WRITE
    elif kind is ResourceType.CLUSTER:
        operation, name = AclOperation.CREATE, CLUSTER_NAME
    return MissingRight(operation, kind, name)


def _operation(api: ApiKey | None, kind: ResourceType) -> AclOperation | None:
    """Return the first right on this kind of resource by the rule of the API."""
    rule = None if api is None else RULES.get(api)
    operations = [
        permission.operation
        for check in (() if rule is None else rule.checks)
        for permission in check.permissions
        if permission.resource_type is kind
    ]
    return operations[0] if operations else None


def _name(subject: str, api: ApiKey | None, kind: ResourceType) -> str | None:
    """Return the name of the refused resource in the subject of an error."""
    if kind is ResourceType.CLUSTER:
        return CLUSTER_NAME
    if kind is ResourceType.USER:
        return subject.rpartition(" of ")[2] if " of " in subject else None
    subject = subject.removeprefix(f"{kind.name.lower()} ")
    if kind is not ResourceType.TOPIC:
        return subject.partition(": ")[0]
    if api in _OF_GROUPS:
        return None
    name = subject.rpartition(": ")[2]
    return _PARTITION.sub("", name) if api in _OF_PARTITIONS else name


def own_principal(properties: Mapping[str, str]) -> str | None:
    """Return the principal of a client by its settings; None if only the brokers know it.

    They map certificates, tickets and tokens to principals by rules of their own.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol == "PLAINTEXT":
        return "User:ANONYMOUS"
    mechanism = (
        properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    ).upper()
    if not protocol.startswith("SASL_") or not mechanism.startswith(("PLAIN", "SCRAM-")):
        return None
    user = properties.get("sasl.username")
    if jaas := properties.get("sasl.jaas.config"):
        try:
            options = parse_jaas(jaas)[0].options
        except (BadJaas, IndexError):
            return None
        user = None if options.get("tokenauth") == "true" else options.get("username")
    return f"User:{user}" if user else None
