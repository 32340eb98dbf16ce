"""Checkpoint, meta.properties and partition.metadata files: Kafka's text, and broken text."""

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from ottla.protocol.uuids import parse_uuid
from ottla.runtime.atomic_file import replace_file
from ottla.storage.directory import meta_properties, partition_metadata
from ottla.storage.directory.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_offsets,
    encode_epochs,
    encode_offsets,
    read_epochs,
    read_offsets,
    write_epochs,
    write_offsets,
)
from ottla.storage.directory.meta_properties import (
    MetaProperties,
    MetaPropertiesRefused,
    NotFormatted,
)
from ottla.storage.directory.partition_metadata import CorruptPartitionMetadata
from ottla.storage.directory.partition_names import (
    DirectoryKind,
    PartitionDirectory,
    format_name,
    parse_name,
)
from ottla.storage.log.leader_epochs import EpochEntry
from simulation.disk import SimCrash, SimDisk
from simulation.random import SimRandom

DIRECTORY_ID = parse_uuid("AAAAAAAAAAEAAAAAAAAAAg")


def disk_with(path: str, data: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/d")
    replace_file(disk, path, data)
    return disk


# -- offsets and epochs --------------------------------------------------------


def test_offset_checkpoint_text_is_kafkas() -> None:
    table = {TopicPartition("orders", 12): Offset(1500), TopicPartition("a.b-c", 0): Offset(7)}
    text = b"0\n2\na.b-c 0 7\norders 12 1500\n"
    assert encode_offsets(table) == text
    assert decode_offsets(text) == table


def test_leader_epoch_checkpoint_text_is_kafkas() -> None:
    entries = [EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(5), Offset(120))]
    assert encode_epochs(entries) == b"0\n2\n0 0\n5 120\n"
    assert decode_epochs(b"0\n2\n0 0\n5 120\n") == entries


def test_missing_or_empty_file_is_an_empty_table() -> None:
    disk = disk_with("/d/x", b"")
    assert read_offsets(disk, "/d/x") == {}
    assert read_offsets(disk, "/d/nothing") == {}
    assert read_epochs(disk, "/d") == []


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"x\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 1\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na 0 1_0\n",
        b"0\n1\na 0 99999999999999999999\n",
        b"0\n1\na 2147483648 1\n",
        b"0\n1\n../x 0 1\n",
        b"0\n-1\n",
        b"0\n\xff\n",
        bytes(20),
    ],
)
def test_corrupt_offset_checkpoint_is_rejected_as_a_whole(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(data)


@pytest.mark.parametrize("data", [b"0\n1\n1\n", b"0\n1\n1 -2\n", b"0\n2\n1 2\n", bytes(8)])
def test_corrupt_epoch_checkpoint_is_rejected_as_a_whole(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_table_or_corrupt(data: bytes) -> None:
    for decode in (decode_offsets, decode_epochs):
        with contextlib.suppress(CorruptCheckpoint):
            decode(data)


def test_crash_leaves_the_old_table_or_the_new_one() -> None:
    old, new = {TopicPartition("a", 0): Offset(1)}, {TopicPartition("a", 0): Offset(2)}
    seen = set()
    for k in range(1, 20):
        disk = SimDisk(seed=k)
        disk.make_dirs("/d")
        write_offsets(disk, "/d/x", old)
        disk.crash_at(k)
        try:
            write_offsets(disk, "/d/x", new)
            is_done = True
        except SimCrash:
            is_done = False
        disk.crash()
        disk.restart()
        found = read_offsets(disk, "/d/x")
        assert found == new if is_done else found in (old, new)
        seen.add((is_done, found == new))
        if is_done:
            break
    assert {(False, False), (True, True)} <= seen


def test_failed_sync_is_an_error_and_replaces_nothing() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    write_epochs(disk, "/d", [EpochEntry(LeaderEpoch(1), Offset(0))])
    disk.fail("sync", error=errno.EIO)
    with pytest.raises(OSError):
        write_epochs(disk, "/d", [])
    assert len(read_epochs(disk, "/d")) == 1


# -- meta.properties -----------------------------------------------------------

KAFKA_META = (
    b"#\n#Sun Nov 15 21:50:09 UTC 2026\nnode.id=1\ndirectory.id=AAAAAAAAAAEAAAAAAAAAAg\n"
    b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
)
META = MetaProperties(NodeId(1), "MkU3OEVBNTcwNTJENDM2Qg", DIRECTORY_ID)


def claim(data: bytes, node_id: int = 1, cluster_id: str | None = None) -> MetaProperties:
    disk = disk_with("/d/meta.properties", data)
    return meta_properties.claim(disk, "/d", node_id=NodeId(node_id), cluster_id=cluster_id)


def test_meta_properties_as_kafka_writes_them() -> None:
    assert meta_properties.decode(KAFKA_META) == META
    assert meta_properties.decode(meta_properties.encode(META)) == META


def test_escapes_and_separators_of_java_properties() -> None:
    text = b"! note\n  version : 1\nnode.id 7\ncluster.id = a\\=b\\u0041\\\\\n"
    assert meta_properties.decode(text) == MetaProperties(NodeId(7), "a=bA\\")


def test_unformatted_directory_is_rejected_with_its_path() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    expected = r"/d: is not formatted: there is no meta\.properties"
    with pytest.raises(NotFormatted, match=expected):
        meta_properties.claim(disk, "/d", node_id=NodeId(1), cluster_id=None)


def test_directory_of_another_node_is_rejected_with_its_path() -> None:
    with pytest.raises(MetaPropertiesRefused, match="belongs to node 1, this is node 2"):
        claim(KAFKA_META, node_id=2)


def test_directory_of_another_cluster_is_rejected_with_its_path() -> None:
    with pytest.raises(MetaPropertiesRefused, match=r"belongs to cluster 'MkU3.*', this is .*'me'"):
        claim(KAFKA_META, cluster_id="me")


def test_own_directory_is_claimed() -> None:
    assert claim(KAFKA_META, cluster_id=META.cluster_id) == META


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(100),
        b"\xff\xfe",
        b"version=0\nbroker.id=1\n",
        b"version=2\nnode.id=1\ncluster.id=x\n",
        b"version=1\ncluster.id=x\n",
        b"version=1\nnode.id=1\n",
        b"version=1\nnode.id=one\ncluster.id=x\n",
        b"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=short\n",
        b"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
        b"#" * 100_000,
    ],
)
def test_malformed_meta_properties_are_rejected_with_the_path(data: bytes) -> None:
    with pytest.raises(MetaPropertiesRefused, match=r"^/d/meta.properties: "):
        claim(data)


def test_missing_directory_id_is_generated_once_and_kept() -> None:
    disk = disk_with("/d/meta.properties", b"version=1\nnode.id=1\ncluster.id=x\n")
    meta = meta_properties.claim(disk, "/d", node_id=NodeId(1), cluster_id="x")
    first = meta_properties.with_directory_id(disk, "/d", meta, SimRandom(1))
    assert first.directory_id is not None
    again = meta_properties.claim(disk, "/d", node_id=NodeId(1), cluster_id="x")
    assert again == first == meta_properties.with_directory_id(disk, "/d", again, SimRandom(2))


# -- partition.metadata --------------------------------------------------------


def test_partition_metadata_text_is_kafkas() -> None:
    text = b"version: 0\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg"
    assert partition_metadata.encode(DIRECTORY_ID) == text
    disk = SimDisk()
    disk.make_dirs("/d")
    assert partition_metadata.read_topic_id(disk, "/d") is None
    partition_metadata.write_topic_id(disk, "/d", DIRECTORY_ID)
    assert disk.read("/d/partition.metadata") == text
    assert partition_metadata.read_topic_id(disk, "/d") == DIRECTORY_ID


@pytest.mark.parametrize("data", [b"", bytes(46)])
def test_partition_metadata_without_contents_is_absent(data: bytes) -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    replace_file(disk, "/d/partition.metadata", data)
    assert partition_metadata.read_topic_id(disk, "/d") is None


@pytest.mark.parametrize(
    "data",
    [
        b"version: 0",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: -1\ntopic_id: AAAAAAAAAAEAAAAAAAAAAg",
        b"version: 0\ntopic_id: nonsense",
        b"version 0\ntopic_id AAAAAAAAAAEAAAAAAAAAAg",
        b"\xff\xff",
    ],
)
def test_malformed_partition_metadata_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptPartitionMetadata, match=r"/d/partition.metadata"):
        partition_metadata.read_topic_id(disk_with("/d/partition.metadata", data), "/d")


# -- names of directories ------------------------------------------------------

UNIQUE = Uuid(bytes(range(16)))


@pytest.mark.parametrize("topic", ["a", "a-1", "a.b-c", "-", "x-future", "x-0", "..a", "x" * 249])
@pytest.mark.parametrize("kind", DirectoryKind)
def test_names_round_trip(topic: str, kind: DirectoryKind) -> None:
    partition = TopicPartition(topic, 2**31 - 1)
    name = format_name(partition, kind, UNIQUE)
    if kind in (DirectoryKind.DELETE, DirectoryKind.STRAY):
        assert len(name) <= 255
    parsed = parse_name(name)
    assert parsed is not None
    assert parsed.kind is kind
    assert parsed.partition.partition == partition.partition
    assert partition.topic.startswith(parsed.partition.topic)


def test_names_are_kafkas() -> None:
    partition = TopicPartition("a.b-c", 3)
    assert format_name(partition) == "a.b-c-3"
    assert (
        format_name(partition, DirectoryKind.DELETE, UNIQUE)
        == "a.b-c-3.000102030405060708090a0b0c0d0e0f-delete"
    )
    assert parse_name("a.b-c-3.8ec25b4524c84ffba4004cf9fb99a37a-stray") == PartitionDirectory(
        partition, DirectoryKind.STRAY
    )
    assert parse_name("a.b-c-3-future") == PartitionDirectory(partition, DirectoryKind.FUTURE)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "lost+found",
        "a",
        "a-",
        "-1",
        "a-01",
        "a-+1",
        "a-2147483648",
        "a-1.x",
        "a-1-delete",
        "..-1",
    ],
)
def test_other_names_are_not_partition_directories(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../etc/x", "a\0b", "x" * 250, "😀"])
def test_no_path_is_ever_built_from_a_bad_topic_name(topic: str) -> None:
    with pytest.raises(ValueError, match="invalid partition"):
        format_name(TopicPartition(topic, 0))
