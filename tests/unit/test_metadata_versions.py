"""What each level of metadata.version allows, as Apache Kafka 4.3's own table has it."""

import pytest

from ottla.metadata.image import EMPTY
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import replay_all
from ottla.node.broker.broker_dial import version_max
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord

# level: RegisterBrokerRecord, PartitionRecord, Fetch, ListOffsets. Printed by Kafka's
# MetadataVersion, not derived from ours.
KAFKA = """
7 1 0 13 7
8 2 0 13 7
9 2 0 14 8
10 2 0 15 8
11 2 0 15 8
12 2 0 15 8
13 2 0 15 8
14 2 0 15 8
15 2 0 15 8
16 2 0 15 8
17 3 1 15 8
18 3 1 15 8
19 3 1 16 8
20 3 1 16 8
21 3 1 17 9
22 3 1 17 9
23 3 2 17 9
24 3 2 17 9
25 3 2 17 10
26 3 2 17 10
27 3 2 18 10
28 3 2 18 10
29 3 2 18 11
30 4 2 18 11
31 4 2 18 11
32 4 2 18 11
33 4 2 18 11
"""
ROWS = [tuple(map(int, line.split())) for line in KAFKA.split("\n") if line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(MetadataVersion(row[0])))
def test_level_allows_what_kafka_allows(row: tuple[int, ...]) -> None:
    level = MetadataVersion(row[0])
    assert row[1:] == (
        level.register_broker_record_version(),
        level.partition_record_version(),
        level.fetch_request_version(),
        level.list_offsets_request_version(),
    )
    assert level.partition_change_record_version() == level.partition_record_version()


def test_every_level_is_in_the_table() -> None:
    assert [row[0] for row in ROWS] == list(map(int, MetadataVersion))


def test_broker_connections_obey_the_finalized_level() -> None:
    image = replay_all(EMPTY, [FeatureLevelRecord("metadata.version", 25)])
    assert version_max(image, ApiKey.FETCH) == 17 < APIS[ApiKey.FETCH].versions[1]
    assert version_max(image, ApiKey.LIST_OFFSETS) == 10
    assert version_max(image, ApiKey.WRITE_TXN_MARKERS) is None
    assert version_max(EMPTY, ApiKey.FETCH) is None
