"""Fetch from a broker's partitions: reads, errors, waiting and sessions."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest
from fetch_harness import (
    Broker,
    count_calls,
    id_of,
    only,
    part,
    records_in,
    response_of,
    rows,
    values_of,
    want,
)
from msgspec.structs import replace
from partition_fixtures import append, batch_of, registration

from ottla.api.surface.replies import Answer
from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import StorageFailed
from ottla.protocol.messages import fetch
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Offset
from ottla.quotas.client_quotas import QuotaKind
from ottla.replication.partition import Partition
from ottla.runtime.pending import Pending
from ottla.storage.log.log_config import LogConfig

THREE = (0, 1, 2)
SOON = 30_000


def on_a_loop(
    test: Callable[..., Coroutine[object, object, None]],
) -> Callable[..., None]:
    """Run a test on an event loop; what waits for ever fails it."""

    @wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


def batch_size(broker: Broker) -> int:
    """The bytes of the first batch of orders-0."""
    return len(bytes(only(broker.get(want(part(bytes_max=1)))).records or b""))


# -- reading ---------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12, 13, 15, 16, 17, 18])
def test_fetch_returns_records_with_log_offsets(version: int) -> None:
    broker = Broker()
    append(broker.host(), b"a", b"b")
    row = only(broker.get(want(part()), version))
    assert values_of(row) == [b"a", b"b"]
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 2, 2)
    assert row.log_start_offset == (0 if version >= 5 else -1)
    assert row.aborted_transactions is None


def test_every_offset_of_every_batch_can_be_fetched() -> None:
    broker = Broker()
    partition = broker.host()
    for size in (1, 3, 2):
        append(partition, *(b"%d" % size for _ in range(size)))
    for offset in range(6):
        found = records_in(only(broker.get(want(part(offset=offset)))))
        assert [each.offset for each in found][-1] == 5
        assert found[0].offset <= offset
    row = only(broker.get(want(part(offset=6))))
    assert (row.error_code, row.records) == (0, b"")


@pytest.mark.parametrize("offset", [-1, 7, 2**62])
def test_fetch_outside_the_log_returns_offset_out_of_range(offset: int) -> None:
    broker = Broker()
    append(broker.host(), b"a")
    row = only(broker.get(want(part(offset=offset), max_wait_ms=SOON)))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (row.high_watermark, row.log_start_offset, row.records) == (-1, -1, b"")
    # Kafka has an empty list only where it refuses before it reads.
    assert row.aborted_transactions is None
    unknown = only(broker.get(want(part(9), max_wait_ms=SOON)))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.aborted_transactions == []


def test_consumer_receives_nothing_above_the_high_watermark() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    append(partition, b"a")
    assert only(broker.get(want(part()))).records == b""
    for follower in (1, 2):
        partition.follower_fetched(follower, Offset(1), log_start=Offset(0))
    assert values_of(only(broker.get(want(part())))) == [b"a"]


# -- the budget ------------------------------------------------------------------


def many(broker: Broker, count: int = 3) -> list[Partition]:
    partitions = [broker.host(index=index) for index in range(count)]
    for partition in partitions:
        append(partition, b"x" * 100)
    return partitions


def sizes(broker: Broker, *parts: fetch.FetchPartition, **more) -> list[int]:
    return [len(bytes(row.records or b"")) for row in rows(broker.get(want(*parts, **more)))]


def test_first_batch_is_returned_whole_however_large() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    assert sizes(broker, part(0, bytes_max=1), part(1, bytes_max=1), max_bytes=1) == [one, 0]


def test_first_partition_with_records_gets_a_whole_batch() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    assert sizes(broker, part(0, 1), part(1, bytes_max=1), part(2, bytes_max=1)) == [0, one, 0]


def test_max_bytes_are_used_in_request_order() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    asked = [part(each) for each in (2, 0, 1)]
    assert sizes(broker, *asked, max_bytes=2 * one) == [one, one, 0]
    assert sizes(broker, *asked, max_bytes=2 * one - 1) == [one, 0, 0]


def test_partition_max_bytes_limits_the_partition() -> None:
    broker = Broker()
    append(many(broker)[0], b"y" * 100)
    one = batch_size(broker)
    assert sizes(broker, part(0, bytes_max=one + 3), part(1)) == [one + 3, one]


def test_broker_limit_bounds_every_fetch() -> None:
    broker = Broker(bytes_max=1)
    many(broker)
    assert sizes(broker, part(0), part(1), max_bytes=2**31 - 1)[1:] == [0]


def test_limits_of_0_return_only_the_first_batch() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    asked = [part(0, bytes_max=0), part(1, bytes_max=0)]
    assert sizes(broker, *asked, max_bytes=0) == [one, 0]


@pytest.mark.parametrize("limit", [-1, -(2**31)])
@pytest.mark.parametrize("version", [4, 12, 18])
def test_negative_limit_is_an_error_of_each_partition_with_something_to_read(
    limit: int, version: int
) -> None:
    broker = Broker()
    append(broker.host(index=0), b"a")
    append(broker.host(index=1), b"b")
    broker.host(index=2)
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    of_all = broker.get(want(part(0), part(1), part(2), max_bytes=limit), version)
    assert of_all.error_code == 0
    assert [row.error_code for row in rows(of_all)] == [code, code, 0]
    of_one = broker.get(want(part(0), part(1, bytes_max=limit)), version)
    assert [row.error_code for row in rows(of_one)] == [0, code]
    assert rows(of_one)[1].aborted_transactions is None


@pytest.mark.parametrize(("version", "codes"), [(4, [-1]), (12, [-1]), (13, []), (18, [])])
def test_unknown_isolation_level_fails_the_request(version: int, codes: list[int]) -> None:
    broker = Broker()
    broker.host()
    reply = broker.get(want(part(), isolation_level=2), version)
    assert reply.error_code == (-1 if version >= 7 else 0)
    assert [row.error_code for topic in reply.responses for row in topic.partitions] == codes


# -- transactions ----------------------------------------------------------------


def in_transaction(partition: Partition, producer: int, *values: bytes) -> None:
    batch = batch_of(*values, producer=Producer(producer, 0, 0), is_transactional=True)
    partition.append(batch, now=1)


def end(partition: Partition, producer: int, *, commit: bool) -> None:
    marker = build_end_txn_marker(EndTxnMarker(commit, 0), Producer(producer, 0), 1)
    partition.append(marker, now=1, from_client=False)


def test_read_committed_stops_at_the_first_open_transaction() -> None:
    broker = Broker()
    partition = broker.host()
    append(partition, b"a")
    in_transaction(partition, 7, b"open")
    row = only(broker.get(want(part(), isolation_level=1)))
    assert values_of(row) == [b"a"]
    assert (row.high_watermark, row.last_stable_offset) == (2, 1)
    assert row.aborted_transactions == []
    assert len(records_in(only(broker.get(want(part(), isolation_level=0))))) == 2


def test_read_committed_fetch_lists_aborted_transactions() -> None:
    broker = Broker()
    partition = broker.host()
    in_transaction(partition, 7, b"bad")
    in_transaction(partition, 8, b"good")
    end(partition, 7, commit=False)
    end(partition, 8, commit=True)
    row = only(broker.get(want(part(), isolation_level=1)))
    assert row.aborted_transactions == [fetch.AbortedTransaction(7, 0)]
    assert only(broker.get(want(part()))).aborted_transactions is None


# -- refusals --------------------------------------------------------------------


def error_of(broker: Broker, request: fetch.FetchRequest, version: int = 12) -> ErrorCode:
    return ErrorCode(only(broker.get(request, version)).error_code)


def test_fetch_of_unknown_topic_or_partition_is_an_error() -> None:
    broker = Broker()
    broker.host()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(broker, want(part(), topic="nope")) is unknown
    assert error_of(broker, want(part(1))) is unknown
    assert error_of(broker, want(part(-1))) is unknown
    assert error_of(broker, want(part(1)), 13) is unknown
    assert error_of(broker, want(part(), topic="nope"), 13) is ErrorCode.UNKNOWN_TOPIC_ID


def test_fetch_from_a_broker_that_does_not_lead_names_the_leader() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    row = only(reply := broker.get(want(part()), 16))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader == fetch.LeaderIdAndEpoch(2, 4)
    assert reply.node_endpoints == [fetch.NodeEndpoint(2, "host2", 9092, "b")]


def test_follower_fetch_error_has_the_leader_without_endpoint() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    state = fetch.ReplicaState(5, 1)
    reply = broker.get(want(part(), replica_state=state), 16)
    assert only(reply).current_leader == fetch.LeaderIdAndEpoch(2, 4)
    assert reply.node_endpoints == []


def test_old_versions_have_no_current_leader() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    row = only(broker.get(want(part()), 15))
    assert row.current_leader == fetch.LeaderIdAndEpoch()


def test_fenced_leader_has_no_endpoint() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    brokers = broker.image.cluster.brokers
    dead = brokers.set(2, replace(brokers[2], fenced=True))
    broker.image = replace(broker.image, cluster=replace(broker.image.cluster, brokers=dead))
    reply = broker.get(want(part()), 16)
    assert only(reply).current_leader == fetch.LeaderIdAndEpoch(2, 4)
    assert reply.node_endpoints == []


def test_leader_epochs_are_compared() -> None:
    broker = Broker()
    broker.host(epoch=3)
    old, new = part(current_leader_epoch=2), part(current_leader_epoch=4)
    row = only(broker.get(want(old, max_wait_ms=SOON), 16))
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert row.current_leader == fetch.LeaderIdAndEpoch(0, 3)
    assert error_of(broker, want(new), 16) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error_of(broker, want(part(current_leader_epoch=3))) is ErrorCode.NONE


def test_negative_leader_epoch_in_a_fetch_means_none() -> None:
    broker = Broker()
    broker.host(epoch=3)
    for epoch in (-1, -2, -(1 << 31)):
        asked = part(current_leader_epoch=epoch, last_fetched_epoch=epoch)
        assert error_of(broker, want(asked), 16) is ErrorCode.NONE


def test_fetch_by_old_id_of_a_recreated_topic_fails() -> None:
    broker = Broker()
    partition = broker.host()
    partition.topic_id = id_of("before")
    assert error_of(broker, want(part()), 13) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert error_of(broker, want(part()), 12) is ErrorCode.NONE


def test_topic_deleted_during_a_session_is_unknown() -> None:
    broker = Broker()
    partition = broker.host()
    session = broker.get(want(part(), session_epoch=0), 13).session_id
    broker.partitions.remove(partition)
    topic = broker.image.topics.named("orders")
    assert topic is not None
    broker.image = replace(broker.image, topics=broker.image.topics.without_topic(topic))
    again = fetch.FetchRequest(session_id=session, session_epoch=1, max_wait_ms=0)
    assert error_of(broker, again, 13) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_topic_id_is_looked_up_again() -> None:
    broker = Broker()
    session = broker.get(want(part(), session_epoch=0), 13).session_id
    append(broker.host(), b"a")
    again = fetch.FetchRequest(session_id=session, session_epoch=1, max_wait_ms=0)
    assert values_of(only(broker.get(again, 13))) == [b"a"]


def test_fetch_from_a_failed_directory_is_a_storage_error() -> None:
    broker = Broker()
    partition = broker.host()
    partition.go_offline(StorageFailed("/d", "gone"))
    assert error_of(broker, want(part())) is ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(broker, want(part()), 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [4, 9, 10])
def test_records_of_a_zstd_topic_are_returned_in_every_version(version: int) -> None:
    broker = Broker()
    append(broker.host(config=TopicConfig(compression_type="zstd")), b"a")
    row = only(broker.get(want(part()), version))
    assert (row.error_code, values_of(row)) == (ErrorCode.NONE, [b"a"])


def test_fetch_without_read_permission_is_refused() -> None:
    broker = Broker(sources={"may_read": lambda caller, topic: topic != "orders"})
    append(broker.host(), b"secret")
    row = only(broker.get(want(part())))
    assert (row.error_code, row.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_replica_fetch_without_cluster_action_is_refused() -> None:
    broker = Broker(sources={"may_replicate": lambda caller: False})
    append(broker.host(replicas=THREE), b"secret")
    row = only(broker.get(want(part(), replica_id=1)))
    assert (row.error_code, row.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


# -- sessions --------------------------------------------------------------------


def test_session_returns_only_changed_partitions() -> None:
    broker = Broker()
    many(broker)
    session = broker.get(want(part(0), part(1, 1), session_epoch=0)).session_id
    assert session != 0
    again = want(part(0, 1), session_id=session, session_epoch=1)
    assert rows(broker.get(again)) == []
    append(broker.partitions.find("orders", 1), b"new")
    reply = broker.get(fetch.FetchRequest(session_id=session, session_epoch=2, max_wait_ms=0))
    assert (reply.session_id, only(reply).partition_index) == (session, 1)
    assert values_of(only(reply)) == [b"new"]


def test_starved_partition_is_first_in_the_next_fetch() -> None:
    broker = Broker()
    many(broker)
    first = broker.get(want(part(0), part(1), part(2), session_epoch=0, max_bytes=1))
    session = first.session_id
    served = []
    for epoch in (1, 2, 3):
        request = fetch.FetchRequest(
            session_id=session, session_epoch=epoch, max_wait_ms=0, max_bytes=1
        )
        served += [row.partition_index for row in rows(broker.get(request)) if row.records]
    assert served == [0, 1, 2]


@pytest.mark.parametrize(
    ("session", "epoch", "error"),
    [
        (99, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_invalid_session_is_an_error(session: int, epoch: int, error: ErrorCode) -> None:
    broker = Broker()
    broker.host()
    assert broker.get(want(part(), session_epoch=0)).session_id == 1
    reply = broker.get(fetch.FetchRequest(session_id=session, session_epoch=epoch))
    assert (reply.error_code, reply.session_id, reply.responses) == (error, 0, [])


# -- waiting ---------------------------------------------------------------------


@on_a_loop
async def test_fetch_waits_for_the_first_record() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    append(partition, b"a")
    assert values_of(only(await broker.wait(reply))) == [b"a"]


@on_a_loop
async def test_fetch_returns_after_max_wait() -> None:
    broker = Broker()
    broker.host()
    row = only(await broker.wait(broker.ask(want(part(), max_wait_ms=10))))
    assert (row.error_code, row.high_watermark, row.records) == (0, 0, b"")


@on_a_loop
async def test_waiting_fetch_is_answered_in_the_iteration_of_the_append_by_one_read() -> None:
    broker = Broker()
    partition = broker.host()
    sent: list[object] = []
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    assert isinstance(reply, Pending)
    reply.when_done(sent.append)
    reads: list[str] = []
    for name in ("read", "read_recent"):
        count_calls(partition.log, name, reads)
    append(partition, b"a")
    assert not sent, "other requests of this iteration may still append"
    await asyncio.sleep(0)
    assert len(sent) == 1
    assert reads == ["read_recent"]


@on_a_loop
async def test_fetch_that_ends_inside_of_a_batch_goes_on_waiting() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    assert isinstance(reply, Pending)
    append(partition, b"a", b"b")
    partition.log.set_high_watermark(Offset(1))
    partition.wake_readers()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reply.is_done
    for follower in (1, 2):
        partition.follower_fetched(follower, Offset(2), log_start=Offset(0))
    assert values_of(only(await broker.wait(reply))) == [b"a", b"b"]


@on_a_loop
async def test_fetch_waits_for_min_bytes() -> None:
    broker = Broker()
    partition = broker.host()
    append(partition, b"a")
    one = batch_size(broker)
    reply = broker.ask(want(part(), max_wait_ms=SOON, min_bytes=2 * one + 1))
    assert isinstance(reply, Pending)
    append(partition, b"b")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reply.is_done
    append(partition, b"c")
    assert values_of(only(await broker.wait(reply))) == [b"a", b"b", b"c"]


@on_a_loop
async def test_min_bytes_are_summed_over_partitions() -> None:
    broker = Broker()
    partitions = many(broker)
    one = batch_size(broker)
    asked = [part(each) for each in range(3)]
    reply = broker.ask(want(*asked, max_wait_ms=SOON, min_bytes=3 * one + 1))
    append(partitions[1], b"more")
    found = rows(await broker.wait(reply))
    assert [len(values_of(row)) for row in found] == [1, 2, 1]


def test_fetch_does_not_wait_for_more_than_max_bytes() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    assert sizes(broker, part(0), max_bytes=one, min_bytes=10 * one, max_wait_ms=SOON) == [one]


@on_a_loop
async def test_one_write_to_many_partitions_completes_one_fetch() -> None:
    broker = Broker()
    partitions = [broker.host(index=index) for index in range(3)]
    reply = broker.ask(want(*(part(each) for each in range(3)), max_wait_ms=SOON))
    for partition in partitions:
        append(partition, b"a")
    found = rows(await broker.wait(reply))
    assert [values_of(row) for row in found] == [[b"a"]] * 3


@on_a_loop
async def test_invisible_records_do_not_complete_a_fetch() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    assert isinstance(reply, Pending)
    append(partition, b"a")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reply.is_done
    for follower in (1, 2):
        partition.follower_fetched(follower, Offset(1), log_start=Offset(0))
    assert values_of(only(await broker.wait(reply))) == [b"a"]


@on_a_loop
async def test_lost_leadership_completes_a_waiting_fetch() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    reply = broker.ask(want(part(), max_wait_ms=SOON), 9)
    partition.apply(registration(leader=1, epoch=1, replicas=THREE, partition_epoch=1))
    row = only(await broker.wait(reply, 9))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_deleted_topic_completes_a_waiting_fetch() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    topic = broker.image.topics.named("orders")
    assert topic is not None
    broker.image = replace(broker.image, topics=broker.image.topics.without_topic(topic))
    broker.partitions.remove(partition)
    row = only(await broker.wait(reply))
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_a_loop
async def test_unknown_topic_does_not_complete_the_wait() -> None:
    broker = Broker()
    partition = broker.host()
    request = want(part(), max_wait_ms=SOON)
    request.topics.append(fetch.FetchTopic("nope", partitions=[part()]))
    reply = broker.ask(request)
    append(partition, b"a")
    found = rows(await broker.wait(reply))
    assert [row.error_code for row in found] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@on_a_loop
async def test_disconnected_client_leaves_no_waiter() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    assert isinstance(reply, Pending)
    reply.cancel()
    await asyncio.sleep(0)
    assert len(partition._wakers) == 0
    append(partition, b"a")


@on_a_loop
async def test_completed_fetch_leaves_no_waiter() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    append(partition, b"a")
    await broker.wait(reply)
    await asyncio.sleep(0)
    assert len(partition._wakers) == 0


@pytest.mark.parametrize("more", [{"max_wait_ms": -1}, {"min_bytes": 0, "max_wait_ms": SOON}])
def test_fetch_without_max_wait_or_min_bytes_returns_at_once(more: dict) -> None:
    broker = Broker()
    broker.host()
    assert only(broker.get(want(part(), **more))).records == b""


# -- replicas --------------------------------------------------------------------


def as_follower(*parts: fetch.FetchPartition, replica: int = 1, epoch: int = 101, **more):
    state = fetch.ReplicaState(replica, epoch)
    return want(*parts, replica_state=state, replica_id=-1, **more)


def test_follower_reads_to_the_log_end_and_advances_the_hw() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    row = only(broker.get(as_follower(part(log_start_offset=0)), 17))
    assert values_of(row) == [b"a"]
    assert row.high_watermark == 0
    broker.get(as_follower(part(offset=1, log_start_offset=0)), 17)
    assert partition.log.high_watermark == 1
    assert partition.followers[1].log_end == 1
    assert partition.followers[1].broker_epoch == 101


def test_follower_is_identified_by_replica_id_before_version_15() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    assert values_of(only(broker.get(want(part(), replica_id=1), 12))) == [b"a"]
    assert partition.followers[1].log_end == 0


def test_fetch_of_a_non_replica_is_refused() -> None:
    broker = Broker()
    append(broker.host(replicas=(0, 1)), b"a")
    row = only(broker.get(as_follower(part(current_leader_epoch=0), replica=2), 17))
    assert (row.error_code, row.records) == (ErrorCode.UNKNOWN_LEADER_EPOCH, b"")


def test_follower_with_an_old_broker_epoch_is_refused() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    broker.get(as_follower(part(log_start_offset=0), epoch=102), 17)
    stale = as_follower(part(offset=1, log_start_offset=0), epoch=101, max_wait_ms=SOON)
    row = only(broker.get(stale, 17))
    assert (row.error_code, row.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert partition.log.high_watermark == 0


@pytest.mark.parametrize("version", [4, 12, 18])
def test_debugging_consumer_reads_any_replica_to_its_end(version: int) -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE, leader=2)
    partition.log.append_at(bytes(batch_of(b"a", leader_epoch=0)), now=1)
    assert partition.log.high_watermark == 0
    ask = want(part(), replica_id=-2) if version < 15 else as_follower(part(), replica=-2, epoch=-1)
    assert values_of(only(broker.get(ask, version))) == [b"a"]
    assert partition.followers == {}


def test_follower_fetch_from_a_follower_is_refused() -> None:
    broker = Broker()
    broker.host(replicas=THREE, leader=2)
    row = only(broker.get(as_follower(part()), 17))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_waiting_follower_is_counted_once() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    reply = broker.ask(as_follower(part(log_start_offset=0), max_wait_ms=SOON), 17)
    broker.clock.pass_ms(5)
    append(partition, b"a")
    assert values_of(only(await broker.wait(reply, 17))) == [b"a"]
    assert partition.followers[1].fetched_at == 0


def test_diverging_epoch_is_returned_and_not_counted() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    partition.apply(registration(replicas=(0, 1), epoch=5, partition_epoch=1))
    append(partition, b"b")
    asked = part(offset=9, last_fetched_epoch=3, current_leader_epoch=5)
    row = only(broker.get(as_follower(asked, max_wait_ms=SOON), 17))
    assert row.diverging_epoch == fetch.EpochEndOffset(0, 1)
    assert (row.error_code, row.records) == (0, b"")
    assert partition.followers[1].log_end == -1


@pytest.mark.parametrize("version", [10, 11])
def test_consumers_may_fetch_from_followers(version: int) -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE, leader=2)
    batch = batch_of(b"a", leader_epoch=0)
    partition.log.append_at(bytes(batch), now=1)
    partition.log.set_high_watermark(Offset(1))
    row = only(broker.get(want(part()), version))
    if version >= 11:
        assert values_of(row) == [b"a"]
    else:
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def in_sync(broker: Broker) -> Partition:
    """A partition whose followers 1 and 2, both in rack b, have offset 1; 2 has more."""
    partition = broker.host(replicas=THREE)
    append(partition, b"a")
    append(partition, b"b")
    partition.follower_fetched(1, Offset(1), log_start=Offset(0))
    partition.follower_fetched(2, Offset(2), log_start=Offset(0))
    return partition


@pytest.mark.parametrize(
    ("rack", "offset", "replica"),
    [("b", 1, 2), ("a", 1, -1), ("", 1, -1), ("nowhere", 1, -1), ("b", 3, -1)],
)
def test_consumer_gets_a_preferred_replica_in_its_rack(
    rack: str, offset: int, replica: int
) -> None:
    broker = Broker(sources={"is_rack_aware": True})
    in_sync(broker)
    row = only(broker.get(want(part(offset=offset), rack_id=rack, max_wait_ms=0)))
    assert row.preferred_read_replica == replica


def test_preferred_replica_is_in_sync() -> None:
    broker = Broker(sources={"is_rack_aware": True})
    partition = in_sync(broker)
    partition.apply(registration(replicas=THREE, isr=(0, 1), epoch=0, partition_epoch=1))
    row = only(broker.get(want(part(offset=1), rack_id="b")))
    assert (row.preferred_read_replica, row.records, row.high_watermark) == (1, b"", 1)


def test_no_preferred_replica_without_a_selector() -> None:
    broker = Broker()
    in_sync(broker)
    row = only(broker.get(want(part(offset=0), rack_id="b")))
    assert row.preferred_read_replica == -1
    assert values_of(row) == [b"a"]


# -- what is sent ----------------------------------------------------------------


def test_consecutive_fetches_read_all_segments() -> None:
    broker = Broker()
    partition = broker.host(log_config=LogConfig(segment_bytes=200))
    for value in range(6):
        append(partition, b"%d" % value)
    assert len(partition.log.segments) > 1
    found: list[int] = []
    while len(found) < 6:
        found += [each.offset for each in records_in(only(broker.get(want(part(0, len(found))))))]
    assert found == list(range(6))


# -- quotas ----------------------------------------------------------------------


def limited_broker(rate: float) -> tuple[Broker, Partition]:
    broker = Broker()
    broker.handlers.quotas.update({(("client-id", "test"),): {"consumer_byte_rate": rate}})
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a" * 500)
    append(partition, b"b" * 500)
    partition.follower_fetched(1, Offset(2), log_start=Offset(0))
    return broker, partition


def test_fetch_returns_at_most_what_a_quota_saves_up() -> None:
    broker, _ = limited_broker(600.0)
    assert len(records_in(only(broker.get(want(part()))))) == 1


def test_fetch_of_a_client_in_debt_is_empty_and_its_session_goes_on() -> None:
    broker, _ = limited_broker(2000.0)
    opened = broker.get(want(part(), session_epoch=0))
    now = broker.clock.monotonic()
    client = ("ANONYMOUS", "test")
    assert broker.handlers.quotas.charge(QuotaKind.FETCH, client, 5000, now) > 0
    within = want(session_id=opened.session_id, session_epoch=1)
    within.topics = []
    empty = broker.get(within)
    assert (empty.session_id, empty.responses) == (opened.session_id, [])
    within.session_epoch = 2
    assert broker.get(within).error_code == 0


def test_follower_is_exempt_from_the_quota_of_its_client() -> None:
    broker, _ = limited_broker(1.0)
    now = broker.clock.monotonic()
    broker.handlers.quotas.charge(QuotaKind.FETCH, ("ANONYMOUS", "test"), 5000, now)
    reply = broker.ask(as_follower(part(log_start_offset=0)), 17)
    assert isinstance(reply, Answer) and reply.is_exempt
    assert isinstance(reply.body, list)
    assert len(records_in(only(response_of(reply.body, 17)))) == 2
