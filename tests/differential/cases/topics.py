"""Topics made, grown and deleted; elections, reassignments and log directories."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.mutations import UNKNOWN_ID, Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import fill, make_topic, settle

TOPIC = "topics-topic"


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=2)
    fill(script, TOPIC)


def _create(script: Script) -> dict[str, object]:
    topic = {"name": f"{script.name}-t", "num_partitions": 2, "replication_factor": 1}
    topic["assignments"] = []
    topic["configs"] = [{"name": "retention.ms", "value": "1000"}]
    return {"topics": [topic], "timeout": 10_000, "validate_only": False}


def _assigned(script: Script) -> dict[str, object]:
    topic = {"name": f"{script.name}-t", "num_partitions": -1, "replication_factor": -1}
    topic["assignments"] = [{"partition_index": 0, "broker_ids": [1]}]
    topic["configs"] = []
    return {"topics": [topic], "timeout": 10_000, "validate_only": False}


CONFIGS = {
    "spaces around a number": ("retention.ms", " 5 "),
    "a plus sign": ("retention.ms", "+5"),
    "upper-case boolean": ("preallocate", "TRUE"),
    "boolean 1": ("preallocate", "1"),
    "no number": ("retention.ms", "ten"),
    "a decimal": ("retention.ms", "1.0"),
    "too large": ("retention.ms", "9223372036854775808"),
    "below the minimum": ("segment.bytes", "1"),
    "null value": ("retention.ms", None),
    "empty value": ("retention.ms", ""),
    "unknown key": ("no.such.key", "1"),
    "empty key": ("", "1"),
    "null list": ("cleanup.policy", None),
    "empty list": ("cleanup.policy", ""),
    "list twice": ("cleanup.policy", "compact,compact"),
    "list with spaces": ("cleanup.policy", " compact , delete "),
    "unknown policy": ("cleanup.policy", "burn"),
    "broker's key": ("log.retention.ms", "5"),
    "internal key": ("internal.segment.bytes", "1048576"),
    "unknown codec": ("compression.type", "brotli"),
    "codec in capitals": ("compression.type", "GZIP"),
    "arabic digits": ("retention.ms", "\u0665"),
    "ratio above 1": ("min.cleanable.dirty.ratio", "1.5"),
    "ratio": ("min.cleanable.dirty.ratio", "0.25"),
    "ratio nan": ("min.cleanable.dirty.ratio", "NaN"),
    "ratio with exponent": ("min.cleanable.dirty.ratio", "1e-1"),
    "ratio with suffix": ("min.cleanable.dirty.ratio", "0.5d"),
    "throttled replicas": ("leader.replication.throttled.replicas", "*"),
    "bad throttled replicas": ("leader.replication.throttled.replicas", "x"),
    "min isr above replicas": ("min.insync.replicas", "5"),
    "remote storage": ("remote.storage.enable", "true"),
    "gzip level 0": ("compression.gzip.level", "0"),
    "gzip level": ("compression.gzip.level", "9"),
    "timestamp type": ("message.timestamp.type", "LogAppendTime"),
    "wrong timestamp type": ("message.timestamp.type", "logappendtime"),
    "message format": ("message.format.version", "2.8"),
    "local retention above": ("local.retention.ms", "99999999999"),
}


def _with_config(version: int, key: str, value: str | None) -> Play:
    def play(script: Script) -> None:
        topic = {"name": f"{script.name}-t", "num_partitions": 1, "replication_factor": 1}
        topic["configs"] = [{"name": key, "value": value}]
        script.call("create_topics", version, topics=[topic], timeout=10_000)
        settle(script)
        resource = {"resource_type": 2, "resource_name": f"{script.name}-t"}
        resource["configuration_keys"] = [key]
        script.call("describe_configs", 4, resources=[resource], include_synonyms=True)

    return play


def _several(version: int) -> Play:
    def play(script: Script) -> None:
        def topic(name: str, **changes: object) -> dict[str, object]:
            return {"name": name, "num_partitions": 1, "replication_factor": 1, **changes}

        base = script.name
        for label, topics in {
            "twice": [topic(f"{base}-a"), topic(f"{base}-a")],
            "once": [topic(f"{base}-a")],
            "exists": [topic(f"{base}-a"), topic(f"{base}-b")],
            "collides": [topic(f"{base}.x"), topic(f"{base}_x")],
            "collides with one that exists": [topic(f"{base.replace('-', '_')}.a_b")],
            "of the quorum": [topic("__cluster_metadata")],
            "internal": [topic("__consumer_offsets")],
            "two replicas": [topic(f"{base}-c", replication_factor=2)],
            "assignment and count": [
                topic(f"{base}-d", assignments=[{"partition_index": 0, "broker_ids": [1]}])
            ],
            "gap in the assignment": [
                topic(
                    f"{base}-e",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[{"partition_index": 1, "broker_ids": [1]}],
                )
            ],
            "10001 partitions": [topic(f"{base}-f", num_partitions=10_001)],
            "name of 249": [topic("n" * 240 + base[-9:].rjust(9, "n"))],
            "name of 250": [topic("n" * 250)],
        }.items():
            script.call("create_topics", version, label, topics=topics, timeout=10_000)

    return play


def _prepare(script: Script) -> None:
    make_topic(script, f"{script.name}-t")


def _delete(script: Script) -> dict[str, object]:
    name = f"{script.name}-t"
    return {"topic_names": [name], "topics": [{"name": name}], "timeout": 10_000}


def _delete_by_id(script: Script) -> None:
    name = f"{script.name}-t"
    make_topic(script, name)
    found = script.memory[name]
    for label, topics in {
        "both": [{"name": name, "topic_id": found}],
        "unknown id": [{"name": None, "topic_id": UNKNOWN_ID}],
        "id twice": [{"name": None, "topic_id": found}, {"name": None, "topic_id": found}],
        "name and id": [{"name": name}, {"name": None, "topic_id": found}],
        "by id": [{"name": None, "topic_id": found}],
        "again": [{"name": None, "topic_id": found}],
        "name twice": [{"name": name}, {"name": name}],
    }.items():
        script.call("delete_topics", 6, label, topics=topics, timeout=10_000)


def _grow(script: Script) -> dict[str, object]:
    topic = {"name": f"{script.name}-t", "count": 3, "assignments": None}
    return {"topics": [topic], "timeout": 10_000, "validate_only": False}


def _grow_assigned(script: Script) -> dict[str, object]:
    topic = {"name": f"{script.name}-t", "count": 2, "assignments": [{"broker_ids": [1]}]}
    return {"topics": [topic], "timeout": 10_000, "validate_only": False}


def _elect(script: Script) -> dict[str, object]:
    topics = [{"topic": TOPIC, "partitions": [0, 1]}]
    return {"election_type": 0, "topic_partitions": topics, "timeout": 10_000}


def _reassign(script: Script) -> dict[str, object]:
    parts = [{"partition_index": 0, "replicas": [1]}]
    topics = [{"name": TOPIC, "partitions": parts}]
    return {"timeout": 10_000, "allow_replication_factor_change": True, "topics": topics}


def _reassignments(script: Script) -> dict[str, object]:
    return {"timeout": 10_000, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}


def _log_dirs(script: Script) -> dict[str, object]:
    return {"topics": [{"topic": TOPIC, "partitions": [0, 1]}]}


def _move_log(script: Script) -> dict[str, object]:
    topics = [{"name": TOPIC, "partitions": [0]}]
    return {"dirs": [{"path": "/no/such/directory", "topics": topics}]}


def _producers(script: Script) -> dict[str, object]:
    return {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}


def cases(ranges: Ranges) -> Iterator[Case]:
    # A partition count of 2^31-1 makes Kafka run out of memory.
    skip = frozenset({"topics[0].num_partitions=max", "topics[0].count=max"})
    # Whether a request with no time to wait is answered before that time ends depends on luck.
    skip |= {"timeout=0", "timeout=-1", "timeout=-2", "timeout=min", "timeout=99"}
    for api, template, prepare in (
        ("create_topics", _create, None),
        ("delete_topics", _delete, _prepare),
        ("create_partitions", _grow, _prepare),
        ("elect_leaders", _elect, None),
        ("alter_partition_reassignments", _reassign, None),
        ("list_partition_reassignments", _reassignments, None),
        ("describe_log_dirs", _log_dirs, None),
        ("alter_replica_log_dirs", _move_log, None),
        ("describe_producers", _producers, None),
    ):
        yield from cases_of(Plan(api, template, skip=skip, prepare=prepare), "topics", ranges)
    for case in cases_of(Plan("create_topics", _assigned, skip=skip), "topics", ranges):
        if "assignments" in case.name:
            yield Case(case.name.replace("/create_topics/", "/create assigned/"), case.play)
    plan = Plan("create_partitions", _grow_assigned, skip=skip, prepare=_prepare)
    for case in cases_of(plan, "topics", ranges):
        if "assignments" in case.name:
            yield Case(case.name.replace("/create_partitions/", "/grow assigned/"), case.play)
    for version in (ranges.of("create_topics")[0], ranges.of("create_topics")[-1]):
        for label, (key, value) in CONFIGS.items():
            play = _with_config(version, key, value)
            yield Case(f"topics/config {label}/v{version}", play)
    for version in ranges.of("create_topics"):
        yield Case(f"topics/several/v{version}", _several(version))
    yield Case("topics/delete by id", _delete_by_id)
