"""What to change in the target to follow the source: topics, ACLs, committed offsets. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ottla.mirror.offset_map import translate
from ottla.mirror.records_of_state import Link
from ottla.protocol.own_topics import is_own_topic
from ottla.protocol.types import TopicPartition
from ottla.security.acl import Acl, PatternType, ResourceType

Settings = Mapping[str, str]

NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
        "remote.copy.lag.ms",
        "remote.copy.lag.bytes",
    }
)
"""Settings that belong to a cluster and its number of replicas, not to the data."""
DEFERRED: Final = frozenset(
    {
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    }
)
"""Settings that would change or reject copied timestamps: set at the switch-over."""
COMPACT: Final = "compact"


class TopicFacts(msgspec.Struct, frozen=True):
    """A topic of a cluster: its id, number of partitions and own settings."""

    topic_id: str
    partitions: int
    settings: Settings


class TopicChanges(msgspec.Struct, frozen=True):
    """What a topic of the target lacks. Values of None are removed."""

    partitions: int | None = None
    settings: Mapping[str, str | None] = {}


def is_selected(name: str, pattern: re.Pattern[str], *, is_internal: bool) -> bool:
    """Say whether a topic is copied: it matches as a whole, and is nobody's internal topic."""
    if is_internal or name.startswith("__") or is_own_topic(name):
        return False
    return pattern.fullmatch(name) is not None


def copied_settings(settings: Settings, *, is_final: bool = False) -> dict[str, str]:
    """Return the settings of a source topic that the target gets."""
    left_out = NOT_COPIED if is_final else NOT_COPIED | DEFERRED
    return {name: value for name, value in settings.items() if name not in left_out}


def plan_topic(source: TopicFacts, target: TopicFacts, *, is_final: bool = False) -> TopicChanges:
    """Return what to change in an existing topic. Partitions are never taken away."""
    wanted = copied_settings(source.settings, is_final=is_final)
    has = copied_settings(target.settings, is_final=is_final)
    changes: dict[str, str | None] = {
        name: value for name, value in wanted.items() if has.get(name) != value
    }
    changes |= dict.fromkeys(name for name in has if name not in wanted)
    more = source.partitions if source.partitions > target.partitions else None
    return TopicChanges(more, changes)


def may_fill(settings: Settings, start: int, fill_max: int) -> bool:
    """Say whether an empty target may be filled up to the first offset of the source.

    Records of a compacted topic cannot be deleted up to an offset, so it is not filled.
    """
    is_compacted = COMPACT in settings.get("cleanup.policy", "")
    return 0 < start <= fill_max and not is_compacted


# -- ACLs ------------------------------------------------------------------------


def plan_acls(
    source: Iterable[Acl], target: Iterable[Acl], copied: Iterable[Acl], topics: re.Pattern[str]
) -> tuple[list[Acl], list[Acl]]:
    """Return the ACLs to create and those to delete again.

    Copied are ACLs on selected topics, on topic prefixes and wildcards, on groups and transactional
    ids. Deleted is only what the mirror itself created.
    """
    wanted = {each for each in source if _is_about_data(each, topics)}
    there, ours = set(target), set(copied)
    created = sorted(wanted - there, key=_order)
    return created, sorted((ours - wanted) & there, key=_order)


def _is_about_data(acl: Acl, topics: re.Pattern[str]) -> bool:
    if acl.resource_type == ResourceType.TOPIC:
        is_literal = acl.pattern_type == PatternType.LITERAL and acl.resource_name != "*"
        return not is_literal or topics.fullmatch(acl.resource_name) is not None
    return acl.resource_type in (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def _order(acl: Acl) -> tuple[str, ...]:
    return tuple(str(each) for each in msgspec.structs.astuple(acl))


# -- committed offsets -----------------------------------------------------------


def translated(
    committed: Mapping[TopicPartition, int], links: Mapping[TopicPartition, Link]
) -> dict[TopicPartition, int]:
    """Return the committed offsets of copied partitions as offsets of the target."""
    return {
        partition: translate(links[partition].runs, offset)
        for partition, offset in committed.items()
        if partition in links
    }


def plan_commits(
    wanted: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int],
    written: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets to commit in the target.

    ``written`` is what the mirror committed before. An offset in the target that the mirror did not
    write is a consumer's that reads there already: it only moves forward, as after a restart of the
    mirror, which does not remember what it wrote.
    """
    found = {}
    for partition, offset in wanted.items():
        there = target.get(partition)
        before = written.get(partition)
        is_ours = there is None or there == before
        if there != offset and (is_ours or (before is None and offset > (there or 0))):
            found[partition] = offset
    return found
