"""Fetch with its sessions, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from collections.abc import Iterator

import zstandard
from tests.differential.batches import TIME_MS, Batch, record
from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import UNKNOWN_ID, Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import fill, make_topic, write

TOPIC, EMPTY = "fetch-topic", "fetch-empty"
ZSTD, SENT_AS_ZSTD = "fetch-zstd", "fetch-sent-as-zstd"
_ZSTD_CODEC = 4


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=2)
    make_topic(script, EMPTY)
    fill(script, TOPIC, batches=3)
    make_topic(script, ZSTD, configs={"compression.type": "zstd"})
    make_topic(script, SENT_AS_ZSTD)
    records = zstandard.compress(b"".join(record(n, b"value %d" % n) for n in range(10)))
    for name in (ZSTD, SENT_AS_ZSTD):
        write(script, name, Batch(count=10, attributes=_ZSTD_CODEC, records=records).encode())


def _partition(**changes: object) -> dict[str, object]:
    values = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0}
    values |= {"last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
    return {**values, **changes}


def _topic(script: Script, *partitions: dict[str, object], name: str = TOPIC) -> dict[str, object]:
    return {"topic": name, "topic_id": script.memory[name], "partitions": list(partitions)}


def _values(script: Script, **changes: object) -> dict[str, object]:
    values = {"replica_id": -1, "max_wait": 10, "min_bytes": 1, "max_bytes": 1 << 20}
    values |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": ""}
    values |= {"topics": [_topic(script, _partition())], "forgotten_topics_data": []}
    return {**values, **changes}


def _fetch(script: Script) -> dict[str, object]:
    return _values(script)


ODD = {
    "beyond the end": {"fetch_offset": 1000},
    "before the start": {"fetch_offset": -5},
    "at the end": {"fetch_offset": 30},
    "inside a batch": {"fetch_offset": 13},
    "newer epoch": {"current_leader_epoch": 9},
    "older epoch": {"current_leader_epoch": -2},
    "last fetched epoch 5": {"last_fetched_epoch": 5},
    "one byte": {"partition_max_bytes": 1},
    "unknown partition": {"partition": 9},
}


def _odd(version: int, changes: dict[str, object]) -> Play:
    def play(script: Script) -> None:
        topics = [_topic(script, _partition(**changes), _partition(partition=1))]
        script.call("fetch", version, **_values(script, topics=topics))

    return play


def _session(version: int) -> Play:
    def play(script: Script) -> None:
        def call(label: str, **changes: object) -> dict[str, object]:
            return script.call("fetch", version, label, **_values(script, **changes))

        both = [_topic(script, _partition(), _partition(partition=1))]
        made = call("new session", session_epoch=0, topics=both)
        session = made.get("session_id", 0)
        call("nothing new", session_id=session, session_epoch=1, topics=[])
        moved = [_topic(script, _partition(fetch_offset=10))]
        call("moved on", session_id=session, session_epoch=2, topics=moved)
        call("epoch again", session_id=session, session_epoch=2, topics=[])
        call("unknown session", session_id=12345, session_epoch=1, topics=[])
        forgotten = [{"topic": TOPIC, "topic_id": script.memory[TOPIC], "partitions": [0]}]
        call(
            "forget",
            session_id=session,
            session_epoch=3,
            topics=[],
            forgotten_topics_data=forgotten,
        )
        unknown = [{"topic": "fetch-unknown", "topic_id": UNKNOWN_ID, "partitions": [_partition()]}]
        call("unknown topic", session_id=session, session_epoch=4, topics=unknown)
        call("unknown topic again", session_id=session, session_epoch=5, topics=[])
        call("close", session_id=session, session_epoch=-1, topics=[])
        call("after the close", session_id=session, session_epoch=6, topics=[])

    return play


def _zstd(version: int) -> Play:
    def play(script: Script) -> None:
        for name in (ZSTD, SENT_AS_ZSTD):
            topics = [_topic(script, _partition(), name=name)]
            script.call("fetch", version, name, **_values(script, topics=topics))

    return play


def _replica(version: int) -> Play:
    def play(script: Script) -> None:
        topics = [_topic(script, _partition())]
        state = {"replica_id": 5, "replica_epoch": 1}
        script.call(
            "fetch", version, "replica 5", **_values(script, replica_id=5, replica_state=state)
        )
        state = {"replica_id": 1, "replica_epoch": -1}
        values = _values(script, replica_id=1, replica_state=state, topics=topics)
        script.call("fetch", version, "replica 1", **values)

    return play


def _list_offsets(script: Script) -> dict[str, object]:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": TIME_MS + 3}
    topics = [{"name": TOPIC, "partitions": [part]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1000}


def _special_times(version: int) -> Play:
    def play(script: Script) -> None:
        for name in (TOPIC, EMPTY, "fetch-unknown"):
            for time in (-1, -2, -3, -4, -5, -6, -7, 0, TIME_MS, TIME_MS + 9, TIME_MS + 10):
                part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": time}
                topics = [{"name": name, "partitions": [part]}]
                label = f"{name} {time}"
                script.call("list_offsets", version, label, replica_id=-1, topics=topics)

    return play


def _epochs(script: Script) -> dict[str, object]:
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [part]}]}


def _delete_records(script: Script) -> dict[str, object]:
    part = {"partition_index": 0, "offset": 2}
    return {"topics": [{"name": TOPIC, "partitions": [part]}], "timeout": 5000}


def _deleted(version: int) -> Play:
    def play(script: Script) -> None:
        name = f"{script.name}-topic"
        make_topic(script, name)
        fill(script, name, batches=2)
        for offset in (5, 3, 21, -2, 15, -1, 20):
            part = {"partition_index": 0, "offset": offset}
            topics = [{"name": name, "partitions": [part]}]
            label = f"up to {offset}"
            script.call("delete_records", version, label, topics=topics, timeout=5000)
        for offset in (0, 15, 20, 21):
            topics = [_topic(script, _partition(fetch_offset=offset), name=name)]
            script.call("fetch", 12, f"fetch at {offset}", **_values(script, topics=topics))

    return play


def cases(ranges: Ranges) -> Iterator[Case]:
    yield from cases_of(Plan("fetch", _fetch), "fetch", ranges)
    yield from cases_of(Plan("list_offsets", _list_offsets), "fetch", ranges)
    yield from cases_of(Plan("offset_for_leader_epoch", _epochs), "fetch", ranges)
    for version in ranges.of("fetch"):
        for label, changes in ODD.items():
            yield Case(f"fetch/{label}/v{version}", _odd(version, changes))
        if version >= 7:
            yield Case(f"fetch/session/v{version}", _session(version))
        yield Case(f"fetch/as a replica/v{version}", _replica(version))
        yield Case(f"fetch/zstd/v{version}", _zstd(version))
    for version in ranges.of("list_offsets"):
        yield Case(f"fetch/special times/v{version}", _special_times(version))
    for version in ranges.of("delete_records"):
        yield Case(f"fetch/deleted records/v{version}", _deleted(version))
    # Last, because it moves the start of the log.
    yield from cases_of(Plan("delete_records", _delete_records), "fetch", ranges)
