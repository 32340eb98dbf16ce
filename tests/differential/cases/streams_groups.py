"""Streams groups (KIP-1071)."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Ranges
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import make_topic, wait_for_coordinator

TOPIC = "streams-topic"


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=2)
    wait_for_coordinator(script, "streams-group")


def _topology(**changes: object) -> dict[str, object]:
    values = {"subtopology_id": "0", "source_topics": [TOPIC], "source_topic_regex": []}
    values |= {"state_changelog_topics": [], "repartition_sink_topics": []}
    values |= {"repartition_source_topics": [], "copartition_groups": []}
    return {"epoch": 1, "subtopologies": [{**values, **changes}]}


def _values(script: Script, **changes: object) -> dict[str, object]:
    values = {"group_id": f"{script.name}-g", "member_id": "member-1", "member_epoch": 0}
    values |= {"endpoint_information_epoch": 0, "instance_id": None, "rack_id": None}
    values |= {"rebalance_timeout": 30_000, "topology": _topology(), "active_tasks": []}
    values |= {"standby_tasks": [], "warmup_tasks": [], "process_id": "process-1"}
    values |= {"user_endpoint": None, "client_tags": [], "task_offsets": None}
    return {**values, "task_end_offsets": None, "shutdown_application": False, **changes}


def _steady(script: Script, epoch: int, **changes: object) -> dict[str, object]:
    quiet = {"rebalance_timeout": -1, "topology": None, "active_tasks": None}
    quiet |= {"standby_tasks": None, "warmup_tasks": None, "process_id": None}
    return _values(script, member_epoch=epoch, **{**quiet, "client_tags": None, **changes})


def _join(script: Script) -> dict[str, object]:
    return _values(script)


def _rich(script: Script) -> dict[str, object]:
    topic = {"name": f"{script.name}-repartition", "partitions": 2, "replication_factor": 1}
    topic["topic_configs"] = [{"key": "retention.ms", "value": "5000"}]
    log = {**topic, "name": f"{script.name}-changelog", "partitions": 0}
    topology = _topology(
        state_changelog_topics=[log],
        repartition_source_topics=[topic],
        copartition_groups=[
            {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [0]}
        ],
    )
    endpoint = {"host": "localhost", "port": 99}
    tags = [{"key": "zone", "value": "a"}]
    return _values(script, topology=topology, user_endpoint=endpoint, client_tags=tags)


def _prepare(script: Script) -> None:
    script.quietly("streams_group_heartbeat", 0, **_values(script))


def _beat(script: Script) -> dict[str, object]:
    return _steady(script, 1)


def _describe(script: Script) -> dict[str, object]:
    return {"group_ids": [f"{script.name}-g"], "include_authorized_operations": True}


def _life(script: Script) -> None:
    group = f"{script.name}-g"

    def beat(label: str, values: dict[str, object]) -> None:
        script.call("streams_group_heartbeat", 0, label, **values)

    def describe(label: str) -> None:
        script.call("streams_group_describe", 0, label, group_ids=[group])

    beat("join", _values(script))
    describe("joined")
    tasks = [{"subtopology_id": "0", "partitions": [0, 1]}]
    owned = {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []}
    beat("owned", _steady(script, 2, **owned))
    beat("steady", _steady(script, 1))
    beat("steady again", _steady(script, 2))
    describe("stable")
    beat("all fields", _steady(script, 2, rebalance_timeout=30_000, **owned))
    lost = {**owned, "active_tasks": []}
    beat("all fields, tasks lost", _steady(script, 2, rebalance_timeout=30_000, **lost))
    beat("previous epoch", _steady(script, 1, **owned))
    beat("wrong epoch", _steady(script, 9))
    beat("older epoch", _steady(script, 0))
    beat("nobody", _steady(script, 2, member_id="nobody"))
    beat("only active tasks", _steady(script, 2, active_tasks=tasks))
    newer = {**_topology(), "epoch": 2}
    beat("topology in a heartbeat", _steady(script, 2, topology=newer))
    beat("join with a newer topology", _values(script, topology=newer))
    beat("join without topology", _values(script, topology=None, member_id="member-2"))
    beat("shut down", _steady(script, 2, shutdown_application=True))
    beat("steady after", _steady(script, 2))
    beat("leave", _steady(script, -1))
    beat("leave again", _steady(script, -1))
    describe("empty")
    script.call("delete_groups", 2, groups_names=[group])


def _lost_replies(script: Script) -> None:
    """A member whose epoch rises while it keeps a task, and which may have missed the reply."""

    def beat(label: str, values: dict[str, object]) -> None:
        script.call("streams_group_heartbeat", 0, label, **values)

    def owns(*partitions: int) -> dict[str, object]:
        tasks = [{"subtopology_id": "0", "partitions": list(partitions)}] if partitions else []
        return {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []}

    full = {"rebalance_timeout": 30_000, "process_id": "process-1", "client_tags": []}
    second = {"member_id": "member-2", "process_id": "process-2"}
    beat("first joins", _values(script))
    beat("first has its tasks", _steady(script, 2, **owns(0, 1)))
    beat("second joins", _values(script, **second))
    beat("first is to revoke", _steady(script, 2, **owns(0, 1)))
    beat("first is to revoke, asked again", _steady(script, 2, **full, **owns(0, 1)))
    for kept in (0, 1):  # the assignor chooses; the other one is not accepted as revoked
        beat(f"first keeps {kept}", _steady(script, 2, **owns(kept)))
    for kept in (0, 1):
        beat(f"previous epoch, keeps {kept}", _steady(script, 2, **owns(kept)))
        beat(f"previous epoch, all fields, keeps {kept}", _steady(script, 2, **full, **owns(kept)))
    beat("previous epoch, task lost", _steady(script, 2, **owns()))
    beat("previous epoch, all fields, task lost", _steady(script, 2, **full, **owns()))
    beat("previous epoch, no tasks said", _steady(script, 2))
    beat("all fields, task lost", _steady(script, 3, **full, **owns()))
    beat("second gets the task", _steady(script, 3, **{"member_id": "member-2"}))


def _unknown_topics(script: Script) -> None:
    topology = _topology(source_topics=["streams-unknown"])
    script.call("streams_group_heartbeat", 0, "missing", **_values(script, topology=topology))
    script.call("streams_group_describe", 0, group_ids=[f"{script.name}-g"])


def cases(ranges: Ranges) -> Iterator[Case]:
    for label, template, prepare in (
        ("join", _join, None),
        ("rich join", _rich, None),
        ("beat", _beat, _prepare),
    ):
        plan = Plan("streams_group_heartbeat", template, prepare=prepare)
        for case in cases_of(plan, "streams_groups", ranges):
            yield Case(case.name.replace("streams_group_heartbeat", label), case.play)
    plan = Plan("streams_group_describe", _describe, prepare=_prepare)
    yield from cases_of(plan, "streams_groups", ranges)
    yield Case("streams_groups/life", _life)
    yield Case("streams_groups/lost replies", _lost_replies)
    yield Case("streams_groups/unknown topics", _unknown_topics)
