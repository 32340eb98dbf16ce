"""Producer, reader and offset lookup against in-memory brokers, with failures."""

import asyncio

import pytest
from fake_cluster import FakeCluster, topic_id, with_cluster

from ottla.client.accumulator import AccumulatorLimits
from ottla.client.bootstrap import open_first
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster, NoBroker, Refused
from ottla.client.connection import Connection, ConnectionLost
from ottla.client.consumer import ReaderOptions, open_reader
from ottla.client.offset_spec import BEGINNING, END, AtOffset, AtTime, BeforeEnd
from ottla.client.offsets import list_offsets, resolve
from ottla.client.partitioner import partition_of_key
from ottla.client.producer import ProducerOptions, open_producer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, NodeId, Offset, TopicPartition
from ottla.runtime.ports import Address
from ottla.security.sasl.credentials import LoginFailed
from simulation.clock import SimClock
from simulation.loop import run_simulated
from simulation.network import SimNetwork
from simulation.random import SimRandom

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(*values: bytes) -> bytearray:
    return build_batch([Record(Offset(n), Millis(0), None, v) for n, v in enumerate(values)])


# -- the cluster -------------------------------------------------------------------


def test_unreachable_bootstrap_broker_is_skipped() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        assert set(cluster.nodes) == {1, 2}
        with pytest.raises(NoBroker, match="broker 1"):
            await cluster.connection(NodeId(1))

    with_cluster(fake, scenario, silent=[1])


def test_open_raises_no_broker_if_none_responds() -> None:
    async def never(cluster: Cluster) -> None:
        raise AssertionError

    with pytest.raises(NoBroker, match=r"b1:9092.*b2:9092"):
        with_cluster(FakeCluster(), never, silent=[1, 2])


def test_brokers_that_are_cut_off_do_not_delay_finding_one() -> None:
    fake = FakeCluster(nodes=4)

    async def scenario(cluster: Cluster) -> None:
        assert set(cluster.nodes) == {1, 2, 3, 4}
        await cluster.metadata(None)  # of the broker that has answered
        assert asyncio.get_running_loop().time() < 1

    with_cluster(fake, scenario, cut_off=[1, 2, 3])


def test_finding_a_broker_has_one_budget_for_all_addresses() -> None:
    async def never(cluster: Cluster) -> None:
        raise AssertionError

    async def timed() -> None:
        loop = asyncio.get_running_loop()
        network = SimNetwork(loop, seed=1)
        ports = ClientPorts(network.port_of("client"), SimClock(loop), SimRandom(1))
        for node in range(5):
            network.cut("client", f"b{node}")
        addresses = [Address(f"b{node}", 9092) for node in range(5)]
        with pytest.raises(NoBroker, match=r"b0:9092: no answer within 3 s; .*b4:9092: no answer"):
            await Cluster.open(ports, addresses, ClientOptions(find_timeout_ms=3000))
        assert 2.9 < loop.time() < 3.1

    run_simulated(timed())


def test_brokers_that_do_not_answer_a_request_share_one_budget() -> None:
    fake = FakeCluster(nodes=3)

    async def scenario(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        fake.script = [lambda node, message: "no reply"]
        began = loop.time()
        with pytest.raises(NoBroker, match=r"b1:9092: Metadata: \d+ ms"):
            await cluster.metadata([])
        assert loop.time() - began < 31

    with_cluster(fake, scenario)


def test_wrong_credentials_end_the_search_for_a_broker() -> None:
    async def refused(address: Address) -> Connection:
        if address.host == "b1":
            raise LoginFailed("wrong password")
        await asyncio.sleep(60)
        raise AssertionError

    async def search() -> None:
        addresses = [Address(f"b{node}", 9092) for node in range(1, 4)]
        with pytest.raises(LoginFailed):
            await open_first(addresses, refused, {}, 10)
        assert asyncio.get_running_loop().time() < 1

    run_simulated(search())


def test_leader_is_cached_until_forget() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        before = len(fake.asked(MetadataRequest))
        assert (await cluster.leader_of(P0)).node_id == 1
        assert (await cluster.leader_of(P1)).node_id == 2
        assert len(fake.asked(MetadataRequest)) == before + 1
        fake.leaders[P0] = 2
        assert (await cluster.leader_of(P0)).node_id == 1
        cluster.forget("t")
        assert (await cluster.leader_of(P0)).node_id == 2
        assert cluster.known_id("t") == topic_id("t")

    with_cluster(fake, scenario)


def test_unknown_topic_is_refused_at_once() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        for partition in (TopicPartition("nothing", 0), TopicPartition("t", 9)):
            with pytest.raises(Refused) as refused:
                await cluster.leader_of(partition)
            assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "nothing" not in fake.topics, "asking does not create"
        assert asyncio.get_running_loop().time() < 1

    with_cluster(fake, scenario)


def test_leader_lookup_waits_for_an_election_in_bounded_time() -> None:
    fake = FakeCluster()
    fake.leaders[P0] = -1

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(Refused) as refused:
            await cluster.leader_of(P0)
        assert refused.value.code == ErrorCode.LEADER_NOT_AVAILABLE
        asyncio.get_running_loop().call_later(1, fake.leaders.clear)
        assert (await cluster.leader_of(P0)).node_id == 1

    with_cluster(fake, scenario)


def test_only_requests_that_may_repeat_are_retried() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        cut: list[int] = []

        def hang_up_once(node: int, message: Message) -> str | None:
            cut.append(node)
            fake.script.clear()
            return "hang up"

        fake.script = [hang_up_once]
        await cluster.send_any(MetadataRequest(topics=[]), MetadataResponse)
        assert len(cut) == 1
        fake.script = [hang_up_once]
        with pytest.raises(ConnectionLost):
            await cluster.send_any(MetadataRequest(topics=[]), MetadataResponse, may_repeat=False)

    with_cluster(fake, scenario)


# -- the producer ------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 13])
def test_records_arrive_complete_and_in_order(version: int) -> None:
    fake = FakeCluster()
    fake.served[ApiKey.PRODUCE] = (3, version)

    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster, ProducerOptions(compression=Compression.ZSTD)) as out:
            reports = [
                await out.send("t", b"%d" % n, key=b"k", headers=[Header("h", b"x")], timestamp=7)
                for n in range(5)
            ]
            delivered = [await each for each in reports]
        partition = TopicPartition("t", partition_of_key(b"k", 2))
        assert [each.offset for each in delivered] == [0, 1, 2, 3, 4]
        assert {each.partition for each in delivered} == {partition}
        assert fake.values(partition) == [b"0", b"1", b"2", b"3", b"4"]
        (header,) = fake.headers(partition)
        assert header.producer_id == 101 and header.base_sequence == 0
        assert header.compression is Compression.ZSTD and header.max_timestamp == 7
        (request,) = fake.asked(ProduceRequest)
        assert isinstance(request, ProduceRequest) and request.acks == -1

    with_cluster(fake, scenario)


def test_leaving_the_block_sends_the_remaining_records() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        limits = AccumulatorLimits(linger_ms=60_000)
        async with open_producer(cluster, ProducerOptions(limits=limits)) as out:
            report = await out.send("t", b"x", partition=0)
            assert not report.done()
        assert report.done() and fake.values(P0) == [b"x"]
        assert asyncio.get_running_loop().time() < 5, "and does not wait for company"

    with_cluster(fake, scenario)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_retried_batch_keeps_its_sequence(code: int) -> None:
    fake = FakeCluster(produce_errors=[code, code])

    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster) as out:
            first = await out.send("t", b"1", partition=0)
            await out.flush()
            await out.send("t", b"2", partition=0)
            assert (await first).offset == 0
        assert fake.values(P0) == [b"1", b"2"]
        assert [each.base_sequence for each in fake.headers(P0)] == [0, 1]
        assert len(fake.asked(InitProducerIdRequest)) == 1

    with_cluster(fake, scenario)


def test_batch_is_retried_at_the_new_leader_after_a_lost_connection() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        def die(node: int, message: Message) -> str | None:
            if isinstance(message, ProduceRequest):
                fake.leaders[P0] = 2
                fake.script.clear()
                return "hang up"
            return None

        fake.script = [die]
        async with open_producer(cluster) as out:
            report = await out.send("t", b"1", partition=0)
        assert (await report).offset == 0
        assert [node for node, each in fake.seen if isinstance(each, ProduceRequest)] == [1, 2]

    with_cluster(fake, scenario)


def test_not_leader_error_refreshes_the_leader() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster) as out:
            await (await out.send("t", b"1", partition=0))
            fake.leaders[P0] = 2
            report = await out.send("t", b"2", partition=0)
            await out.flush()
            assert (await report).offset == 1
        nodes = [node for node, each in fake.seen if isinstance(each, ProduceRequest)]
        assert nodes == [1, 1, 2]

    with_cluster(fake, scenario)


def test_rejected_batch_fails_alone_and_leaves_no_sequence_gap() -> None:
    fake = FakeCluster(produce_errors=[0, ErrorCode.MESSAGE_TOO_LARGE])

    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster) as out:
            reports = []
            for value in (b"1", b"2", b"3"):
                reports.append(await out.send("t", value, partition=0))
                await out.flush()
        with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
            await reports[1]
        assert (await reports[2]).offset == 1
        assert [each.base_sequence for each in fake.headers(P0)] == [0, 1]

    with_cluster(fake, scenario)


def test_unknown_producer_id_error_gets_a_new_producer_id() -> None:
    fake = FakeCluster(produce_errors=[0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])

    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster) as out:
            reports = []
            for value in (b"1", b"2", b"3"):
                reports.append(await out.send("t", value, partition=0))
                await out.flush()
        assert isinstance(reports[1].exception(), Refused)
        assert [(h.producer_id, h.base_sequence) for h in fake.headers(P0)] == [(101, 0), (102, 0)]

    with_cluster(fake, scenario)


def test_duplicate_sequence_error_counts_as_written() -> None:
    fake = FakeCluster(produce_errors=[ErrorCode.DUPLICATE_SEQUENCE_NUMBER])

    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster) as out:
            report = await out.send("t", b"1", partition=0)
        assert (await report).offset == -1

    with_cluster(fake, scenario)


def test_retries_end_after_the_delivery_timeout() -> None:
    fake = FakeCluster(produce_errors=[ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)

    async def scenario(cluster: Cluster) -> None:
        limits = AccumulatorLimits(delivery_timeout_ms=5000)
        async with open_producer(cluster, ProducerOptions(limits=limits)) as out:
            report = await out.send("t", b"1", partition=0)
        assert isinstance(report.exception(), Refused)
        assert 5 <= asyncio.get_running_loop().time() < 8

    with_cluster(fake, scenario)


def test_send_waits_while_the_buffer_is_full() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        limits = AccumulatorLimits(buffer_bytes_max=1000, linger_ms=0)
        async with open_producer(cluster, ProducerOptions(limits=limits)) as out:
            for n in range(20):
                await out.send("t", b"%d" % n + b"x" * 400, partition=0)
        assert [value.rstrip(b"x") for value in fake.values(P0)] == [b"%d" % n for n in range(20)]
        assert len(fake.asked(ProduceRequest)) >= 10, "not all at once"

    with_cluster(fake, scenario)


def test_acks_0_does_not_wait_for_a_reply() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        options = ProducerOptions(acks=0, is_idempotent=False)
        async with open_producer(cluster, options) as out:
            report = await out.send("t", b"1", partition=0)
            assert (await report).offset == -1
            await out.send("t", b"2", partition=0)
        await cluster.metadata(["t"])  # behind the others on the same connection
        assert fake.values(P0) == [b"1", b"2"]
        assert fake.headers(P0)[0].producer_id == -1

    with_cluster(fake, scenario)


async def poll_and_raise(cluster: Cluster) -> None:
    async with open_reader(cluster, {P0: Offset(0)}) as reader:
        await reader.poll()
        raise KeyError


def test_exception_of_the_block_is_raised_unchanged() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(KeyError):
            async with open_producer(cluster):
                raise KeyError
        with pytest.raises(KeyError):
            await poll_and_raise(cluster)

    with_cluster(FakeCluster(), scenario)


def test_send_to_an_unknown_partition_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with open_producer(cluster) as out:
            with pytest.raises(Refused):
                await out.send("t", b"1", partition=2)
            await out.send("new", b"1")

    with_cluster(FakeCluster(), scenario)


# -- the reader --------------------------------------------------------------------


async def read_all(cluster: Cluster, *partitions: TopicPartition, start: int = 0) -> list[bytes]:
    found: list[bytes] = []
    positions = {each: Offset(start) for each in partitions}
    async with open_reader(cluster, positions) as reader:
        while not reader.is_at_end:
            for fetched in await reader.poll():
                found += [record.value or b"" for record in fetched.records()]
    return found


@pytest.mark.parametrize("version", [12, 18])
def test_reader_reads_all_records_from_all_leaders(version: int) -> None:
    fake = FakeCluster()
    fake.served[ApiKey.FETCH] = (4, version)
    fake.append(P0, batch(b"a", b"b"))
    fake.append(P1, batch(b"c"))

    async def scenario(cluster: Cluster) -> None:
        assert sorted(await read_all(cluster, P0, P1)) == [b"a", b"b", b"c"]
        assert await read_all(cluster, P0, start=1) == [b"b"]

    with_cluster(fake, scenario)


def test_reader_follows_a_new_leader_without_losing_records() -> None:
    fake = FakeCluster()
    fake.append(P0, batch(b"a"))

    async def scenario(cluster: Cluster) -> None:
        async with open_reader(cluster, {P0: Offset(0)}) as reader:
            (fetched,) = await reader.poll()
            fake.leaders[P0] = 2
            fake.append(P0, batch(b"b"))
            found: list[bytes | None] = []
            while not found:
                for fetched in await reader.poll():
                    found += [record.value for record in fetched.records()]
            assert found == [b"b"]
            assert reader.positions == {P0: 2}

    with_cluster(fake, scenario)


def test_offset_out_of_range_is_raised() -> None:
    async def scenario(cluster: Cluster) -> None:
        async with open_reader(cluster, {P0: Offset(5)}) as reader:
            with pytest.raises(Refused) as refused:
                await reader.poll()
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    with_cluster(FakeCluster(), scenario)


def test_reader_raises_after_too_many_failures() -> None:
    fake = FakeCluster()

    async def scenario(cluster: Cluster) -> None:
        await cluster.leader_of(P0)
        fake.script = [lambda node, message: "hang up"]
        options = ReaderOptions(failures_max=3)
        async with open_reader(cluster, {P0: Offset(0)}, options) as reader:
            for _ in range(3):
                assert await reader.poll() == []
            with pytest.raises(ConnectionError):
                await reader.poll()

    with_cluster(fake, scenario)


def test_reply_to_a_fetch_before_a_seek_is_discarded() -> None:
    fake = FakeCluster()
    for partition in (P0, P1):
        fake.append(partition, batch(b"a"))
        fake.append(partition, batch(b"b"))

    async def scenario(cluster: Cluster) -> None:
        async with open_reader(cluster, {P0: Offset(0), P1: Offset(0)}) as reader:
            (first,) = await reader.poll()
            other = P1 if first.partition == P0 else P0
            reader.seek(other, Offset(1))
            found: list[bytes | None] = []
            while not reader.is_at_end:
                for fetched in await reader.poll():
                    assert fetched.partition == other
                    found += [record.value for record in fetched.records()]
            assert found == [b"b"]

    with_cluster(fake, scenario)


def test_reader_continues_at_the_seek_offset() -> None:
    fake = FakeCluster()
    fake.append(P0, batch(b"a"))
    fake.append(P0, batch(b"b"))

    async def scenario(cluster: Cluster) -> None:
        async with open_reader(cluster, {P0: Offset(0), P1: Offset(0)}) as reader:
            while not reader.positions[P0]:
                await reader.poll()
            reader.seek(P0, Offset(1))
            assert not reader.is_at_end
            found: list[bytes | None] = []
            while not reader.is_at_end:
                for fetched in await reader.poll():
                    found += [record.value for record in fetched.records()]
            assert found == [b"b"]
            reader.drop(P0)
            assert reader.positions == {P1: 0}

    with_cluster(fake, scenario)


# -- offsets -----------------------------------------------------------------------


def test_offsets_are_looked_up_at_every_leader() -> None:
    fake = FakeCluster(log_start=3)
    for partition in (P0, P1):
        fake.append(partition, batch(b"a", b"b"))

    async def scenario(cluster: Cluster) -> None:
        assert await list_offsets(cluster, {P0: -1, P1: -2}) == {P0: 5, P1: 3}
        fake.leaders[P0] = 2
        assert await list_offsets(cluster, {P0: -1, P1: 12345}) == {P0: 5, P1: None}

        async def one(spec: AtOffset | AtTime | BeforeEnd) -> int:
            return (await resolve(cluster, {P0: spec}))[P0]

        assert await one(BEGINNING) == 3
        assert await one(END) == 5
        assert await one(AtOffset(77)) == 77
        assert await one(BeforeEnd(1)) == 4
        assert await one(BeforeEnd(100)) == 3
        assert await one(AtTime(10**15)) == 5, "a time that nobody has reached is the end"

    with_cluster(fake, scenario)
