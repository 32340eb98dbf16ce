"""Whether a running cluster can take Ottla nodes: versions, features, topics, health. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.cli.migration.cluster_facts import ClusterFacts, PartitionFacts
from ottla.cli.migration.findings import Area, Finding, State
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS
from ottla.config.layers import parse_checked
from ottla.config.unsupported import UNSUPPORTED_KEYS, unsupported_value
from ottla.config.values import BadValue
from ottla.metadata.metadata_versions import METADATA_VERSION, MetadataVersion
from ottla.operations.counting import plural
from ottla.operations.sizes import human

FREE_FRACTION_MIN: Final = 0.05
VOTERS_MIN: Final = 3
SHOWN_MAX: Final = 5
_TOPIC: Final = KEYS[Scope.TOPIC]
_TIERED: Final = "remote.storage.enable"


def check_cluster(facts: ClusterFacts, ours: Mapping[str, tuple[int, int]]) -> list[Finding]:
    """Return everything found. ``ours`` are the feature levels that our nodes support."""
    return [
        *_check_features(facts, ours),
        *_check_nodes(facts),
        *_check_partitions(facts.partitions),
        *_check_reassignments(facts),
        *_check_topics(facts.topic_configs),
        *_check_groups(facts.groups),
        *_check_disks(facts),
    ]


def _check_features(facts: ClusterFacts, ours: Mapping[str, tuple[int, int]]) -> Iterator[Finding]:
    for name, level in sorted(facts.finalized.items()):
        least, most = ours.get(name, (0, 0))
        shown = _level(name, level)
        if least <= level <= most:
            detail = f"finalized at {shown}; Ottla supports {_level(name, least)} to "
            yield _finding(name, State.SUPPORTED, detail + _level(name, most))
            continue
        if name in ours:
            detail = f"finalized at {shown}; Ottla supports {_level(name, least)} to "
            detail += _level(name, most)
        else:
            detail = f"finalized at {shown}; Ottla does not know this feature"
        fix = "Use a newer Ottla" if level > most else "Upgrade the cluster's feature level"
        fix += ", or `ottla cluster features downgrade`." if level > most else "."
        yield _problem(name, detail, fix)
    if METADATA_VERSION not in facts.finalized:
        detail = "the cluster does not say which metadata.version is finalized"
        yield _problem(METADATA_VERSION, detail, "Only KRaft clusters can be migrated in place.")


def _level(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    try:
        return str(MetadataVersion(level))
    except ValueError:
        return str(level)


def _check_nodes(facts: ClusterFacts) -> Iterator[Finding]:
    if not facts.has_quorum_leader:
        yield _problem("quorum", "has no active controller", "Restore the quorum first.")
    for node in facts.nodes:
        subject = f"node {node.node_id}"
        if node.is_fenced:
            yield _problem(subject, "is fenced", "Start it, or unregister it, first.")
        elif node.problem:
            yield _finding(
                subject, State.WARNING, f"does not answer here: {node.problem}",
                "Check that clients of this machine reach every node.",
            )  # fmt: skip
        else:
            yield _finding(subject, State.SUPPORTED, f"{node.software.value}, {node.role}")
    voters = sum(each.is_voter for each in facts.nodes)
    if 0 < voters < VOTERS_MIN:
        detail = f"{voters} voter{'s' if voters > 1 else ''}: no metadata can change while one of "
        fix = "Add voters first for a migration without a pause."
        yield _finding("quorum", State.WARNING, detail + "them is replaced", fix)


def _check_partitions(partitions: Iterable[PartitionFacts]) -> Iterator[Finding]:
    all_of = list(partitions)
    offline = [each for each in all_of if each.leader < 0]
    late = [each for each in all_of if each.leader >= 0 and len(each.isr) < len(each.replicas)]
    single = [each for each in all_of if len(each.replicas) == 1]
    tight = [each for each in all_of if 1 < len(each.replicas) <= each.min_isr]
    if offline:
        fix = "Bring their brokers back before the migration."
        yield _problem("partitions", f"without a leader: {_names(offline)}", fix)
    if late:
        fix = "Wait until all replicas are in sync; `ottla migrate status --watch` shows it."
        yield _problem("partitions", f"under-replicated: {_names(late)}", fix)
    if single:
        detail = f"{len(single)} with one replica are not available while their node is replaced: "
        fix = "Add replicas with `ottla topic reassign`, or accept the pause."
        yield _finding("partitions", State.WARNING, detail + _names(single), fix)
    if tight:
        detail = f"{len(tight)} reject acks=all while a node is replaced, since "
        detail += f"min.insync.replicas is the number of replicas: {_names(tight)}"
        fix = "Lower min.insync.replicas by one for the time of the migration."
        yield _finding("partitions", State.WARNING, detail, fix)


def _check_reassignments(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.reassignments:
        names = ", ".join(str(each) for each in list(facts.reassignments)[:SHOWN_MAX])
        detail = f"{len(facts.reassignments)} in flight: {names}"
        fix = "Wait until they end, or cancel them (`ottla topic reassign --cancel`)."
        yield _problem("reassignments", detail, fix)


def _check_topics(configs: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    for topic, settings in sorted(configs.items()):
        for name, text in sorted(settings.items()):
            yield from _check_topic_setting(topic, name, text)


def _check_topic_setting(topic: str, name: str, text: str) -> Iterator[Finding]:
    key = _TOPIC.get(name)
    if key is None:
        yield _topic(topic, State.PROBLEM, f"{name} is not a topic setting that Ottla knows",
                     f"`ottla config delete topic {topic} {name}`")  # fmt: skip
        return
    try:
        value = parse_checked(key, text)
    except BadValue as error:
        yield _topic(topic, State.PROBLEM, f"{name}={text} {error}", "Correct the setting.")
        return
    if name == _TIERED and value is True:
        detail = "is tiered: its old segments were stored by a plugin that Ottla does not have"
        fix = "Turn tiering off for the topic first (KIP-950), or copy it with `ottla mirror`."
        yield _topic(topic, State.PROBLEM, detail, fix)
    elif (reason := unsupported_value(key, value)) is not None:
        yield _topic(topic, State.PROBLEM, f"{name} {reason}", "Remove the setting.")
    elif name in UNSUPPORTED_KEYS:
        yield _topic(topic, State.IGNORED, f"{name}: {UNSUPPORTED_KEYS[name].reason}")


def _check_groups(groups: Mapping[str, int]) -> Iterator[Finding]:
    for kind, count in sorted(groups.items()):
        detail = plural(count, f"{kind or 'classic'} group")
        yield _finding("groups", State.SUPPORTED, detail)


def _check_disks(facts: ClusterFacts) -> Iterator[Finding]:
    for disk in facts.disks:
        subject = f"node {disk.node_id}, {disk.path}"
        if disk.error:
            yield _problem(subject, "the directory is offline", "Repair the disk first.")
        elif 0 <= disk.free_bytes < disk.total_bytes * FREE_FRACTION_MIN:
            detail = f"{human(disk.free_bytes)} of {human(disk.total_bytes)} are free"
            yield _finding(subject, State.WARNING, detail, "Free space before the migration.")


def _names(partitions: list[PartitionFacts]) -> str:
    more = f" and {len(partitions) - SHOWN_MAX} more" if len(partitions) > SHOWN_MAX else ""
    return ", ".join(str(each.name) for each in partitions[:SHOWN_MAX]) + more


def _topic(subject: str, state: State, detail: str, fix: str = "") -> Finding:
    return Finding(area=Area.TOPIC, subject=subject, state=state, detail=detail, fix=fix)


def _problem(subject: str, detail: str, fix: str) -> Finding:
    return _finding(subject, State.PROBLEM, detail, fix)


def _finding(subject: str, state: State, detail: str, fix: str = "") -> Finding:
    return Finding(area=Area.CLUSTER, subject=subject, state=state, detail=detail, fix=fix)
