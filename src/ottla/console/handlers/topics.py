"""Topics: the list, one topic, and changes of it."""

from collections.abc import Mapping
from typing import Final

from ottla.client.admin import (
    Change,
    ConfigChange,
    ConfigSource,
    NewTopic,
    Resource,
    add_partitions,
    alter_configs,
    create_topic,
    delete_topics,
    describe_configs,
    describe_topics,
    list_topics,
)
from ottla.client.admin_groups import committed_offsets, list_groups
from ottla.client.admin_replicas import delete_records, describe_log_dirs
from ottla.client.cluster import Cluster, NoBroker, Refused
from ottla.console.browsing import bounds_of
from ottla.console.endpoints import Call, Done, Rejected
from ottla.console.handlers.answers import or_else
from ottla.console.paging import PAGE_ROWS, PAGE_ROWS_MAX, ListQuery, select
from ottla.console.segments import path_of
from ottla.operations.internal_topics import is_internal
from ottla.operations.rows import Row
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.types import TopicPartition

GROUPS_READ_MAX: Final = 50
"""Groups whose committed offsets are read to find the consumers of a topic."""
COUNTED_PARTITIONS_MAX: Final = 1_000
"""Partitions of a page of the list whose records are counted."""


def list_query(call: Call) -> ListQuery:
    """Return which part of a list is asked for. Raises `Rejected`."""
    return ListQuery(
        call.text("filter")[:200],
        call.text("sort"),
        call.number("page", 1, low=1, high=1_000_000),
        call.number("size", PAGE_ROWS, low=1, high=PAGE_ROWS_MAX),
    )


async def topics(call: Call) -> Row:
    """Return a page of the list of topics."""
    topics = await list_topics(call.cluster)
    shows_internal = call.flag("internal")
    shown = [topic for topic in topics if shows_internal or not is_internal(topic)]
    page, paging = select(
        shown,
        list_query(call),
        lambda topic: topic.name or "",
        {
            "name": lambda topic: topic.name or "",
            "partitions": lambda topic: len(topic.partitions),
            "replicas": _replicas,
            "problems": _problem_count,
        },
    )
    counts = await _record_counts(call.cluster, page)
    return {
        "topics": [{**topic_row(topic), "records": counts.get(topic.name or "")} for topic in page],
        "paging": paging,
        "internal": shows_internal,
    }


def topic_row(topic: MetadataResponseTopic) -> Row:
    """Return a topic as a row of the list. Pure."""
    return {
        "name": topic.name or "",
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
        "problems": _problem_count(topic),
        "is_internal": is_internal(topic),
    }


def _replicas(topic: MetadataResponseTopic) -> int:
    return max((len(each.replica_nodes) for each in topic.partitions), default=0)


def _problem_count(topic: MetadataResponseTopic) -> int:
    """Return how many partitions have no leader, or too few replicas in sync."""
    return sum(
        1
        for each in topic.partitions
        if each.leader_id < 0 or len(each.isr_nodes) < len(each.replica_nodes)
    )


async def _record_counts(cluster: Cluster, page: list[MetadataResponseTopic]) -> dict[str, int]:
    """Return how many offsets each topic has; nothing if that would be many requests."""
    places = [
        TopicPartition(topic.name or "", each.partition_index)
        for topic in page
        for each in topic.partitions
        if each.leader_id >= 0
    ]
    if not places or len(places) > COUNTED_PARTITIONS_MAX:
        return {}
    try:
        bounds = await bounds_of(cluster, places)
    except (Refused, NoBroker):
        return {}
    counts: dict[str, int] = {}
    for place, (first, end) in bounds.items():
        counts[place.topic] = counts.get(place.topic, 0) + end - first
    return counts


async def topic(call: Call) -> Row:
    """Return one topic: partitions, settings and consumers."""
    name = call.names["topic"]
    (described,) = await describe_topics(call.cluster, [name])
    places = [
        TopicPartition(name, each.partition_index)
        for each in described.partitions
        if each.leader_id >= 0
    ]
    bounds = await or_else(bounds_of(call.cluster, places), {})
    sizes = await _sizes(call.cluster, described, places)
    partitions = [
        _partition_row(each, bounds.get(TopicPartition(name, each.partition_index)), sizes)
        for each in sorted(described.partitions, key=lambda each: each.partition_index)
    ]
    configs = await or_else(topic_configs(call.cluster, name), [])
    return {
        **topic_row(described),
        "topic_id": str(described.topic_id),
        "partition_rows": partitions,
        "configs": configs,
        "consumers": await _consumers(call.cluster, name),
        "records": sum(end - first for first, end in bounds.values()),
        "size": sum(sizes.values()) if sizes else None,
    }


def _partition_row(
    partition: MetadataResponsePartition,
    bounds: tuple[int, int] | None,
    sizes: Mapping[int, int],
) -> Row:
    return {
        "partition": partition.partition_index,
        "leader": partition.leader_id,
        "replicas": list(partition.replica_nodes),
        "in_sync": list(partition.isr_nodes),
        "first": None if bounds is None else bounds[0],
        "end": None if bounds is None else bounds[1],
        "size": sizes.get(partition.partition_index),
    }


async def topic_configs(cluster: Cluster, name: str) -> list[Row]:
    """Return the settings of a topic, those that were set first. Raises `Refused`."""
    configs = await describe_configs(cluster, Resource.TOPIC, name, with_documentation=True)
    return config_rows(configs)


def config_rows(configs: list[DescribeConfigsResourceResult]) -> list[Row]:
    """Return settings as rows, those that were set first. Pure."""
    rows: list[Row] = [
        {
            "name": config.name,
            "value": None if config.is_sensitive else config.value,
            "source": ConfigSource(config.config_source).name.lower(),
            "is_default": ConfigSource(config.config_source) is ConfigSource.DEFAULT_CONFIG,
            "is_set": ConfigSource(config.config_source)
            in (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG),
            "is_sensitive": config.is_sensitive,
            "is_read_only": config.read_only,
            "documentation": config.documentation or "",
        }
        for config in configs
    ]
    return sorted(rows, key=lambda row: (bool(row["is_default"]), str(row["name"])))


async def _sizes(
    cluster: Cluster, described: MetadataResponseTopic, places: list[TopicPartition]
) -> dict[int, int]:
    """Return the size of each partition on its leader; nothing without the right to know."""
    sizes: dict[int, int] = {}
    leaders = {each.partition_index: each.leader_id for each in described.partitions}
    for broker in sorted({leader for leader in leaders.values() if leader >= 0}):
        directories = await or_else(describe_log_dirs(cluster, broker, places), [])
        for directory in directories:
            for log in directory.topics:
                for row in log.partitions:
                    if leaders.get(row.partition_index) == broker and not row.is_future_key:
                        sizes[row.partition_index] = row.partition_size
    return sizes


async def _consumers(cluster: Cluster, name: str) -> list[Row]:
    """Return the groups with committed offsets of a topic, among the first of the cluster."""
    groups = await or_else(list_groups(cluster), [])
    rows: list[Row] = []
    for group in groups[:GROUPS_READ_MAX]:
        if group.type == "share":
            continue
        offsets = await or_else(committed_offsets(cluster, group.group_id), {})
        if any(place.topic == name for place in offsets):
            rows.append({"group": group.group_id, "type": group.type, "state": group.state})
    return rows


# -- changes -------------------------------------------------------------------------


async def create(call: Call) -> Done:
    """Create a topic."""
    name = call.required("name")
    configs = parse_configs(call.raw("configs") or "")
    if source := call.text("copy_from"):
        configs = {**await _own_configs(call.cluster, source), **configs}
    topic = NewTopic(
        name,
        call.number("partitions", -1, low=-1, high=100_000),
        call.number("replication_factor", -1, low=-1, high=1_000),
        configs,
    )
    await create_topic(call.cluster, topic)
    return Done(f"Topic {name} was created.", path_of("/topics", name), {"topic": name})


async def _own_configs(cluster: Cluster, topic: str) -> dict[str, str]:
    """Return the settings that a topic does not share with others."""
    configs = await describe_configs(cluster, Resource.TOPIC, topic)
    return {
        config.name: config.value
        for config in configs
        if config.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG and config.value is not None
    }


def parse_configs(text: str) -> dict[str, str]:
    """Parse lines ``key=value``. Raises `Rejected`."""
    configs: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise Rejected(400, f"{line[:100]!r} must be key=value")
        configs[key.strip()] = value.strip()
    return configs


async def alter_config(call: Call) -> Done:
    """Set a setting of a topic, or remove it."""
    name, key = call.names["topic"], call.required("key")
    change = config_change(call, key)
    await alter_configs(call.cluster, Resource.TOPIC, name, [change])
    return Done(change_text(change), path_of("/topics", name) + "#settings")


def config_change(call: Call, key: str) -> Change:
    """Return the change of a setting that a request asks for."""
    if call.flag("reset"):
        return Change(key, None, ConfigChange.DELETE)
    return Change(key, call.text("value"))


def change_text(change: Change) -> str:
    """Return what was changed, in a sentence."""
    if change.operation is ConfigChange.DELETE:
        return f"{change.name} has its default again."
    return f"{change.name} is now {change.value}."


async def delete(call: Call) -> Done:
    """Delete a topic, whose name was typed."""
    name = call.names["topic"]
    confirm(call, name)
    for refused in (await delete_topics(call.cluster, [name])).values():
        if refused is not None:
            raise refused
    return Done(f"Topic {name} was deleted.", "/topics")


async def purge(call: Call) -> Done:
    """Delete all records of a topic that exist now; its name was typed."""
    name = call.names["topic"]
    confirm(call, name)
    (described,) = await describe_topics(call.cluster, [name])
    places = [TopicPartition(name, each.partition_index) for each in described.partitions]
    bounds = await bounds_of(call.cluster, places)
    ends: Mapping[TopicPartition, int] = {place: end for place, (_, end) in bounds.items()}
    refusals = await delete_records(call.cluster, ends)
    for refused in refusals.values():
        if refused is not None:
            raise refused
    count = sum(end - first for first, end in bounds.values())
    return Done(f"{count:,} offsets of {name} were purged.", path_of("/topics", name))


async def grow(call: Call) -> Done:
    """Raise the number of partitions of a topic."""
    name, count = call.names["topic"], call.number("partitions", 0, low=1, high=100_000)
    await add_partitions(call.cluster, name, count)
    return Done(f"{name} has {count} partitions now.", path_of("/topics", name))


def confirm(call: Call, name: str) -> None:
    """Raise `Rejected` unless the name of what is deleted was typed."""
    if call.raw("confirm") != name:
        raise Rejected(400, f"Type the name to confirm: {name}")
