"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, FindCoordinator."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import UNKNOWN_ID, Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import make_topic, wait_for_coordinator

TOPIC = "offsets-topic"
GROUP = "offsets-group"


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=2)
    wait_for_coordinator(script, GROUP)
    script.quietly("offset_commit", 8, **_commit(script))


def _commit(script: Script) -> dict[str, object]:
    part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 0}
    part["committed_metadata"] = "note"
    topics = [{"name": TOPIC, "topic_id": script.memory[TOPIC], "partitions": [part]}]
    values = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    return {**values, "retention_time": -1, "group_instance_id": None, "topics": topics}


def _fetch(script: Script) -> dict[str, object]:
    topic = {"name": TOPIC, "topic_id": script.memory[TOPIC], "partition_indexes": [0, 1]}
    group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": [topic]}
    return {"group_id": GROUP, "topics": [topic], "groups": [group], "require_stable": False}


def _all(version: int) -> Play:
    def play(script: Script) -> None:
        for group in (GROUP, "offsets-unknown", ""):
            rows = [{"group_id": group, "topics": None}]
            label = f"all of '{group}'"
            script.call("offset_fetch", version, label, group_id=group, topics=None, groups=rows)
        rows = [{"group_id": GROUP, "topics": None}] * 2
        script.call(
            "offset_fetch", version, "a group twice", group_id=GROUP, topics=None, groups=rows
        )

    return play


def _mixed(version: int) -> Play:
    """Unknown topics and partitions beside known ones."""

    def play(script: Script) -> None:
        part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
        topics = [
            {"name": TOPIC, "topic_id": script.memory[TOPIC], "partitions": [part]},
            {"name": "offsets-unknown", "topic_id": UNKNOWN_ID, "partitions": [part]},
            {
                "name": TOPIC,
                "topic_id": script.memory[TOPIC],
                "partitions": [{**part, "partition_index": 7}],
            },
        ]
        group = f"{script.name}-g"
        base = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        script.call("offset_commit", version, topics=topics, **base)
        long = [{**topics[0], "partitions": [{**part, "committed_metadata": "m" * 5000}]}]
        script.call("offset_commit", version, "metadata too large", topics=long, **base)
        script.call("offset_commit", version, "no topics", topics=[], **base)
        for generation, member in ((1, ""), (-1, "nobody"), (3, "nobody"), (-2, "")):
            base = {"group_id": group, "generation_id_or_member_epoch": generation}
            label = f"generation {generation} member '{member}'"
            script.call(
                "offset_commit", version, label, member_id=member, topics=topics[:1], **base
            )
        base = {"group_id": f"{group}-new", "generation_id_or_member_epoch": 1, "member_id": "x"}
        script.call("offset_commit", version, "a group not there", topics=topics[:1], **base)

    return play


def _delete(script: Script) -> dict[str, object]:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    return {"group_id": f"{script.name}-g", "topics": topics}


def _prepare_delete(script: Script) -> None:
    script.quietly("offset_commit", 8, **{**_commit(script), "group_id": f"{script.name}-g"})


def _find(script: Script) -> dict[str, object]:
    return {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP]}


def _found(version: int) -> Play:
    def play(script: Script) -> None:
        share = f"group:{UNKNOWN_ID.hex}:0"
        for key_type in (0, 1, 2, 3, -1):
            for key in ("x", "", "a:b", "a:b:c"):
                label = f"type {key_type} key '{key}'"
                script.until(
                    # The topic of a kind of coordinator is created by the first request.
                    lambda reply: all(
                        row["error_code"] != 15 for row in reply.get("coordinators", [reply])
                    ),
                    "find_coordinator",
                    version,
                    label,
                    key=key,
                    key_type=key_type,
                    coordinator_keys=[key],
                )
        keys = [GROUP, GROUP, "other"]
        script.call("find_coordinator", version, "twice", key=GROUP, coordinator_keys=keys)
        script.call(
            "find_coordinator", version, "hex id", key=share, key_type=2, coordinator_keys=[share]
        )

    return play


def cases(ranges: Ranges) -> Iterator[Case]:
    for api, template, prepare in (
        ("offset_commit", _commit, None),
        ("offset_fetch", _fetch, None),
        ("offset_delete", _delete, _prepare_delete),
        ("find_coordinator", _find, None),
    ):
        yield from cases_of(Plan(api, template, prepare=prepare), "offsets", ranges)
    for version in ranges.of("offset_fetch"):
        yield Case(f"offsets/all/v{version}", _all(version))
    for version in ranges.of("offset_commit"):
        yield Case(f"offsets/mixed/v{version}", _mixed(version))
    for version in ranges.of("find_coordinator"):
        yield Case(f"offsets/coordinators/v{version}", _found(version))
