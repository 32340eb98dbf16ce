"""Transactions and producer ids."""

from collections.abc import Iterator

from tests.differential.batches import Batch
from tests.differential.catalogue import Case, Play, Ranges, request
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Reply, Script
from tests.differential.steps import latest, make_topic, produce, wait_for_coordinator

TOPIC = "transactions-topic"
BUSY = 51


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=2)
    wait_for_coordinator(script, "transactions-group")
    wait_for_coordinator(script, "transactions-id", 1)
    _init(script, "transactions-warm")


def _init_values(name: str | None, **changes: object) -> dict[str, object]:
    values = {"transactional_id": name, "transaction_timeout": 60_000}
    values |= {"producer_id": -1, "producer_epoch": -1}
    return {**values, "enable2_pc": False, "keep_prepared_txn": False, **changes}


def _init(script: Script, name: str) -> Reply:
    return script.wait(
        lambda reply: reply["error_code"] == 0, "init_producer_id", 4, **_init_values(name)
    )


def _init_id(script: Script) -> dict[str, object]:
    return _init_values(f"{script.name}-t")


def _init_idempotent(script: Script) -> dict[str, object]:
    return _init_values(None)


def _prepare(script: Script) -> None:
    reply = _init(script, f"{script.name}-t")
    script.memory["producer"] = reply["producer_id"]


def _prepare_open(script: Script) -> None:
    _prepare(script)
    script.quietly("add_partitions_to_txn", 3, **_add(script))


def _identity(script: Script) -> dict[str, object]:
    values = {"transactional_id": f"{script.name}-t", "producer_epoch": 0}
    memory = script.memory["producer"]
    return {**values, "producer_id": memory if isinstance(memory, int) else 7}


def _add(script: Script) -> dict[str, object]:
    topics = [{"name": TOPIC, "partitions": [0]}]
    identity = _identity(script)
    old = {f"v3_and_below_{key}": value for key, value in identity.items()}
    transaction = {**identity, "verify_only": False, "topics": topics}
    return {**old, "v3_and_below_topics": topics, "transactions": [transaction]}


def _add_offsets(script: Script) -> dict[str, object]:
    return {**_identity(script), "group_id": "transactions-group"}


def _end(script: Script) -> dict[str, object]:
    return {**_identity(script), "committed": True}


def _offsets(script: Script) -> dict[str, object]:
    part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
    part["committed_metadata"] = "note"
    topics = [{"name": TOPIC, "partitions": [part]}]
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return {**_identity(script), "group_id": "transactions-group", **member, "topics": topics}


def _prepare_offsets(script: Script) -> None:
    _prepare(script)
    script.quietly("add_offsets_to_txn", 3, **_add_offsets(script))


def _markers(script: Script) -> dict[str, object]:
    topics = [{"name": TOPIC, "partition_indexes": [1]}]
    marker = {"producer_id": 77, "producer_epoch": 0, "transaction_result": True}
    return {"markers": [{**marker, "topics": topics, "coordinator_epoch": 0}]}


def _marker_twice(script: Script) -> dict[str, object]:
    (marker,) = _markers(script)["markers"]
    return {"markers": [{**marker, "topics": marker["topics"] * 2}]}


def _describe(script: Script) -> dict[str, object]:
    return {"transactional_ids": [f"{script.name}-t"]}


def _list(script: Script) -> dict[str, object]:
    values = {"state_filters": ["Ongoing"], "producer_id_filters": [1_000_000]}
    return {**values, "duration_filter": -1, "transactional_id_pattern": "no-such.*"}


def _whole(produce_version: int, end_version: int) -> Play:
    """A transaction from begin to end, with mistakes on the way; committed, then aborted."""

    def play(script: Script) -> None:
        name = f"{script.name}-t"
        reply = script.call("init_producer_id", 5, **_init_values(name))
        identity = {"producer_id": reply.get("producer_id", -1), "producer_epoch": 0}
        batch = Batch(count=2, attributes=0x10, sequence=0, **identity)

        def write(label: str, batch: Batch, **options: object) -> None:
            records = batch.encode()
            produce(script, produce_version, TOPIC, records, label, transactional_id=name)

        if produce_version < 12:
            write("before it is added", batch)
            script.call(
                "add_partitions_to_txn",
                3,
                **{
                    **{f"v3_and_below_{k}": v for k, v in identity.items()},
                    "v3_and_below_transactional_id": name,
                    "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
                },
            )
        write("write", batch)
        write("again", batch)
        write("gap", batch.but(sequence=9))
        write("not transactional", batch.but(attributes=0, sequence=2))
        produce(script, produce_version, TOPIC, batch.encode(), "id missing")
        latest(script, TOPIC, isolation=0)
        latest(script, TOPIC, isolation=1)
        script.call("describe_transactions", 0, transactional_ids=[name])
        end = {"transactional_id": name, **identity}
        script.call(
            "end_txn", end_version, "older epoch", **{**end, "producer_epoch": -1}, committed=True
        )
        reply = script.call("end_txn", end_version, "commit", **end, committed=True)
        newer = {**end}
        if reply.get("producer_epoch", -1) > 0:
            newer = {
                **end,
                "producer_id": reply["producer_id"],
                "producer_epoch": reply["producer_epoch"],
            }
        script.until(
            lambda reply: reply["transaction_states"][0]["transaction_state"] != "PrepareCommit",
            "describe_transactions",
            0,
            "complete",
            transactional_ids=[name],
        )
        script.call("end_txn", end_version, "commit again", **end, committed=True)
        script.call("end_txn", end_version, "abort after commit", **end, committed=False)
        script.call("end_txn", end_version, "empty", **newer, committed=True)
        latest(script, TOPIC, isolation=1)

    return play


def _fenced(script: Script) -> None:
    """InitProducerId raises the epoch: the former producer is fenced."""
    name = f"{script.name}-t"
    first = script.call("init_producer_id", 5, **_init_values(name))
    second = script.call("init_producer_id", 5, "again", **_init_values(name))
    old = {"producer_id": first.get("producer_id"), "producer_epoch": 0}
    for api, version in (("add_partitions_to_txn", 3), ("end_txn", 3), ("end_txn", 5)):
        script.call(
            api,
            version,
            f"{api} v{version} of the former",
            **{f"v3_and_below_{key}": value for key, value in old.items()},
            **old,
            transactional_id=name,
            v3_and_below_transactional_id=name,
            v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
            committed=True,
        )
    for label, changes in {
        "right epoch": {"producer_id": second.get("producer_id"), "producer_epoch": 1},
        "wrong epoch": {"producer_id": second.get("producer_id"), "producer_epoch": 9},
        "wrong id": {"producer_id": 5, "producer_epoch": 1},
        "id without epoch": {"producer_id": 5, "producer_epoch": -1},
        "epoch without id": {"producer_id": -1, "producer_epoch": 1},
        "timeout 0": {"transaction_timeout": 0},
        "timeout too large": {"transaction_timeout": 1 << 30},
        "two-phase": {"enable2_pc": True},
    }.items():
        script.call("init_producer_id", 5, label, **_init_values(name, **changes))
    for version in (0, 3, 5):
        values = _init_values("", producer_id=-1)
        script.call("init_producer_id", version, f"empty id v{version}", **values)


def _offsets_in_transaction(version: int) -> Play:
    def play(script: Script) -> None:
        name, group = f"{script.name}-t", f"{script.name}-g"
        reply = _init(script, name)
        identity = {"transactional_id": name, "producer_id": reply["producer_id"]}
        identity["producer_epoch"] = 0
        values = {**_offsets(script), **identity, "group_id": group}
        if version < 5:
            script.call("add_offsets_to_txn", min(version, 4), **identity, group_id=group)
        script.call("txn_offset_commit", version, "commit offsets", **values)
        script.call(
            "txn_offset_commit",
            version,
            "wrong member",
            **{**values, "member_id": "x", "generation_id": 3},
        )
        script.call("txn_offset_commit", version, "wrong epoch", **{**values, "producer_epoch": 5})
        ask = {"groups": [{"group_id": group, "topics": None}]}
        script.call("offset_fetch", 8, "before the end", **ask)
        script.call("offset_fetch", 8, "stable only", **ask, require_stable=True)
        script.call("end_txn", 4 if version < 5 else 5, **identity, committed=True)
        script.until(
            lambda reply: (
                reply["groups"][0]["error_code"] == 0 and bool(reply["groups"][0]["topics"])
            ),
            "offset_fetch",
            8,
            "after the end",
            **ask,
        )

    return play


def cases(ranges: Ranges) -> Iterator[Case]:
    for api, template, prepare in (
        ("init_producer_id", _init_id, None),
        ("add_partitions_to_txn", _add, _prepare),
        ("add_offsets_to_txn", _add_offsets, _prepare),
        ("end_txn", _end, _prepare_open),
        ("txn_offset_commit", _offsets, _prepare_offsets),
        ("describe_transactions", _describe, _prepare_open),
        ("list_transactions", _list, None),
        ("write_txn_markers", _markers, None),
    ):
        # Kafka never answers a verification of no transactions, nor one marker for a place twice.
        skip = frozenset({"transactions=[]", "markers[0].topics twice"})
        skip |= {"markers[0].topics[0].partition_indexes twice"}
        yield from cases_of(Plan(api, template, skip=skip, prepare=prepare), "transactions", ranges)
    none = request("add_partitions_to_txn", 5, lambda script: {"transactions": []})
    yield Case("transactions/no transactions/v5", none, 2.0)
    for version in ranges.of("write_txn_markers"):
        play = request("write_txn_markers", version, _marker_twice)
        yield Case(f"transactions/a marker twice/v{version}", play, 2.0)
    for case in cases_of(Plan("init_producer_id", _init_idempotent), "transactions", ranges):
        yield Case(case.name.replace("/init_producer_id/", "/init idempotent/"), case.play)
    for version in ranges.of("produce"):
        for end in (3, 4, 5):
            yield Case(f"transactions/whole, end v{end}/v{version}", _whole(version, end))
    yield Case("transactions/fenced", _fenced)
    for version in ranges.of("txn_offset_commit"):
        yield Case(f"transactions/offsets/v{version}", _offsets_in_transaction(version))
