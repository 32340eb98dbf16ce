"""Reads topics, settings, ACLs and committed offsets of clusters, and makes the target follow."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from re import Pattern
from typing import Final

import msgspec

from ottla.client.admin import (
    Change,
    ConfigChange,
    ConfigSource,
    NewTopic,
    Resource,
    add_partitions,
    alter_configs,
    create_topic,
)
from ottla.client.admin_groups import SHARE, commit_offsets, committed_offsets, list_groups
from ottla.client.admin_security import AclFilter, create_acls, delete_acls, list_acls
from ottla.client.cluster import Cluster, Refused
from ottla.mirror.records_of_state import CopiedAcls, Link
from ottla.mirror.topic_rules import (
    TopicChanges,
    TopicFacts,
    copied_settings,
    is_selected,
    plan_acls,
    plan_commits,
    plan_topic,
    translated,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.types import TopicPartition
from ottla.protocol.uuids import uuid_text
from ottla.security.acl import Acl

TOPICS_PER_REQUEST: Final = 200
Problems = dict[str, str]
"""What could not be copied, by topic or subject, and why."""


class Clusters(msgspec.Struct, frozen=True):
    """The two ends of a mirror."""

    source: Cluster
    target: Cluster


async def read_topics(cluster: Cluster, pattern: Pattern[str]) -> dict[str, TopicFacts]:
    """Return the selected topics of a cluster."""
    response = await cluster.metadata(None)
    chosen = {
        topic.name: topic
        for topic in response.topics
        if topic.name is not None
        and topic.error_code == ErrorCode.NONE
        and is_selected(topic.name, pattern, is_internal=topic.is_internal)
    }
    settings = await _settings(cluster, sorted(chosen))
    return {
        name: TopicFacts(uuid_text(topic.topic_id), len(topic.partitions), settings.get(name, {}))
        for name, topic in chosen.items()
    }


async def _settings(cluster: Cluster, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics that are their own, not defaults."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        wanted = [
            DescribeConfigsResource(Resource.TOPIC, name, None)
            for name in names[start : start + TOPICS_PER_REQUEST]
        ]
        response = await cluster.send_any(DescribeConfigsRequest(wanted), DescribeConfigsResponse)
        for result in response.results:
            found[result.resource_name] = {
                each.name: each.value
                for each in result.configs
                if each.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
                and each.value is not None
            }
    return found


async def sync_topics(
    clusters: Clusters,
    sources: Mapping[str, TopicFacts],
    pattern: Pattern[str],
    replication_factor: int,
    *,
    is_final: bool = False,
) -> Problems:
    """Create missing topics and partitions, and change settings; return what was refused."""
    targets = await read_topics(clusters.target, pattern)
    problems: Problems = {}
    for name, source in sorted(sources.items()):
        try:
            if name not in targets:
                settings = copied_settings(source.settings, is_final=is_final)
                topic = NewTopic(name, source.partitions, replication_factor, settings)
                await create_topic(clusters.target, topic)
            else:
                changes = plan_topic(source, targets[name], is_final=is_final)
                await _change_topic(clusters.target, name, changes)
        except Refused as refused:
            problems[name] = str(refused)
    return problems


async def _change_topic(target: Cluster, name: str, changes: TopicChanges) -> None:
    if changes.partitions is not None:
        await add_partitions(target, name, changes.partitions)
    if changes.settings:
        rows = [
            Change(key, value, ConfigChange.DELETE if value is None else ConfigChange.SET)
            for key, value in changes.settings.items()
        ]
        await alter_configs(target, Resource.TOPIC, name, rows)


async def sync_acls(
    clusters: Clusters,
    copied: CopiedAcls,
    topics: Pattern[str],
    record: Callable[[CopiedAcls], Awaitable[None]],
) -> tuple[CopiedAcls, str | None]:
    """Create and delete ACLs; return those that the mirror answers for, and what was refused.

    ``record`` stores them before they are created: a mirror that is killed in between must know
    later that it may delete them.
    """
    try:
        source = await list_acls(clusters.source, AclFilter())
        target = await list_acls(clusters.target, AclFilter())
        created, deleted = plan_acls(source, target, copied.acls, topics)
        if created:
            copied = CopiedAcls((*copied.acls, *created))
            await record(copied)
            await create_acls(clusters.target, created)
        if deleted:
            await delete_acls(clusters.target, [_exactly(each) for each in deleted])
    except Refused as refused:
        if refused.code == ErrorCode.SECURITY_DISABLED:
            return copied, None
        return copied, str(refused)
    return CopiedAcls(tuple(each for each in copied.acls if each not in deleted)), None


def _exactly(acl: Acl) -> AclFilter:
    return AclFilter(**msgspec.structs.asdict(acl))


class GroupSync:
    """Commits translated offsets for groups that do not read in the target yet."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._written: dict[str, dict[TopicPartition, int]] = {}

    async def run(self, links: Mapping[TopicPartition, Link]) -> tuple[int, Problems]:
        """Return how many groups have their offsets in the target, and what was refused."""
        problems: Problems = {}
        count = 0
        for group in await list_groups(self._clusters.source):
            if group.type == SHARE:
                continue
            try:
                count += await self._sync(group.group_id, links)
            except Refused as refused:
                problems[f"group {group.group_id}"] = str(refused)
        return count, problems

    async def _sync(self, group: str, links: Mapping[TopicPartition, Link]) -> int:
        committed = await committed_offsets(self._clusters.source, group)
        wanted = translated(committed, links)
        if not wanted:
            return 0
        target = await committed_offsets(self._clusters.target, group)
        written = self._written.setdefault(group, {})
        commits = plan_commits(wanted, target, written)
        if commits:
            results = await commit_offsets(self._clusters.target, group, commits)
            _check(results.values())
            written.update(commits)
        return 1


def _check(results: Iterable[Refused | None]) -> None:
    for refused in results:
        if refused is not None and refused.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise refused  # a group with members has moved already: its offsets are its own
