"""Fetch on a broker's own partitions: what is read, refused, waited for and told."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest
from fetch_world import Broker, id_of, only, part, records_in, rows, values_of, want
from msgspec.structs import replace
from partition_fixtures import append, batch_of, registration

from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import StorageFailed
from ottla.protocol.messages import fetch
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.writer import Producer
from ottla.protocol.types import Offset
from ottla.replication.partition import Partition
from ottla.storage.log_config import LogConfig

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
def test_records_come_with_where_the_log_stands(version: int) -> None:
    broker = Broker()
    append(broker.host(), b"a", b"b")
    row = only(broker.get(want(part()), version))
    assert values_of(row) == [b"a", b"b"]
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 2, 2)
    assert row.log_start_offset == (0 if version >= 5 else -1)
    assert row.aborted_transactions is None


def test_every_offset_of_every_batch_can_be_asked_for() -> None:
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
def test_an_offset_that_is_not_there_is_out_of_range(offset: int) -> None:
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


def test_a_consumer_sees_nothing_above_the_high_watermark() -> None:
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


def test_the_first_batch_comes_whole_however_large() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    assert sizes(broker, part(0, bytes_max=1), part(1, bytes_max=1), max_bytes=1) == [one, 0]


def test_whoever_is_first_with_records_gets_the_whole_batch() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    assert sizes(broker, part(0, 1), part(1, bytes_max=1), part(2, bytes_max=1)) == [0, one, 0]


def test_the_budget_is_shared_in_the_order_of_the_request() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    asked = [part(each) for each in (2, 0, 1)]
    assert sizes(broker, *asked, max_bytes=2 * one) == [one, one, 0]
    assert sizes(broker, *asked, max_bytes=2 * one - 1) == [one, 0, 0]


def test_a_partition_keeps_within_its_own_limit() -> None:
    broker = Broker()
    append(many(broker)[0], b"y" * 100)
    one = batch_size(broker)
    assert sizes(broker, part(0, bytes_max=one + 3), part(1)) == [one + 3, one]


def test_no_request_gets_more_than_the_broker_allows() -> None:
    broker = Broker(bytes_max=1)
    many(broker)
    assert sizes(broker, part(0), part(1), max_bytes=2**31 - 1)[1:] == [0]


def test_limits_of_0_give_the_first_batch_and_no_more() -> None:
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


def test_read_committed_is_told_what_was_aborted() -> None:
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


def test_a_topic_or_partition_that_nobody_knows() -> None:
    broker = Broker()
    broker.host()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(broker, want(part(), topic="nope")) is unknown
    assert error_of(broker, want(part(1))) is unknown
    assert error_of(broker, want(part(-1))) is unknown
    assert error_of(broker, want(part(1)), 13) is unknown
    assert error_of(broker, want(part(), topic="nope"), 13) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_partition_that_is_elsewhere() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    row = only(reply := broker.get(want(part()), 16))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader == fetch.LeaderIdAndEpoch(2, 4)
    assert reply.node_endpoints == [fetch.NodeEndpoint(2, "host2", 9092, "b")]


def test_a_follower_is_given_the_leader_and_no_address() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    state = fetch.ReplicaState(5, 1)
    reply = broker.get(want(part(), replica_state=state), 16)
    assert only(reply).current_leader == fetch.LeaderIdAndEpoch(2, 4)
    assert reply.node_endpoints == []


def test_old_versions_are_not_told_who_leads() -> None:
    broker = Broker()
    broker.know("orders", 0, registration(leader=2, epoch=4, replicas=(1, 2)))
    row = only(broker.get(want(part()), 15))
    assert row.current_leader == fetch.LeaderIdAndEpoch()


def test_a_leader_that_is_not_alive_has_no_address() -> None:
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


def test_every_negative_epoch_in_a_fetch_means_none() -> None:
    broker = Broker()
    broker.host(epoch=3)
    for epoch in (-1, -2, -(1 << 31)):
        asked = part(current_leader_epoch=epoch, last_fetched_epoch=epoch)
        assert error_of(broker, want(asked), 16) is ErrorCode.NONE


def test_a_topic_made_anew_is_another() -> None:
    broker = Broker()
    partition = broker.host()
    partition.topic_id = id_of("before")
    assert error_of(broker, want(part()), 13) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert error_of(broker, want(part()), 12) is ErrorCode.NONE


def test_a_topic_that_goes_during_a_session_is_no_longer_known_by_name() -> None:
    broker = Broker()
    partition = broker.host()
    session = broker.get(want(part(), session_epoch=0), 13).session_id
    broker.partitions.remove(partition)
    topic = broker.image.topics.named("orders")
    assert topic is not None
    broker.image = replace(broker.image, topics=broker.image.topics.without_topic(topic))
    again = fetch.FetchRequest(session_id=session, session_epoch=1, max_wait_ms=0)
    assert error_of(broker, again, 13) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_id_is_looked_up_again_until_somebody_knows_it() -> None:
    broker = Broker()
    session = broker.get(want(part(), session_epoch=0), 13).session_id
    append(broker.host(), b"a")
    again = fetch.FetchRequest(session_id=session, session_epoch=1, max_wait_ms=0)
    assert values_of(only(broker.get(again, 13))) == [b"a"]


def test_a_disk_that_failed() -> None:
    broker = Broker()
    partition = broker.host()
    partition.go_offline(StorageFailed("/d", "gone"))
    assert error_of(broker, want(part())) is ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(broker, want(part()), 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_zstd_is_not_given_to_clients_that_cannot_know_it() -> None:
    broker = Broker()
    broker.host(config=TopicConfig(compression_type="zstd"))
    assert error_of(broker, want(part()), 9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error_of(broker, want(part()), 10) is ErrorCode.NONE


def test_who_may_not_read_a_topic() -> None:
    broker = Broker(sources={"may_read": lambda caller, topic: topic != "orders"})
    append(broker.host(), b"secret")
    row = only(broker.get(want(part())))
    assert (row.error_code, row.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_who_may_not_be_a_replica() -> None:
    broker = Broker(sources={"may_replicate": lambda caller: False})
    append(broker.host(replicas=THREE), b"secret")
    row = only(broker.get(want(part(), replica_id=1)))
    assert (row.error_code, row.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


# -- sessions --------------------------------------------------------------------


def test_a_session_tells_only_what_is_new() -> None:
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


def test_a_starved_partition_comes_first_next_time() -> None:
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
def test_a_session_that_cannot_go_on(session: int, epoch: int, error: ErrorCode) -> None:
    broker = Broker()
    broker.host()
    assert broker.get(want(part(), session_epoch=0)).session_id == 1
    reply = broker.get(fetch.FetchRequest(session_id=session, session_epoch=epoch))
    assert (reply.error_code, reply.session_id, reply.responses) == (error, 0, [])


# -- waiting ---------------------------------------------------------------------


@on_a_loop
async def test_it_waits_for_the_first_record() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    append(partition, b"a")
    assert values_of(only(await broker.wait(reply))) == [b"a"]


@on_a_loop
async def test_its_time_is_over() -> None:
    broker = Broker()
    broker.host()
    row = only(await broker.wait(broker.ask(want(part(), max_wait_ms=10))))
    assert (row.error_code, row.high_watermark, row.records) == (0, 0, b"")


@on_a_loop
async def test_it_waits_for_enough() -> None:
    broker = Broker()
    partition = broker.host()
    append(partition, b"a")
    one = batch_size(broker)
    reply = broker.ask(want(part(), max_wait_ms=SOON, min_bytes=2 * one + 1))
    assert isinstance(reply, asyncio.Future)
    append(partition, b"b")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reply.done()
    append(partition, b"c")
    assert values_of(only(await broker.wait(reply))) == [b"a", b"b", b"c"]


@on_a_loop
async def test_enough_may_be_a_little_of_each() -> None:
    broker = Broker()
    partitions = many(broker)
    one = batch_size(broker)
    asked = [part(each) for each in range(3)]
    reply = broker.ask(want(*asked, max_wait_ms=SOON, min_bytes=3 * one + 1))
    append(partitions[1], b"more")
    found = rows(await broker.wait(reply))
    assert [len(values_of(row)) for row in found] == [1, 2, 1]


def test_more_than_the_budget_is_never_waited_for() -> None:
    broker = Broker()
    many(broker)
    one = batch_size(broker)
    assert sizes(broker, part(0), max_bytes=one, min_bytes=10 * one, max_wait_ms=SOON) == [one]


@on_a_loop
async def test_one_write_to_many_partitions_makes_one_reply() -> None:
    broker = Broker()
    partitions = [broker.host(index=index) for index in range(3)]
    reply = broker.ask(want(*(part(each) for each in range(3)), max_wait_ms=SOON))
    for partition in partitions:
        append(partition, b"a")
    found = rows(await broker.wait(reply))
    assert [values_of(row) for row in found] == [[b"a"]] * 3


@on_a_loop
async def test_what_a_consumer_cannot_see_does_not_end_its_wait() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    assert isinstance(reply, asyncio.Future)
    append(partition, b"a")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reply.done()
    for follower in (1, 2):
        partition.follower_fetched(follower, Offset(1), log_start=Offset(0))
    assert values_of(only(await broker.wait(reply))) == [b"a"]


@on_a_loop
async def test_losing_the_leadership_ends_the_wait() -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE)
    reply = broker.ask(want(part(), max_wait_ms=SOON), 9)
    partition.apply(registration(leader=1, epoch=1, replicas=THREE, partition_epoch=1))
    row = only(await broker.wait(reply, 9))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_deleting_the_topic_ends_the_wait() -> None:
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
async def test_a_topic_that_nobody_knows_does_not_hurry_the_others() -> None:
    broker = Broker()
    partition = broker.host()
    request = want(part(), max_wait_ms=SOON)
    request.topics.append(fetch.FetchTopic("nope", partitions=[part()]))
    reply = broker.ask(request)
    append(partition, b"a")
    found = rows(await broker.wait(reply))
    assert [row.error_code for row in found] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@on_a_loop
async def test_nothing_stays_behind_when_the_client_is_gone() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    assert isinstance(reply, asyncio.Future)
    reply.cancel()
    await asyncio.sleep(0)
    assert len(partition._wakers) == 0
    append(partition, b"a")


@on_a_loop
async def test_nothing_stays_behind_a_reply() -> None:
    broker = Broker()
    partition = broker.host()
    reply = broker.ask(want(part(), max_wait_ms=SOON))
    append(partition, b"a")
    await broker.wait(reply)
    await asyncio.sleep(0)
    assert len(partition._wakers) == 0


@pytest.mark.parametrize("more", [{"max_wait_ms": -1}, {"min_bytes": 0, "max_wait_ms": SOON}])
def test_who_does_not_want_to_wait_does_not(more: dict) -> None:
    broker = Broker()
    broker.host()
    assert only(broker.get(want(part(), **more))).records == b""


# -- replicas --------------------------------------------------------------------


def as_follower(*parts: fetch.FetchPartition, replica: int = 1, epoch: int = 101, **more):
    state = fetch.ReplicaState(replica, epoch)
    return want(*parts, replica_state=state, replica_id=-1, **more)


def test_a_follower_reads_to_the_end_and_its_progress_counts() -> None:
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


def test_a_follower_names_itself_by_id_before_version_15() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    assert values_of(only(broker.get(want(part(), replica_id=1), 12))) == [b"a"]
    assert partition.followers[1].log_end == 0


def test_a_broker_that_is_no_replica_is_not_one() -> None:
    broker = Broker()
    append(broker.host(replicas=(0, 1)), b"a")
    row = only(broker.get(as_follower(part(current_leader_epoch=0), replica=2), 17))
    assert (row.error_code, row.records) == (ErrorCode.UNKNOWN_LEADER_EPOCH, b"")


def test_a_follower_of_an_earlier_life_is_refused() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    append(partition, b"a")
    broker.get(as_follower(part(log_start_offset=0), epoch=102), 17)
    stale = as_follower(part(offset=1, log_start_offset=0), epoch=101, max_wait_ms=SOON)
    row = only(broker.get(stale, 17))
    assert (row.error_code, row.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert partition.log.high_watermark == 0


@pytest.mark.parametrize("version", [4, 12, 18])
def test_any_replica_shows_who_debugs_all_it_has(version: int) -> None:
    broker = Broker()
    partition = broker.host(replicas=THREE, leader=2)
    partition.log.append_at(bytes(batch_of(b"a", leader_epoch=0)), now=1)
    assert partition.log.high_watermark == 0
    ask = want(part(), replica_id=-2) if version < 15 else as_follower(part(), replica=-2, epoch=-1)
    assert values_of(only(broker.get(ask, version))) == [b"a"]
    assert partition.followers == {}


def test_only_the_leader_answers_followers() -> None:
    broker = Broker()
    broker.host(replicas=THREE, leader=2)
    row = only(broker.get(as_follower(part()), 17))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_a_loop
async def test_a_waiting_follower_is_counted_once() -> None:
    broker = Broker()
    partition = broker.host(replicas=(0, 1))
    reply = broker.ask(as_follower(part(log_start_offset=0), max_wait_ms=SOON), 17)
    broker.clock.pass_ms(5)
    append(partition, b"a")
    assert values_of(only(await broker.wait(reply, 17))) == [b"a"]
    assert partition.followers[1].fetched_at == 0


def test_a_history_that_differs_is_told_and_not_counted() -> None:
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
def test_consumers_may_ask_any_replica_once_they_know(version: int) -> None:
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
def test_a_consumer_is_sent_to_its_rack(rack: str, offset: int, replica: int) -> None:
    broker = Broker(sources={"is_rack_aware": True})
    in_sync(broker)
    row = only(broker.get(want(part(offset=offset), rack_id=rack, max_wait_ms=0)))
    assert row.preferred_read_replica == replica


def test_it_is_not_sent_to_a_replica_that_is_not_in_sync() -> None:
    broker = Broker(sources={"is_rack_aware": True})
    partition = in_sync(broker)
    partition.apply(registration(replicas=THREE, isr=(0, 1), epoch=0, partition_epoch=1))
    row = only(broker.get(want(part(offset=1), rack_id="b")))
    assert (row.preferred_read_replica, row.records, row.high_watermark) == (1, b"", 1)


def test_without_the_selector_nobody_is_sent_away() -> None:
    broker = Broker()
    in_sync(broker)
    row = only(broker.get(want(part(offset=0), rack_id="b")))
    assert row.preferred_read_replica == -1
    assert values_of(row) == [b"a"]


# -- what is sent ----------------------------------------------------------------


def test_segments_are_read_one_after_the_other() -> None:
    broker = Broker()
    partition = broker.host(log_config=LogConfig(segment_bytes=200))
    for value in range(6):
        append(partition, b"%d" % value)
    assert len(partition.log.segments) > 1
    found: list[int] = []
    while len(found) < 6:
        found += [each.offset for each in records_in(only(broker.get(want(part(0, len(found))))))]
    assert found == list(range(6))
