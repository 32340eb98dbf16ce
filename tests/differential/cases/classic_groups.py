"""Groups of the classic protocol: join, sync, heartbeat, leave, describe, list, delete."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Play, Ranges, request
from tests.differential.mutations import TEXTS, Plan, cases_of
from tests.differential.script import Reply, Script
from tests.differential.steps import wait_for_coordinator

PROTOCOLS = [{"name": "range", "metadata": b"m"}, {"name": "sticky", "metadata": b"n"}]


def setup(script: Script) -> None:
    wait_for_coordinator(script, "classic-group")


def _join_values(script: Script, **changes: object) -> dict[str, object]:
    values = {"group_id": f"{script.name}-g", "session_timeout": 30_000}
    values |= {"rebalance_timeout": 30_000, "member_id": "", "group_instance_id": None}
    values |= {"protocol_type": "consumer", "protocols": PROTOCOLS, "reason": "a reason"}
    return {**values, **changes}


def _join(script: Script) -> dict[str, object]:
    return _join_values(script)


def _static(script: Script) -> dict[str, object]:
    return _join_values(script, group_instance_id="i-1")


def _unreadable(script: Script) -> dict[str, object]:
    return _join_values(script, protocols=[{"name": "range", "metadata": b"garbage!" * 9}])


def joined(script: Script, version: int = 3, **changes: object) -> Reply:
    """Join a group as its only member, twice where an id is given out first; record both."""
    values = _join_values(script, **changes)
    reply = script.call("join_group", version, "join", **values)
    if reply.get("error_code") == 79:
        values["member_id"] = reply["member_id"]
        reply = script.call("join_group", version, "join with the id", **values)
    return reply


def _generation(script: Script) -> dict[str, object]:
    """Return a group with one member, made for a request about it."""
    memory = script.memory
    return {
        "group_id": f"{script.name}-g",
        "generation_id": 1,
        "member_id": memory["classic-member"],
        "group_instance_id": None,
    }


def _prepare(script: Script) -> None:
    reply = script.quietly("join_group", 3, **_join_values(script))
    script.memory["classic-member"] = reply["member_id"]


def _prepare_stable(script: Script) -> None:
    _prepare(script)
    script.quietly("sync_group", 3, **_sync(script))


def _sync(script: Script) -> dict[str, object]:
    assignment = [{"member_id": script.memory["classic-member"], "assignment": b"a"}]
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    return {**_generation(script), **protocol, "assignments": assignment}


def _leave(script: Script) -> dict[str, object]:
    member = script.memory["classic-member"]
    return {
        "group_id": f"{script.name}-g",
        "member_id": member,
        "members": [{"member_id": member, "group_instance_id": None, "reason": None}],
    }


def _describe(script: Script) -> dict[str, object]:
    return {"groups": [f"{script.name}-g"], "include_authorized_operations": True}


def _delete(script: Script) -> dict[str, object]:
    return {"groups_names": [f"{script.name}-g"]}


def _list(script: Script) -> dict[str, object]:
    return {"states_filter": ["Stable"], "types_filter": ["classic"]}


def _life(version: int, instance: str | None) -> Play:
    """A member's whole life, with the mistakes it can make at each point."""

    def play(script: Script) -> None:
        group = f"{script.name}-g"
        reply = joined(script, version, group_instance_id=instance)
        member = reply.get("member_id", "")
        base = {"group_id": group, "member_id": member, "group_instance_id": instance}
        later = min(version, 4)

        def beat(label: str, **changes: object) -> None:
            script.call("heartbeat", later, label, **{**base, "generation_id": 1, **changes})

        beat("before the sync")
        rows = [{"member_id": member, "assignment": b"mine"}]
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        sync = {**base, **protocol, "generation_id": 1, "assignments": rows}
        later_sync = min(version, 5)
        script.call("sync_group", later_sync, "wrong generation", **{**sync, "generation_id": 9})
        script.call("sync_group", later_sync, "wrong protocol", **{**sync, "protocol_name": "x"})
        script.call("sync_group", later_sync, "sync", **sync)
        script.call("sync_group", later_sync, "sync again", **{**sync, "assignments": []})
        beat("stable")
        beat("wrong generation", generation_id=0)
        beat("negative generation", generation_id=-1)
        beat("wrong member", member_id="nobody")
        beat("wrong instance", group_instance_id="other")
        beat("empty group", group_id="")
        script.call("describe_groups", min(version, 6), "stable", groups=[group])
        script.call("delete_groups", 2, "not empty", groups_names=[group])
        again = _join_values(script, member_id=member, group_instance_id=instance)
        script.call("join_group", version, "join again", **again)
        other = _join_values(script, protocols=[{"name": "other", "metadata": b""}])
        script.call("join_group", version, "no common protocol", **other)
        other = _join_values(script, protocol_type="connect")
        script.call("join_group", version, "another type", **other)
        script.call("join_group", version, "unknown member", **_join_values(script, member_id="x"))
        rows = [{"member_id": member, "group_instance_id": instance}]
        leave = {"group_id": group, "member_id": member, "members": rows}
        script.call("leave_group", min(version, 5), "leave", **leave)
        script.call("leave_group", min(version, 5), "leave again", **leave)
        script.call("describe_groups", min(version, 6), "empty", groups=[group])
        beat("after leaving")
        script.call("delete_groups", 2, "delete", groups_names=[group, group])
        script.call("delete_groups", 2, "delete again", groups_names=[group])
        script.call("describe_groups", min(version, 6), "dead", groups=[group])

    return play


def _static_again(version: int) -> Play:
    """A static member comes back under its instance id and fences its former self."""

    def play(script: Script) -> None:
        first = script.call("join_group", version, **_join_values(script, group_instance_id="i"))
        group, old = f"{script.name}-g", first.get("member_id", "")
        rows = [{"member_id": old, "assignment": b"mine"}]
        base = {"group_id": group, "generation_id": 1, "group_instance_id": "i"}
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        script.call(
            "sync_group", min(version, 5), member_id=old, assignments=rows, **base, **protocol
        )
        again = script.call(
            "join_group", version, "again", **_join_values(script, group_instance_id="i")
        )
        new = again.get("member_id", "")
        script.call("heartbeat", min(version, 4), "old", member_id=old, **base)
        script.call("heartbeat", min(version, 4), "new", member_id=new, **base)
        wrong = _join_values(script, group_instance_id="i", member_id="x")
        script.call("join_group", version, "wrong id", **wrong)
        for label, members in {
            "old id": [{"member_id": old, "group_instance_id": "i"}],
            "unknown instance": [{"member_id": "", "group_instance_id": "zz"}],
            "both": [{"member_id": "", "group_instance_id": "i"}, {"member_id": "nobody"}],
        }.items():
            script.call("leave_group", 5, label, group_id=group, members=members)

    return play


def cases(ranges: Ranges) -> Iterator[Case]:
    # Members that cases leave behind in a group of the same name would meet.
    skip = frozenset(f"group_id='{text[:6]}'" for text in TEXTS if text)
    # Kafka does not answer a consumer whose metadata it cannot read: asked once, below.
    skip |= {"protocols[0].metadata=garbage"}
    for api, template, prepare in (
        ("join_group", _join, None),
        ("heartbeat", _generation, _prepare_stable),
        ("sync_group", _sync, _prepare),
        ("leave_group", _leave, _prepare_stable),
        ("describe_groups", _describe, _prepare_stable),
        ("delete_groups", _delete, _prepare_stable),
    ):
        yield from cases_of(
            Plan(api, template, skip=skip, prepare=prepare), "classic_groups", ranges
        )
    for case in cases_of(Plan("join_group", _static, skip=skip), "classic_groups", ranges):
        if case.name[-1] > "4":
            yield Case(case.name.replace("/join_group/", "/join static/"), case.play)
    for version in ranges.of("join_group"):
        yield Case(f"classic_groups/life of a member/v{version}", _life(version, None))
        if version >= 5:
            yield Case(f"classic_groups/life of a static member/v{version}", _life(version, "i-1"))
            yield Case(f"classic_groups/static member again/v{version}", _static_again(version))
    yield from cases_of(Plan("list_groups", _list), "classic_groups", ranges)
    for version in ranges.of("join_group"):
        play = request("join_group", version, _unreadable)
        yield Case(f"classic_groups/unreadable metadata/v{version}", play, 1.5)
