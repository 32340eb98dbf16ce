"""Requests that many families need: for their set-up, and as common steps of scripts."""

from tests.differential.batches import Batch
from tests.differential.script import Reply, Script


def make_topic(
    script: Script, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> None:
    """Create a topic, wait until it has leaders, and remember its id under its name."""
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    topic["configs"] = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    script.quietly("create_topics", 5, topics=[topic], timeout=30_000)
    wait_for_topic(script, name, partitions)


def wait_for_topic(script: Script, name: str, partitions: int = 1) -> None:
    """Wait until a topic has leaders; remember its id under its name."""

    def is_there(reply: Reply) -> bool:
        topic = reply["topics"][0]
        led = [part for part in topic["partitions"] if part["error_code"] == 0]
        return topic["error_code"] == 0 and len(led) >= partitions

    topics = [{"name": name}]
    reply = script.wait(is_there, "metadata", 12, topics=topics, allow_auto_topic_creation=False)
    script.memory[name] = reply["topics"][0]["topic_id"]
    # Kafka tells of a leader before that leader serves.
    asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    script.wait(
        lambda reply: all(row["error_code"] == 0 for row in reply["topics"][0]["partitions"]),
        "list_offsets",
        3,
        replica_id=-1,
        topics=[{"name": name, "partitions": asked}],
    )


def settle(script: Script) -> None:
    """Wait until what was changed before is in force: Kafka answers a change before that.

    Kafka applies changes in order, so it is enough to see one that is made here.
    """
    count = script.memory["settled"] = int(str(script.memory.get("settled", 0))) + 1
    entity = [{"entity_type": "client-id", "entity_name": "settled"}]
    ops = [{"key": "producer_byte_rate", "value": 1e9 + count, "remove": False}]
    entries = [{"entity": entity, "ops": ops}]
    script.quietly("alter_client_quotas", 1, entries=entries, validate_only=False)
    asked = [{"entity_type": "client-id", "match_type": 0, "match": "settled"}]
    script.wait(
        lambda reply: any(
            row["value"] == 1e9 + count
            for entry in reply["entries"] or []
            for row in entry["values"]
        ),
        "describe_client_quotas",
        1,
        components=asked,
        strict=True,
    )


def fill(script: Script, topic: str, batches: int = 1, count: int = 10, partition: int = 0) -> None:
    """Write batches of records without comparing the replies."""
    for _ in range(batches):
        write(script, topic, Batch(count=count).encode(), partition)


def write(script: Script, topic: str, records: bytes, partition: int = 0) -> None:
    """Write a batch without comparing the reply."""
    part = {"index": partition, "records": records}
    topics = [{"name": topic, "partition_data": [part]}]
    values = {"acks": -1, "timeout": 10_000, "topic_data": topics}
    reply = script.quietly("produce", 11, **values)
    rows = [row for each in reply["responses"] for row in each["partition_responses"]]
    if [row["error_code"] for row in rows] != [0]:
        raise RuntimeError(f"set-up: produce to {topic}: {reply}")


def produce(
    script: Script,
    version: int,
    topic: str,
    records: bytes,
    label: str = "",
    *,
    partition: int = 0,
    transactional_id: str | None = None,
) -> Reply:
    """Write to one partition and record the reply."""
    part = {"index": partition, "records": records}
    data = {"name": topic, "topic_id": script.memory[topic], "partition_data": [part]}
    return script.call(
        "produce",
        version,
        label,
        transactional_id=transactional_id,
        acks=-1,
        timeout=5000,
        topic_data=[data],
    )


def latest(script: Script, topic: str, partition: int = 0, isolation: int = 0) -> None:
    """Record the end of a partition."""
    part = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": topic, "partitions": [part]}]
    script.call(
        "list_offsets", 7, "end offset", replica_id=-1, isolation_level=isolation, topics=topics
    )


def new_producer_id(script: Script) -> int:
    """Return a producer id without a transactional id."""
    values = {"transactional_id": None, "transaction_timeout": 60_000}
    values |= {"producer_id": -1, "producer_epoch": -1}
    reply = script.wait(lambda reply: reply["error_code"] == 0, "init_producer_id", 4, **values)
    return reply["producer_id"]


def wait_for_coordinator(script: Script, key: str, key_type: int = 0) -> None:
    """Wait until a group (0), transaction (1) or share partition (2) has a coordinator."""
    script.wait(
        lambda reply: all(row["error_code"] == 0 for row in reply["coordinators"]),
        "find_coordinator",
        6,
        key_type=key_type,
        coordinator_keys=[key],
    )
    if key_type == 0:
        values = {"group_id": key, "generation_id": 1, "member_id": "nobody"}
        is_loaded = lambda reply: reply["error_code"] not in (14, 15, 16)  # noqa: E731
        script.wait(is_loaded, "heartbeat", 3, **values)
