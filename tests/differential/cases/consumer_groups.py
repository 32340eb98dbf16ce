"""Groups of the consumer protocol (KIP-848)."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Reply, Script
from tests.differential.steps import make_topic, wait_for_coordinator

TOPIC, OTHER = "consumer-topic", "consumer-other"
MEMBER = "member-1"


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=4)
    make_topic(script, OTHER, partitions=2)
    wait_for_coordinator(script, "consumer-group")


def _values(script: Script, **changes: object) -> dict[str, object]:
    values = {"group_id": f"{script.name}-g", "member_id": MEMBER, "member_epoch": 0}
    values |= {"instance_id": None, "rack_id": None, "rebalance_timeout": 30_000}
    values |= {"subscribed_topic_names": [TOPIC], "subscribed_topic_regex": None}
    values |= {"server_assignor": None, "topic_partitions": []}
    return {**values, **changes}


def _steady(script: Script, epoch: int, **changes: object) -> dict[str, object]:
    """A heartbeat that reports nothing new."""
    quiet = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    return _values(script, member_epoch=epoch, **{**quiet, **changes})


def _join(script: Script) -> dict[str, object]:
    return _values(script)


def _prepare(script: Script) -> None:
    script.quietly("consumer_group_heartbeat", 1, **_values(script))


def _beat(script: Script) -> dict[str, object]:
    return _steady(script, 1)


def owned(script: Script, *partitions: int, topic: str = TOPIC) -> list[dict[str, object]]:
    return [{"topic_id": script.memory[topic], "partitions": list(partitions)}]


def _describe(script: Script) -> dict[str, object]:
    return {"group_ids": [f"{script.name}-g"], "include_authorized_operations": True}


def _life(version: int, **changes: object) -> Play:
    def play(script: Script) -> None:
        def beat(label: str, values: dict[str, object]) -> Reply:
            return script.call("consumer_group_heartbeat", version, label, **values)

        def describe(label: str) -> None:
            script.call("consumer_group_describe", version, label, group_ids=[f"{script.name}-g"])

        beat("join", _values(script, **changes))
        describe("after the join")
        beat("steady", _steady(script, 1))
        beat("with what is owned", _steady(script, 1, topic_partitions=owned(script, 0, 1, 2, 3)))
        beat("wrong epoch", _steady(script, 7))
        beat("old epoch", _steady(script, 0))
        beat("epoch -3", _steady(script, -3))
        beat("nobody", _steady(script, 1, member_id="nobody"))
        beat("join again", _values(script, **changes))
        beat("other topic", _steady(script, 1, subscribed_topic_names=[OTHER]))
        describe("while it revokes")
        beat("revoked", _steady(script, 1, topic_partitions=[]))
        beat("no topics", _steady(script, 2, subscribed_topic_names=[]))
        describe("without topics")
        beat("unknown topic", _steady(script, 3, subscribed_topic_names=["consumer-unknown"]))
        beat("leave", _steady(script, -1, **changes))
        describe("empty")
        beat("leave again", _steady(script, -1, **changes))
        script.call("list_groups", 5, types_filter=["consumer"], states_filter=["Dead"])
        script.call("delete_groups", 2, groups_names=[f"{script.name}-g"])

    return play


def _commits(version: int) -> Play:
    """Offsets committed by a member, with right and wrong epochs."""

    def play(script: Script) -> None:
        script.call("consumer_group_heartbeat", 1, **_values(script))
        part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
        topics = [{"name": TOPIC, "topic_id": script.memory[TOPIC], "partitions": [part]}]
        for epoch, member in (
            (1, MEMBER),
            (0, MEMBER),
            (2, MEMBER),
            (-1, ""),
            (-1, MEMBER),
            (1, "x"),
        ):
            script.call(
                "offset_commit",
                version,
                f"epoch {epoch} of '{member}'",
                group_id=f"{script.name}-g",
                generation_id_or_member_epoch=epoch,
                member_id=member,
                topics=topics,
            )
            if version >= 9:
                group = {"group_id": f"{script.name}-g", "member_id": member, "member_epoch": epoch}
                group["topics"] = [{"name": TOPIC, "topic_id": topics[0]["topic_id"]}]
                group["topics"][0]["partition_indexes"] = [0]
                script.call(
                    "offset_fetch", version, f"fetch at {epoch} of '{member}'", groups=[group]
                )
        script.call(
            "offset_delete",
            0,
            group_id=f"{script.name}-g",
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        )

    return play


def _two_members(script: Script) -> None:
    call = lambda label, values: script.call("consumer_group_heartbeat", 1, label, **values)  # noqa: E731
    group = f"{script.name}-g"
    call("first", _values(script))
    call("first has all", _steady(script, 1, topic_partitions=owned(script, 0, 1, 2, 3)))
    call("second", _values(script, member_id="member-2"))
    script.call("consumer_group_describe", 1, "second waits", group_ids=[group])
    call("first revokes", _steady(script, 1))
    call("first has revoked", _steady(script, 1, topic_partitions=owned(script, 0, 1)))
    call("second gets", _steady(script, 2, member_id="member-2"))
    script.call("consumer_group_describe", 1, "both", group_ids=[group])
    call("second leaves", _steady(script, -1, member_id="member-2"))
    call("first gets all", _steady(script, 2))


def _static_members(script: Script) -> None:
    call = lambda label, values: script.call("consumer_group_heartbeat", 1, label, **values)  # noqa: E731
    call("join", _values(script, instance_id="i"))
    call("same instance", _values(script, instance_id="i", member_id="member-2"))
    call("leave for a while", _steady(script, -2, instance_id="i"))
    call("come back", _values(script, instance_id="i", member_id="member-2"))
    call("the former", _steady(script, 1, instance_id="i"))
    call("wrong instance", _steady(script, 1, instance_id="zz", member_id="member-2"))
    call("leave for good", _steady(script, -1, instance_id="i", member_id="member-2"))
    call("-2 without instance", _steady(script, -2))


def _mixed_protocols(script: Script) -> None:
    """Classic requests at a group of the consumer protocol, and the reverse."""
    group = f"{script.name}-g"
    script.call("consumer_group_heartbeat", 1, **_values(script))
    base = {"group_id": group, "generation_id": 1, "member_id": MEMBER, "group_instance_id": None}
    script.call("heartbeat", 4, "classic heartbeat", **base)
    script.call("sync_group", 5, "classic sync", assignments=[], **base)
    for version in (2, 5):
        members = [{"member_id": "nobody"}, {"member_id": MEMBER}]
        values = {"group_id": group, "member_id": MEMBER, "members": members}
        script.call("leave_group", version, f"classic leave v{version}", **values)
        script.call("consumer_group_heartbeat", 1, "back", **_values(script))
    join = {"group_id": group, "session_timeout": 30_000, "rebalance_timeout": 30_000}
    join |= {"member_id": "", "group_instance_id": None, "protocol_type": "connect"}
    join["protocols"] = [{"name": "range", "metadata": b""}]
    script.call("join_group", 9, "of another type", **join)
    script.call("join_group", 9, "bad metadata", **{**join, "protocol_type": "consumer"})
    script.call("describe_groups", 6, groups=[group])
    script.call(
        "share_group_heartbeat",
        1,
        group_id=group,
        member_id="m",
        member_epoch=0,
        subscribed_topic_names=[TOPIC],
    )


def _regex(script: Script) -> None:
    values = _values(script, subscribed_topic_names=[], subscribed_topic_regex="[")
    script.call("consumer_group_heartbeat", 1, "bad regex", **values)
    values = _values(script, subscribed_topic_names=None, subscribed_topic_regex="consumer-to.*")
    script.call("consumer_group_heartbeat", 1, "regex", **values)
    script.until(
        lambda reply: reply["member_epoch"] > 1,
        "consumer_group_heartbeat",
        1,
        "once resolved",
        **_steady(script, 1),
    )


def _regex_and_names(script: Script) -> None:
    """The topics that a member names come first, those of its expression with a later heartbeat."""
    values = _values(script, subscribed_topic_regex="consumer-to.*", subscribed_topic_names=[OTHER])
    script.call("consumer_group_heartbeat", 1, "both", **values)


def cases(ranges: Ranges) -> Iterator[Case]:
    for case in cases_of(Plan("consumer_group_heartbeat", _join), "consumer_groups", ranges):
        yield Case(case.name.replace("consumer_group_heartbeat", "join"), case.play)
    plan = Plan("consumer_group_heartbeat", _beat, prepare=_prepare)
    yield from cases_of(plan, "consumer_groups", ranges)
    plan = Plan("consumer_group_describe", _describe, prepare=_prepare)
    yield from cases_of(plan, "consumer_groups", ranges)
    for version in ranges.of("consumer_group_heartbeat"):
        yield Case(f"consumer_groups/life/v{version}", _life(version))
        yield Case(
            f"consumer_groups/life, range/v{version}", _life(version, server_assignor="range")
        )
        yield Case(f"consumer_groups/life, static/v{version}", _life(version, instance_id="i-1"))
    for version in ranges.of("offset_commit"):
        yield Case(f"consumer_groups/commits/v{version}", _commits(version))
    yield Case("consumer_groups/two members", _two_members)
    yield Case("consumer_groups/static members", _static_members)
    yield Case("consumer_groups/mixed protocols", _mixed_protocols)
    yield Case("consumer_groups/regex", _regex)
    yield Case("consumer_groups/regex and names", _regex_and_names)
