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

# What Ottla and Kafka say.
_UNKNOWN_KEY: Final = re.compile(r"(\S+): unknown topic key|[Uu]nknown topic config name: (\S+)")
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
    if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        topics = (await cluster.metadata(None)).topics
        known = [each.name for each in topics if each.name]
        name = _PARTITION.sub("", refused.subject)
        return "" if name in known else did_you_mean(name, known)
    if refused.code == ErrorCode.GROUP_ID_NOT_FOUND:
        known = [each.group_id for each in await list_groups(cluster, (), ())]
        return "" if refused.subject in known else did_you_mean(refused.subject, known)
    if refused.code == ErrorCode.INVALID_CONFIG and (key := _UNKNOWN_KEY.search(refused.message)):
        return did_you_mean(key[1] or key[2], KEYS[Scope.TOPIC])
    return ""
