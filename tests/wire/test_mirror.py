"""A mirror between two nodes: exactly once through cancellations, offsets, topics, groups."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.patience import SECONDS_MAX

from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.client.admin import (
    Change,
    NewTopic,
    Resource,
    alter_configs,
    create_topic,
    describe_configs,
)
from ottla.client.admin_groups import commit_offsets, committed_offsets
from ottla.client.cluster import Cluster
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.offset_spec import EARLIEST, LATEST
from ottla.client.offsets import list_offsets
from ottla.client.producer import open_producer
from ottla.mirror.metadata_sync import Clusters
from ottla.mirror.service import Mirror, MirrorOptions, open_mirror
from ottla.mirror.state_log import TakenOver
from ottla.protocol.records.reader import Header
from ottla.protocol.types import Offset, TopicPartition
from ottla.testing import Cluster as Node
from ottla.testing import run_node

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# One worker runs all of them, on one pair of nodes: every test has topics and a mirror of its own.
pytestmark = pytest.mark.xdist_group("mirror")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    directory = tmp_path_factory.mktemp("mirror")
    with (
        run_node(directory=directory / "source", config=QUICK) as source,
        run_node(directory=directory / "target", config=QUICK) as target,
    ):
        yield source, target


@asynccontextmanager
async def opened(nodes: tuple[Node, Node]) -> AsyncIterator[Clusters]:
    ports = client_ports()
    async with (
        await Cluster.open(ports, parse_bootstrap(nodes[0].bootstrap)) as source,
        await Cluster.open(ports, parse_bootstrap(nodes[1].bootstrap)) as target,
    ):
        yield Clusters(source, target)


def options(name: str, topics: str, **changes: object) -> MirrorOptions:
    wanted = re.compile(topics)
    return MirrorOptions(name=name, topics=wanted, refresh_s=0.1, **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def mirroring(clusters: Clusters, wanted: MirrorOptions) -> AsyncIterator[Mirror]:
    """Run a mirror until the end of the block, then cancel it, wherever it is."""
    mirror = await open_mirror(clusters, wanted)
    task = asyncio.ensure_future(mirror.run(lambda _: None))
    try:
        yield mirror
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task  # raises what ended it before


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)


async def caught_up(clusters: Clusters, mirror: Mirror, *partitions: TopicPartition) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            ends = await list_offsets(clusters.source, dict.fromkeys(partitions, LATEST))
            positions = mirror.copier.positions
            if all(positions.get(each, -1) >= (ends[each] or 0) for each in partitions):
                return
            await asyncio.sleep(0.02)


async def contents(
    cluster: Cluster, at: TopicPartition, *, is_committed_only: bool = True
) -> list[tuple[object, ...]]:
    """Return offset, time, key, value and headers of every record."""
    start = (await list_offsets(cluster, {at: EARLIEST}))[at] or 0
    found: list[tuple[object, ...]] = []
    how = ReaderOptions(is_committed_only=is_committed_only, wait_ms_max=50)
    async with open_reader(cluster, {at: Offset(start)}, how) as reader:
        while not reader.is_at_end:
            for fetched in await reader.poll():
                found += [tuple(each) for each in fetched.records()]
    return found


async def produce(cluster: Cluster, topic: str, numbers: range, partitions: int = 1) -> None:
    async with open_producer(cluster) as producer:
        for number in numbers:
            await producer.send(
                topic,
                b"%d" % number,
                key=b"k%d" % (number % 7),
                headers=[Header("n", b"%d" % number)],
                partition=number % partitions,
                timestamp=1_700_000_000_000 + number,
            )


def test_records_are_copied_exactly_once_though_the_mirror_is_cancelled(
    nodes: tuple[Node, Node],
) -> None:
    async def work() -> None:
        async with opened(nodes) as clusters:
            await create_topic(clusters.source, NewTopic("orders", 2))
            parts = [TopicPartition("orders", n) for n in range(2)]
            for turn in range(6):
                numbers = range(turn * 500, turn * 500 + 500)
                async with mirroring(clusters, options("cancelled", "orders")) as mirror:
                    writing = asyncio.ensure_future(produce(clusters.source, "orders", numbers, 2))
                    await until(lambda: mirror.copier.copied.records >= turn * 40)  # noqa: B023
                await writing
            async with mirroring(clusters, options("cancelled", "orders")) as mirror:
                await caught_up(clusters, mirror, *parts)
                assert all(each.is_identity for each in mirror.progress())
            for at in parts:
                source = await contents(clusters.source, at)
                assert len(source) == 1500
                assert await contents(clusters.target, at, is_committed_only=False) == source

    asyncio.run(work())


def transact(bootstrap: str, topic: str, group: str) -> list[bytes]:
    """Write committed and aborted transactions; return the committed values."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions()
    committed = []
    for turn in range(12):
        producer.begin_transaction()
        values = [b"%d-%d" % (turn, n) for n in range(5)]
        for value in values:
            producer.produce(topic, value, partition=0)
        # librdkafka ends a transaction whose partition is still refused, because the one before is
        # being completed; then there is nothing to abort, and the error is fatal, as with Kafka.
        producer.flush(SECONDS_MAX)
        if turn % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            committed += values
    return committed


def test_committed_transactions_are_copied_and_offsets_translated(
    nodes: tuple[Node, Node],
) -> None:
    at = TopicPartition("txns", 0)

    async def work() -> None:
        async with opened(nodes) as clusters:
            await create_topic(clusters.source, NewTopic("txns", 1))
            async with mirroring(clusters, options("txns", "txns")) as mirror:
                committed = await asyncio.to_thread(transact, nodes[0].bootstrap, "txns", "writers")
                await caught_up(clusters, mirror, at)
            source = await contents(clusters.source, at)
            target = await contents(clusters.target, at, is_committed_only=False)
            assert [each[3] for each in target] == [each[3] for each in source] == committed
            assert [each[0] for each in target] == list(range(len(committed)))
            # A reader that committed in the middle finds the same record in the target.
            end = (await list_offsets(clusters.source, {at: LATEST}))[at]
            assert end is not None
            for number, position in enumerate((int(str(source[17][0])), end)):
                await commit_offsets(clusters.source, f"readers-{number}", {at: position})
            async with mirroring(clusters, options("txns", "txns")) as mirror:
                await until(lambda: mirror.groups == 2)
                await until(lambda: not mirror.problems)
                await caught_up(clusters, mirror, at)
            again = await contents(clusters.target, at, is_committed_only=False)
            assert again == target, "the second mirror went on behind the gaps"
            assert await committed_offsets(clusters.target, "readers-0") == {at: 17}
            assert await committed_offsets(clusters.target, "readers-1") == {at: len(target)}

    asyncio.run(work())


def test_new_topics_partitions_and_settings_follow_while_it_runs(
    nodes: tuple[Node, Node],
) -> None:
    async def setting(cluster: Cluster, name: str) -> str | None:
        (found,) = await describe_configs(cluster, Resource.TOPIC, "first", [name])
        return found.value

    async def work() -> None:
        async with opened(nodes) as clusters:
            await create_topic(clusters.source, NewTopic("first", 1, 1, {"retention.ms": "777000"}))
            async with mirroring(clusters, options("new", "first|second")) as mirror:
                await until(lambda: len(mirror.copier.links) == 1)
                assert await setting(clusters.target, "retention.ms") == "777000"
                await create_topic(clusters.source, NewTopic("second", 1))
                await create_topic(clusters.source, NewTopic("unrelated", 1))
                change = Change("retention.ms", "888000")
                await alter_configs(clusters.source, Resource.TOPIC, "first", [change])
                admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap})
                for future in admin.create_partitions([NewPartitions("first", 3)]).values():
                    await asyncio.to_thread(future.result)
                await until(lambda: len(mirror.copier.links) == 4)
                await produce(clusters.source, "second", range(50))
                await caught_up(clusters, mirror, TopicPartition("second", 0))
                async with asyncio.timeout(SECONDS_MAX):
                    while (  # noqa: ASYNC110 - as above
                        await setting(clusters.target, "retention.ms") != "888000"
                    ):
                        await asyncio.sleep(0.05)
            topics = await clusters.target.metadata(None)
            assert "unrelated" not in {each.name for each in topics.topics}
            assert len(await contents(clusters.target, TopicPartition("second", 0))) == 50

    asyncio.run(work())


def test_offsets_of_a_topic_that_begins_later_are_preserved(nodes: tuple[Node, Node]) -> None:
    at = TopicPartition("old", 0)

    async def work() -> None:
        async with opened(nodes) as clusters:
            await create_topic(clusters.source, NewTopic("old", 1))
            await produce(clusters.source, "old", range(300))
            admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap})
            for future in admin.delete_records([At("old", 0, 250)]).values():
                await asyncio.to_thread(future.result)
            async with mirroring(clusters, options("old", "old")) as mirror:
                await caught_up(clusters, mirror, at)
            starts = await list_offsets(clusters.target, {at: EARLIEST})
            assert starts[at] == 250
            source = await contents(clusters.source, at)
            assert await contents(clusters.target, at) == source and len(source) == 50

    asyncio.run(work())


def test_newer_process_takes_the_mirror_over_without_doubling_records(
    nodes: tuple[Node, Node],
) -> None:
    at = TopicPartition("handed", 0)

    async def work() -> None:
        async with opened(nodes) as clusters:
            await create_topic(clusters.source, NewTopic("handed", 1))
            first = await open_mirror(clusters, options("handed", "handed"))
            running = asyncio.ensure_future(first.run(lambda _: None))
            await produce(clusters.source, "handed", range(200))
            async with mirroring(clusters, options("handed", "handed")) as second:
                await produce(clusters.source, "handed", range(200, 900))
                await caught_up(clusters, second, at)
                with pytest.raises(TakenOver):
                    async with asyncio.timeout(SECONDS_MAX):
                        await running
            assert await contents(clusters.target, at) == await contents(clusters.source, at)

    asyncio.run(work())


def test_target_with_records_of_others_is_left_alone(nodes: tuple[Node, Node]) -> None:
    async def work() -> None:
        async with opened(nodes) as clusters:
            for cluster in (clusters.source, clusters.target):
                await create_topic(cluster, NewTopic("theirs", 1))
                await produce(cluster, "theirs", range(5))
            async with mirroring(clusters, options("theirs", "theirs")) as mirror:
                await until(lambda: "theirs-0" in mirror.problems)
                assert mirror.copier.links == {}
            assert len(await contents(clusters.target, TopicPartition("theirs", 0))) == 5
            async with mirroring(clusters, options("theirs", "theirs", may_append=True)) as mirror:
                await caught_up(clusters, mirror, TopicPartition("theirs", 0))
            assert len(await contents(clusters.target, TopicPartition("theirs", 0))) == 10

    asyncio.run(work())
