"""Share groups (KIP-932): members, fetch, acknowledgements, offsets and the share state."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Play, Ranges, request
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Reply, Script
from tests.differential.steps import fill, make_topic, wait_for_coordinator

TOPIC, STATE = "share-topic", "share-state-topic"
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=2)
    make_topic(script, STATE, partitions=2)
    fill(script, TOPIC, batches=2)
    wait_for_coordinator(script, "share-group")
    wait_for_coordinator(script, f"g:{_kafka_id(script.memory[TOPIC])}:0", 2)


def _kafka_id(topic_id: object) -> str:
    import base64

    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _beat_values(script: Script, **changes: object) -> dict[str, object]:
    values = {"group_id": f"{script.name}-g", "member_id": MEMBER, "member_epoch": 0}
    return {**values, "rack_id": None, "subscribed_topic_names": [TOPIC], **changes}


def _join(script: Script) -> dict[str, object]:
    return _beat_values(script)


def assigned(script: Script) -> Reply:
    """Join and wait until the member has its partitions; not compared."""
    reply = script.quietly("share_group_heartbeat", 1, **_beat_values(script))
    epoch = reply["member_epoch"]
    while not (reply.get("assignment") or {}).get("topic_partitions"):
        values = _beat_values(script, member_epoch=epoch, subscribed_topic_names=None)
        reply = script.wait(
            lambda reply: reply["assignment"] is not None, "share_group_heartbeat", 1, **values
        )
        epoch = reply["member_epoch"]
    return reply


def _prepare(script: Script) -> None:
    _from_start(script)
    assigned(script)


def _from_start(script: Script) -> None:
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": f"{script.name}-g", "configs": [config]}
    script.quietly("incremental_alter_configs", 1, resources=[resource])


def _describe(script: Script) -> dict[str, object]:
    return {"group_ids": [f"{script.name}-g"], "include_authorized_operations": True}


def _fetch_values(script: Script, **changes: object) -> dict[str, object]:
    part = {"partition_index": 0, "acknowledgement_batches": []}
    values = {"group_id": f"{script.name}-g", "member_id": MEMBER, "share_session_epoch": 0}
    values |= {"max_wait": 200, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500}
    values |= {"batch_size": 500, "share_acquire_mode": 0, "is_renew_ack": False}
    values["topics"] = [{"topic_id": script.memory[TOPIC], "partitions": [part]}]
    return {**values, "forgotten_topics_data": [], **changes}


def _fetch(script: Script) -> dict[str, object]:
    return _fetch_values(script)


def _acks(script: Script, first: int, last: int, *types: int) -> list[dict[str, object]]:
    batch = {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
    part = {"partition_index": 0, "acknowledgement_batches": [batch]}
    return [{"topic_id": script.memory[TOPIC], "partitions": [part]}]


def _acknowledge(script: Script) -> dict[str, object]:
    values = {"group_id": f"{script.name}-g", "member_id": MEMBER, "share_session_epoch": 1}
    return {**values, "is_renew_ack": False, "topics": _acks(script, 0, 4, 1)}


def _got_records(reply: Reply) -> bool:
    rows = [part for topic in reply["responses"] for part in topic["partitions"]]
    return any(part["acquired_records"] for part in rows)


def _prepare_fetched(script: Script) -> None:
    _from_start(script)
    assigned(script)
    script.quietly("share_fetch", 1, **_fetch_values(script))


def _life(version: int) -> Play:
    def play(script: Script) -> None:
        _from_start(script)
        assigned(script)
        group = f"{script.name}-g"
        script.call("share_fetch", version, "first", **_fetch_values(script))
        epoch = 0

        def acknowledge(label: str, topics: list[dict[str, object]], **changes: object) -> None:
            nonlocal epoch
            epoch += 1
            values = {"group_id": group, "member_id": MEMBER, "share_session_epoch": epoch}
            script.call(
                "share_acknowledge", version, label, **{**values, "topics": topics, **changes}
            )

        acknowledge("accept", _acks(script, 0, 1, 1))
        acknowledge("accept again", _acks(script, 0, 1, 1))
        acknowledge("release", _acks(script, 2, 2, 2))
        acknowledge("reject", _acks(script, 3, 3, 3))
        acknowledge("gap", _acks(script, 4, 4, 0))
        acknowledge("unknown type", _acks(script, 5, 5, 9))
        acknowledge("types for each", _acks(script, 5, 6, 1, 2))
        acknowledge("too many types", _acks(script, 7, 8, 1, 1, 1))
        acknowledge("no types", _acks(script, 7, 8))
        acknowledge("backwards", _acks(script, 8, 7, 1))
        acknowledge("not acquired", _acks(script, 100, 101, 1))
        epoch += 1
        again = _fetch_values(script, share_session_epoch=epoch)
        script.call("share_fetch", version, "what was released", **again)
        epoch += 5
        again = _fetch_values(script, share_session_epoch=epoch)
        script.call("share_fetch", version, "wrong epoch", **again)
        script.call(
            "share_fetch",
            version,
            "close",
            **_fetch_values(script, share_session_epoch=-1, topics=[]),
        )
        script.call(
            "describe_share_group_offsets",
            1,
            groups=[{"group_id": group, "topics": [{"topic_name": TOPIC, "partitions": [1]}]}],
        )
        leave = _beat_values(script, member_epoch=-1)
        script.call("share_group_heartbeat", 1, "leave", **leave)
        script.call("share_group_heartbeat", 1, "leave again", **leave)
        script.call("share_group_describe", 1, "empty", group_ids=[group])
        script.call("delete_groups", 2, "delete", groups_names=[group])

    return play


def _offsets(version: int) -> Play:
    def play(script: Script) -> None:
        group = f"{script.name}-g"
        _from_start(script)

        def alter(label: str, topic: str, partition: int, offset: int, name: str = group) -> None:
            part = {"partition_index": partition, "start_offset": offset}
            topics = [{"topic_name": topic, "partitions": [part]}]
            script.call("alter_share_group_offsets", 0, label, group_id=name, topics=topics)

        def describe(label: str, topics: list[dict[str, object]] | None) -> None:
            rows = [{"group_id": group, "topics": topics}]
            script.call("describe_share_group_offsets", version, label, groups=rows)

        alter("a new group", TOPIC, 0, 3)
        describe("after that", [{"topic_name": TOPIC, "partitions": [0]}])
        describe("all", None)
        alter("unknown topic", "share-unknown", 0, 1)
        alter("unknown partition", TOPIC, 9, 1)
        alter("empty group", TOPIC, 0, 1, "")
        describe("unknown topic", [{"topic_name": "share-unknown", "partitions": [0]}])
        for label, topics in {
            "delete": [TOPIC],
            "delete again": [TOPIC],
            "delete unknown": ["share-unknown"],
            "delete none": [],
        }.items():
            rows = [{"topic_name": topic} for topic in topics]
            script.call("delete_share_group_offsets", 0, label, group_id=group, topics=rows)
        script.call(
            "delete_share_group_offsets", 0, "empty", group_id="", topics=[{"topic_name": TOPIC}]
        )
        script.call(
            "delete_share_group_offsets",
            0,
            "unknown",
            group_id="nobody",
            topics=[{"topic_name": TOPIC}],
        )
        describe("after delete", None)

    return play


def _describe_offsets(script: Script) -> dict[str, object]:
    topics = [{"topic_name": TOPIC, "partitions": [0]}]
    return {"groups": [{"group_id": f"{script.name}-g", "topics": topics}]}


def _unknown_partition(script: Script) -> dict[str, object]:
    topics = [{"topic_name": TOPIC, "partitions": [99]}]
    return {"groups": [{"group_id": "share-group", "topics": topics}]}


def _prepare_offsets(script: Script) -> None:
    script.quietly("alter_share_group_offsets", 0, **_alter_offsets(script))


def _alter_offsets(script: Script) -> dict[str, object]:
    part = {"partition_index": 0, "start_offset": 3}
    topics = [{"topic_name": TOPIC, "partitions": [part]}]
    return {"group_id": f"{script.name}-g", "topics": topics}


def _delete_offsets(script: Script) -> dict[str, object]:
    return {"group_id": f"{script.name}-g", "topics": [{"topic_name": TOPIC}]}


def _state(script: Script, **partition: object) -> dict[str, object]:
    topics = [{"topic_id": script.memory[STATE], "partitions": [{"partition": 0, **partition}]}]
    return {"group_id": f"{script.name}-s", "topics": topics}


def _initialize(script: Script) -> dict[str, object]:
    return _state(script, state_epoch=1, start_offset=10)


def _read(script: Script) -> dict[str, object]:
    return _state(script, leader_epoch=0)


def _write(script: Script) -> dict[str, object]:
    batch = {"first_offset": 10, "last_offset": 12, "delivery_state": 0, "delivery_count": 1}
    values = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 10}
    return _state(script, **values, delivery_complete_count=0, state_batches=[batch])


def _prepare_state(script: Script) -> None:
    script.quietly("initialize_share_group_state", 0, **_initialize(script))


def cases(ranges: Ranges) -> Iterator[Case]:
    yield from cases_of(Plan("share_group_heartbeat", _join), "share_groups", ranges)
    for api, template, prepare in (
        ("share_group_describe", _describe, _prepare),
        ("share_fetch", _fetch, _prepare),
        ("share_acknowledge", _acknowledge, _prepare_fetched),
        ("describe_share_group_offsets", _describe_offsets, _prepare_offsets),
        ("alter_share_group_offsets", _alter_offsets, None),
        ("delete_share_group_offsets", _delete_offsets, _prepare_offsets),
        ("initialize_share_group_state", _initialize, None),
        ("read_share_group_state", _read, _prepare_state),
        ("read_share_group_state_summary", _read, _prepare_state),
        ("write_share_group_state", _write, _prepare_state),
        ("delete_share_group_state", _read, _prepare_state),
    ):
        # Where there is nothing to send, the longest wait is no wait that anybody can wait for.
        skip = frozenset({"max_wait=max"})
        # Kafka does not answer a question for partitions that are not there: asked once, below.
        skip |= {f"groups[0].topics[0].partitions[0]={word}" for word in ("99", "max")}
        yield from cases_of(Plan(api, template, skip=skip, prepare=prepare), "share_groups", ranges)
    for version in ranges.of("describe_share_group_offsets"):
        play = request("describe_share_group_offsets", version, _unknown_partition)
        yield Case(f"share_groups/offsets of an unknown partition/v{version}", play, 2.0)
    for version in ranges.of("share_fetch"):
        yield Case(f"share_groups/life/v{version}", _life(version))
    for version in ranges.of("describe_share_group_offsets"):
        yield Case(f"share_groups/offsets/v{version}", _offsets(version))
