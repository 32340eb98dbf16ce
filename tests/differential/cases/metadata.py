"""Metadata, DescribeTopicPartitions, DescribeCluster and ApiVersions."""

from collections.abc import Iterator

from tests.differential.catalogue import Case, Ranges
from tests.differential.mutations import Plan, cases_of
from tests.differential.script import Script
from tests.differential.steps import make_topic

TOPIC, SMALL = "metadata-topic", "metadata-small"


def setup(script: Script) -> None:
    make_topic(script, TOPIC, partitions=3)
    make_topic(script, SMALL)


def _metadata(script: Script) -> dict[str, object]:
    return {
        "topics": [{"name": TOPIC}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }


def _by_id(script: Script) -> dict[str, object]:
    return {
        "topics": [{"topic_id": script.memory[TOPIC], "name": None}],
        "allow_auto_topic_creation": False,
    }


def _partitions(script: Script) -> dict[str, object]:
    return {
        "topics": [{"name": SMALL}, {"name": TOPIC}, {"name": "metadata-unknown"}],
        "response_partition_limit": 2,
        "cursor": {"topic_name": TOPIC, "partition_index": 1},
    }


def _cluster(script: Script) -> dict[str, object]:
    return {"include_cluster_authorized_operations": True, "endpoint_type": 1}


def _versions(script: Script) -> dict[str, object]:
    return {"client_software_name": "differential", "client_software_version": "1.0"}


def _auto_create(version: int):
    def play(script: Script) -> None:
        topics = [{"name": f"auto-{script.name}"}, {"name": "auto bad name"}]
        script.call("metadata", version, topics=topics, allow_auto_topic_creation=True)
        script.until(
            lambda reply: all(
                topic["partitions"] for topic in reply["topics"] if topic["error_code"] != 17
            ),
            "metadata",
            version,
            "once it is there",
            topics=topics,
        )

    return play


def cases(ranges: Ranges) -> Iterator[Case]:
    name = "metadata"
    yield from cases_of(Plan("metadata", _metadata), name, ranges)
    for case in cases_of(Plan("metadata", _by_id), name, ranges):
        yield Case(case.name.replace("metadata/metadata/", "metadata/metadata by id/"), case.play)
    for version in ranges.of("metadata"):
        if version > 3:
            yield Case(f"metadata/auto-creation/v{version}", _auto_create(version))
    yield from cases_of(Plan("describe_topic_partitions", _partitions), name, ranges)
    yield from cases_of(Plan("describe_cluster", _cluster), name, ranges)
    yield from cases_of(Plan("api_versions", _versions), name, ranges)
