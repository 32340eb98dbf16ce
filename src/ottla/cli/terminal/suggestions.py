"""Suggest the names that a user may have meant."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from ottla.client.admin_groups import list_groups
from ottla.client.cluster import Cluster, Refused
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

# What Ottla and Kafka say about a key that does not exist, by the kind of resource.
_UNKNOWN_KEY: Final = {
    Scope.TOPIC: re.compile(r"(\S+): unknown topic key|[Uu]nknown topic config name: (\S+)"),
    Scope.GROUP: re.compile(r"(\S+): unknown group key|[Uu]nknown group config name: (\S+)"),
    Scope.CLIENT_METRICS: re.compile(r"[Uu]nknown client metrics configuration: ([^\s,]+)()"),
}
_KINDS: Final = ("topic ", "group ")
"""Begin the subject of an error about the settings of a resource."""
_PARTITION: Final = re.compile(r"-\d+$")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: ``; did you mean 'x'?``, or nothing if no name is close."""
    close = get_close_matches(name, list(known))
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


async def suggestion(cluster: Cluster, refused: Refused) -> str:
    """Return the end of the message of an error about a name; empty if there is no such name."""
    try:
        return await _find(cluster, refused)
    except (Refused, Fault, OSError):
        return ""  # the first error matters, not this one


async def _find(cluster: Cluster, refused: Refused) -> str:
    subject = refused.subject
    for kind in _KINDS:
        subject = subject.removeprefix(kind)
    if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        topics = (await cluster.metadata(None)).topics
        known = [each.name for each in topics if each.name]
        name = _PARTITION.sub("", subject)
        return "" if name in known else did_you_mean(name, known)
    if refused.code == ErrorCode.GROUP_ID_NOT_FOUND:
        known = [each.group_id for each in await list_groups(cluster, (), ())]
        return "" if subject in known else did_you_mean(subject, known)
    if refused.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
        return _meant_key(refused.message)
    return ""


def _meant_key(message: str) -> str:
    """Return the suggestion for the key that an error message calls unknown."""
    for scope, pattern in _UNKNOWN_KEY.items():
        if found := pattern.search(message):
            return did_you_mean(found[1] or found[2], KEYS[scope])
    return ""
