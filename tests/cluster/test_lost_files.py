"""Files of one replica are lost: the others keep their records, and the replica gets them back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path

import pytest
from test_damaged_replicas import COUNT, OFTEN, SELDOM, VALUE, ScrubbedCluster, fetch, scrubbed
from test_replication_in_process import ask, eventually, leader_of, produce, values

from ottla.node.broker.replica_manager import scrub_counts
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.types import Offset
from ottla.runtime.clock import SystemClock
from ottla.storage.log.log_maintenance import delete_old_segments

UNCLEAN = 1


def on_a_loop(scenario: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on its own event loop."""

    @wraps(scenario)
    def test(**fixtures: object) -> None:
        asyncio.run(scenario(**fixtures))

    return test


def shorten(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)


def first_segment(directory: Path) -> Path:
    return directory / f"{0:020d}.log"


def second_segment(directory: Path) -> Path:
    return sorted(directory.glob("*.log"))[1]


def wrong_log_start(directory: Path) -> None:
    checkpoint = directory.parent / "log-start-offset-checkpoint"
    checkpoint.write_bytes(b"0\n1\norders 0 99999\n")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "log start beyond the end": wrong_log_start,
    "first segment removed": lambda directory: first_segment(directory).unlink(),
    "sealed segment removed": lambda directory: second_segment(directory).unlink(),
    "sealed segment emptied": lambda directory: shorten(second_segment(directory), 0),
    "sealed segment cut in a batch": lambda directory: shorten(second_segment(directory), 9000),
    "all segments removed": lambda directory: [each.unlink() for each in directory.glob("*.log")],
}


def has_all(cluster: ScrubbedCluster, node_id: int, count: int = COUNT) -> bool:
    partition = cluster.partition(node_id)
    replica = partition.log
    if replica.damaged_ranges or replica.log_start_offset or replica.log_end_offset < count:
        return False
    return values(partition)[:COUNT] == [VALUE] * COUNT


@pytest.mark.parametrize("damage", DAMAGES)
@on_a_loop
async def test_replica_that_lost_files_gets_them_back_before_it_leads(
    tmp_path: Path, damage: str
) -> None:
    async with scrubbed(tmp_path, *SELDOM) as cluster:
        victim = 3 if leader_of(cluster) != 3 else 2
        directory = Path(cluster.partition(victim).log.directory)
        await cluster.stop(victim)
        DAMAGES[damage](directory)
        await cluster.start(victim)
        assert await produce(cluster, b"meanwhile") is ErrorCode.NONE

        await eventually(lambda: cluster.isr() == {1, 2, 3})
        await eventually(lambda: has_all(cluster, victim, COUNT + 1))
        # The others have not deleted anything, whichever replica led meanwhile.
        assert all(has_all(cluster, node_id) for node_id in (1, 2, 3))
        for offset in range(COUNT):
            error, records = await fetch(cluster.nodes[victim], offset)
            assert error is ErrorCode.NONE
            assert records


@pytest.mark.parametrize("damage", DAMAGES)
@on_a_loop
async def test_last_replica_in_sync_asks_the_others_before_it_leads(
    tmp_path: Path, damage: str
) -> None:
    """The replicas that are behind would delete or truncate what they have."""
    async with scrubbed(tmp_path, *SELDOM) as cluster:
        victim = 3
        await cluster.stop(2)
        await eventually(lambda: cluster.isr() == {1, 3})
        # Node 1 is the controller: it leaves the ISR when its replica's directory is lost.
        cluster.nodes[1]._parts.broker.replica_manager.host.log_events.lost(cluster.partition(1))
        await eventually(lambda: cluster.isr() == {victim} and leader_of(cluster) == victim)
        assert await produce(cluster, b"only here", acks=1) is ErrorCode.NONE
        directory = Path(cluster.partition(victim).log.directory)
        await cluster.stop(victim)
        DAMAGES[damage](directory)
        await cluster.start(victim)
        await cluster.start(2)

        await eventually(lambda: leader_of(cluster) > 0)
        await eventually(lambda: has_all(cluster, victim))
        assert has_all(cluster, 1)
        assert has_all(cluster, 2)


def waiting_count(cluster: ScrubbedCluster, node_id: int) -> int:
    broker = cluster.nodes[node_id]._parts.broker
    return len(scrub_counts(broker.replica_manager).waiting_partitions)


@asynccontextmanager
async def two_replicas(root: Path) -> AsyncIterator[ScrubbedCluster]:
    """A cluster whose controller, node 1, has no replica of the topic."""
    cluster = ScrubbedCluster(root, *SELDOM)
    try:
        for node_id in (1, 2, 3):
            await cluster.start(node_id)
        topic = CreatableTopic("orders", -1, -1, [CreatableReplicaAssignment(0, [3, 2])])
        reply = await ask(cluster.nodes[1], CreateTopicsRequest([topic], 10_000))
        assert reply.topics[0].error_code == 0
        await eventually(lambda: cluster.nodes[3].has_partition("orders", 0))
        await eventually(lambda: cluster.partition(3).is_leader and cluster.isr() == {2, 3})
        yield cluster
    finally:
        for node_id in sorted(cluster.nodes, reverse=True):
            await cluster.stop(node_id)


@on_a_loop
async def test_last_replica_in_sync_without_its_end_waits_visibly_and_leads_alone_on_demand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_replicas(tmp_path) as cluster:
        await cluster.stop(2)
        await eventually(lambda: cluster.isr() == {3})
        partition = cluster.partition(3)
        for _ in range(COUNT):
            batch = build_batch([Record(Offset(0), SystemClock().now(), b"k", b"v")])
            partition.append(batch, now=SystemClock().now())
        await eventually(lambda: partition.log.high_watermark == COUNT)
        directory = Path(partition.log.directory)
        await cluster.stop(3)
        DAMAGES["all segments removed"](directory)
        await cluster.start(3)
        await eventually(lambda: "this replica lost its records" in caplog.text)
        assert waiting_count(cluster, 3) == 1
        assert not cluster.partition(3).is_leader

        wanted = [TopicPartitions("orders", [0])]
        elected = await ask(cluster.nodes[1], ElectLeadersRequest(UNCLEAN, wanted))
        (outcome,) = elected.replica_election_results[0].partition_result
        assert outcome.error_code == ErrorCode.ELECTION_NOT_NEEDED

        alone = ReassignableTopic("orders", [ReassignablePartition(0, [3])])
        reply = await ask(cluster.nodes[1], AlterPartitionReassignmentsRequest(topics=[alone]))
        assert reply.error_code == 0
        await eventually(lambda: cluster.partition(3).is_leader)
        assert waiting_count(cluster, 3) == 0
        assert "records lost partition=orders-0 offsets=0 on" in caplog.text


@pytest.mark.parametrize("damage", ["removed", "emptied", "cut"])
@on_a_loop
async def test_sealed_segment_lost_on_a_running_node_is_fetched_again(
    tmp_path: Path, damage: str
) -> None:
    async with scrubbed(tmp_path, *OFTEN) as cluster:
        victim = leader_of(cluster)
        path = cluster.old_segment(victim)
        if damage == "removed":
            path.unlink()
        else:
            shorten(path, 0 if damage == "emptied" else 9000)
        await eventually(lambda: cluster.counts(victim).found > 0)
        await eventually(lambda: has_all(cluster, victim) and path.exists())
        await eventually(lambda: cluster.isr() == {1, 2, 3})
        good = cluster.files(leader_of(cluster))
        assert b"".join(cluster.files(victim).values()) == b"".join(good.values())


@on_a_loop
async def test_sealed_segments_swapped_on_a_running_node_are_fetched_again(tmp_path: Path) -> None:
    async with scrubbed(tmp_path, *OFTEN) as cluster:
        victim = 3 if leader_of(cluster) != 3 else 2
        good = cluster.files(victim)
        first, second = [Path(each.path) for each in cluster.partition(victim).log.segments[1:3]]
        swapped = second.read_bytes(), first.read_bytes()
        first.write_bytes(swapped[0])
        second.write_bytes(swapped[1])
        await eventually(lambda: cluster.counts(victim).found > 0)
        await eventually(lambda: cluster.isr() == {1, 2, 3} and has_all(cluster, victim))
        assert b"".join(cluster.files(victim).values()) == b"".join(good.values())


async def delete_while_down(cluster: ScrubbedCluster, victim: int, offset: int) -> None:
    """Delete the first records while a follower is down, and wait until it follows again."""
    await cluster.stop(victim)
    cluster.partition(leader_of(cluster)).delete_records(Offset(offset))
    await cluster.start(victim)
    await eventually(lambda: cluster.isr() == {1, 2, 3})
    await eventually(lambda: cluster.partition(victim).log.log_start_offset == offset)


@on_a_loop
async def test_follower_keeps_what_its_leader_lacks_for_no_known_reason(tmp_path: Path) -> None:
    """A leader with damaged files looks the same: a later start that no settings explain."""
    async with scrubbed(tmp_path, *SELDOM, "ottla.cleaner.interval.ms=50") as cluster:
        victim = 3 if leader_of(cluster) != 3 else 2
        await delete_while_down(cluster, victim, 2)
        await eventually(lambda: len(cluster.partition(leader_of(cluster)).log.segments) == 2)
        for _ in range(2):  # also after a restart
            replica = cluster.partition(victim).log
            delete_old_segments(replica, SystemClock().now())
            assert len(replica.segments) == COUNT
            manager = cluster.nodes[victim]._parts.broker.replica_manager
            assert scrub_counts(manager).keeping_partitions == 1
            assert (await fetch(cluster.nodes[victim], 1))[0] is ErrorCode.OFFSET_OUT_OF_RANGE
            await cluster.stop(victim)
            await cluster.start(victim)
            await eventually(lambda: cluster.isr() == {1, 2, 3})
        # A deletion by the running leader advances the start of all replicas, as ever.
        cluster.partition(leader_of(cluster)).delete_records(Offset(3))
        await eventually(lambda: cluster.partition(leader_of(cluster)).low_watermark == 3)


@on_a_loop
async def test_follower_deletes_what_it_kept_after_the_delay(tmp_path: Path) -> None:
    delay = "ottla.replica.unexplained.deletion.delay.ms=500"
    async with scrubbed(tmp_path, *SELDOM, "ottla.cleaner.interval.ms=50", delay) as cluster:
        victim = 3 if leader_of(cluster) != 3 else 2
        await delete_while_down(cluster, victim, 2)
        await eventually(lambda: len(cluster.partition(victim).log.segments) == 2)
        assert values(cluster.partition(victim))[:2] == [VALUE] * 2
