"""Followers that fetch from a leader, and reports to the controller, without sockets."""

import asyncio
import errno
from collections.abc import Callable

from following_fixtures import FollowingBroker, image
from partition_fixtures import (
    LAG_MS,
    ORDERS,
    Machine,
    append,
    bytes_of,
    registration,
    values_in,
)
from replicas_fixtures import NODE, Broker, image_of, partition_of
from tests.patience import SECONDS_MAX

from ottla.config.generated import TopicConfig
from ottla.observability.topic_events import TopicMeter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import RequestTimedOut
from ottla.protocol.messages import assign_replicas_to_dirs as dirs
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.messages.fetch import (
    FetchRequest,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from ottla.replication.fetching.follower import Follower
from ottla.replication.leading.isr_loop import IsrChanges, shrink_isr
from ottla.replication.maintenance.directory_reports import DirectoryReports
from ottla.replication.partition_reads import Isolation, ReadRequest
from ottla.storage.directory.checkpoints import RECOVERY_POINT, read_offsets


def test_follower_fetches_everything_and_the_leader_records_its_progress() -> None:
    following = FollowingBroker()
    append(following.leader.partition, b"a")
    append(following.leader.partition, b"b")
    woken: list[int] = []
    following.mine.on_appended(lambda: woken.append(following.mine.log.high_watermark))
    following.until(lambda: following.mine.log.high_watermark == 2)
    assert values_in(following.mine.log) == [b"a", b"b"]
    assert following.leader.partition.log.high_watermark == 2
    assert woken[-1] == 2, "readers here are woken"


def test_follower_continues_when_the_number_of_fetchers_changes() -> None:
    following = FollowingBroker()
    append(following.leader.partition, b"a")
    wanted = 1

    def resized() -> bool:
        nonlocal wanted
        if following.mine.log.log_end_offset < wanted:
            return False
        if wanted == 3:
            return True
        # The first record of each pool size has arrived: change it, and send another.
        wanted += 1
        following.fetchers.resize(wanted)
        assert following.fetchers.describe() == {2: 1}
        append(following.leader.partition, b"a")
        return False

    following.until(resized)


def test_fetch_names_the_replica_its_epoch_and_its_last_epoch() -> None:
    following = FollowingBroker()
    append(following.leader.partition, b"a")
    following.until(lambda: following.mine.log.high_watermark == 1)
    request = following.leader.requests[-1]
    assert request.replica_id == request.replica_state.replica_id == NODE
    assert request.replica_state.replica_epoch == 10
    (row,) = request.topics[0].partitions
    assert (row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch) == (0, 1, 0)


def test_idle_partition_is_not_sent_until_it_changes() -> None:
    following = FollowingBroker()
    following.leader.session_id = 7
    for value in (b"a", b"b", b"c"):
        append(following.leader.partition, value)
    named: list[list[int]] = []

    def is_notified() -> bool:
        requests = following.leader.requests
        if len(requests) < 10:
            return False
        if not named:
            named.append([len(request.topics) for request in requests[-3:]])
            following.mine.log.advance_log_start(2)
            following.mine.log_trimmed()
            requests.clear()
            return False
        starts = [row.log_start_offset for r in requests for t in r.topics for row in t.partitions]
        named.append(starts)
        return True

    following.until(is_notified)
    assert named == [[0, 0, 0], [2]]


def test_diverging_history_is_truncated_and_checkpointed_first() -> None:
    following = FollowingBroker()
    append(following.leader.partition, b"a")
    following.until(lambda: following.mine.log.log_end_offset == 1)
    # This broker led for a while and wrote what no other replica has.
    following.broker.publish(image(1, 1, leader=1))
    append(following.mine, b"mine")
    following.mine.log.flush()
    following.lead(2, 2)
    append(following.leader.partition, b"theirs")
    following.broker.publish(image(2, 2))
    following.until(lambda: following.mine.log.high_watermark == 2)
    assert values_in(following.mine.log) == [b"a", b"theirs"]
    assert read_offsets(following.broker.disk, f"/d1/{RECOVERY_POINT}")[ORDERS] <= 1


def test_follower_behind_the_leaders_log_start_restarts_there() -> None:
    following = FollowingBroker()
    leader = following.leader.partition
    for _ in range(5):
        append(leader, b"x")
    leader.follower_fetched(1, 5, log_start=0)
    leader.log.advance_log_start(3)
    following.until(lambda: following.mine.log.log_end_offset == 5)
    assert following.mine.log.log_start_offset == 3


def test_log_start_inside_a_batch_is_followed_from_the_batch() -> None:
    following = FollowingBroker()
    leader = following.leader.partition
    append(leader, b"a", b"b", b"c")
    append(leader, b"d")
    leader.follower_fetched(1, 4, log_start=0)
    leader.log.advance_log_start(1)
    following.until(lambda: following.mine.log.high_watermark == 4)
    assert following.mine.log.log_start_offset == 1
    assert values_in(following.mine.log) == [b"b", b"c", b"d"]


def test_replicated_bytes_are_counted() -> None:
    following = FollowingBroker()
    following.broker.host.events = meter = TopicMeter()
    append(following.leader.partition, b"a", b"b")
    following.until(lambda: following.mine.log.log_end_offset == 2)
    assert meter.of("orders").replicationbytesin == following.mine.log.size


def test_leader_with_a_lower_high_watermark_does_not_lower_it() -> None:
    following = FollowingBroker()
    append(following.leader.partition, b"a")
    following.until(lambda: following.mine.log.high_watermark == 1)
    follower = Follower(following.broker.host, following.mine)
    follower.learn(0, 0)
    assert following.mine.log.high_watermark == 1


def test_unreachable_leader_is_retried() -> None:
    following = FollowingBroker()
    following.leader.failures = 3
    append(following.leader.partition, b"a")
    following.until(lambda: following.mine.log.log_end_offset == 1)
    assert following.leader.dialled == 4


def test_leader_that_rejects_a_partition_is_retried() -> None:
    following = FollowingBroker()
    following.leader.refusals = [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    append(following.leader.partition, b"a")
    following.until(lambda: following.mine.log.log_end_offset == 1)


def test_fenced_follower_waits_for_the_image() -> None:
    following = FollowingBroker()
    following.lead(1, 1)
    append(following.leader.partition, b"a")
    (fetcher,) = following.fetchers._fetchers.values()
    following.until(lambda: fetcher.is_over)
    assert following.mine.log.log_end_offset == 0
    following.broker.publish(image(1, 1))
    following.until(lambda: following.mine.log.log_end_offset == 1)


def test_disk_failure_of_a_follower_stops_only_that_partition() -> None:
    following = FollowingBroker()
    following.broker.disk.fail("write", error=errno.EIO, path_contains="/d1/orders-0")
    append(following.leader.partition, b"a")
    following.until(lambda: following.mine.offline is not None)
    assert following.mine.log.log_end_offset == 0


def test_response_after_a_new_image_is_discarded() -> None:
    following = FollowingBroker()
    append(following.leader.partition, b"a")
    (fetcher,) = following.fetchers._fetchers.values()
    answered = following.leader.answer

    async def late(request):
        answer = await answered(request)
        if not following.mine.is_leader:
            following.broker.publish(image(1, 1, leader=1))
        return answer

    following.leader.answer = late
    following.until(lambda: fetcher.is_over)
    assert following.mine.is_leader
    assert following.mine.log.log_end_offset == 0


def test_topic_deleted_during_a_response_fails_no_directory() -> None:
    for gone_at in (FetchRequest, ListOffsetsRequest):
        following = FollowingBroker()
        append(following.leader.partition, b"a")
        if gone_at is ListOffsetsRequest:
            following.leader.refusals = [ErrorCode.OFFSET_OUT_OF_RANGE]
        (fetcher,) = following.fetchers._fetchers.values()
        answered = following.leader.answer

        async def late(request, at=gone_at, inner=answered, following=following):
            answer = await inner(request)
            if isinstance(request, at):
                following.broker.publish(image_of({}))
            return answer

        following.leader.answer = late
        following.until(lambda fetcher=fetcher: fetcher.is_over)
        assert not following.broker.directories[0].is_failed


# -- the controller ----------------------------------------------------------------


class Controller:
    """Answers as the test sets."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.requests: list = []

    async def ask(self, request, timeout_ms: int):
        await asyncio.sleep(0)
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            raise RequestTimedOut("nobody there")
        return answer(request) if callable(answer) else answer


def agree(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic.topic_id,
                [
                    ResponsePartitionData(
                        partition_index=row.partition_index,
                        leader_epoch=row.leader_epoch,
                        isr=[each.broker_id for each in row.new_isr_with_epochs],
                        partition_epoch=row.partition_epoch + 1,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def run_until(service, condition: Callable[[], bool]) -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(service.run(lambda: None))
            async with asyncio.timeout(SECONDS_MAX):
                while not condition():  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0)
            running.cancel()

    asyncio.run(scenario())


def led_by_us(*answers):
    broker = Broker().start(image_of({"orders": (1, {0: partition_of(1, 2, isr=(1,))})}))
    controller = Controller(*answers)
    isr = IsrChanges(broker.host, controller)
    partition = broker.partitions.get("orders", 0)
    return broker, controller, partition, isr


def test_proposal_is_sent_until_the_controller_accepts() -> None:
    refused = AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
    _, controller, partition, isr = led_by_us(None, refused, AlterPartitionResponse(), agree)
    partition.follower_fetched(2, 0, log_start=0, broker_epoch=20)
    run_until(isr, lambda: partition.isr == (1, 2))
    assert len(controller.requests) == 4
    (row,) = controller.requests[-1].topics[0].partitions
    assert [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs] == [
        (1, 10),
        (2, 20),
    ]
    assert partition.partition_epoch == 1
    assert isr.changes == (0, 1)


def test_lagging_replicas_are_proposed_for_removal() -> None:
    broker, controller, partition, isr = led_by_us(agree, agree)
    partition.follower_fetched(2, 0, log_start=0, broker_epoch=20)
    run_until(isr, lambda: partition.isr == (1, 2))
    append(partition, b"a")
    broker.clock.pass_ms(LAG_MS + 1)
    isr = IsrChanges(broker.host, controller)  # of another loop
    asyncio.run(shrink_isr(broker.host))
    run_until(isr, lambda: partition.isr == (1,))
    assert partition.log.high_watermark == 1
    assert isr.changes == (1, 0)


def took(request: dirs.AssignReplicasToDirsRequest) -> dirs.AssignReplicasToDirsResponse:
    return dirs.AssignReplicasToDirsResponse(
        directories=[
            dirs.ResponseDirectoryData(
                directory.id,
                [
                    dirs.ResponseTopicData(
                        topic.topic_id,
                        [
                            dirs.ResponsePartitionData(row.partition_index)
                            for row in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


def test_directories_are_reported_until_the_controller_has_them(monkeypatch) -> None:
    monkeypatch.setattr("ottla.replication.maintenance.directory_reports.RETRY_MS", 0)
    broker = Broker().start()
    controller = Controller(None, took)
    reports = DirectoryReports(broker.host, controller)
    broker.publish(image_of({"orders": (1, {n: partition_of(1) for n in range(3)})}))
    run_until(reports, lambda: not reports._pending)
    replies = {
        (directory.id, row.partition_index)
        for directory in controller.requests[-1].directories
        for topic in directory.topics
        for row in topic.partitions
    }
    assert replies == {(p.directory.directory_id, p.index) for p in broker.partitions}


def test_replica_that_moves_while_it_is_reported_is_reported_again(monkeypatch) -> None:
    monkeypatch.setattr("ottla.replication.maintenance.directory_reports.RETRY_MS", 0)
    broker = Broker().start()
    first, second = broker.directories

    def move_then_take(request):
        broker.partitions.get("orders", 0).directory = second
        return took(request)

    controller = Controller(move_then_take, took)
    reports = DirectoryReports(broker.host, controller)
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    run_until(reports, lambda: not reports._pending)
    replies = [request.directories[0].id for request in controller.requests]
    assert replies == [first.directory_id, second.directory_id]


def test_replica_in_a_directory_that_failed_is_reported_all_the_same() -> None:
    """Otherwise the controller would believe it in an online directory, and might elect it."""
    broker = Broker().start()
    controller = Controller(took)
    reports = DirectoryReports(broker.host, controller)
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    failed = broker.partitions.get("orders", 0).directory
    broker.host.storage_failed(failed, "pulled out")
    run_until(reports, lambda: not reports._pending)
    assert controller.requests[0].directories[0].id == failed.directory_id


def test_replica_that_left_is_not_reported() -> None:
    broker = Broker().start()
    controller = Controller(took)
    reports = DirectoryReports(broker.host, controller)
    broker.publish(image_of({"orders": (1, {0: partition_of(1)})}))
    broker.publish(image_of({}))
    run_until(reports, lambda: not reports._pending)
    assert controller.requests == []


def test_follower_syncs_appends_if_flush_messages_requires_it() -> None:
    """Its next fetch acknowledges the records to the leader."""
    leader, machine = Machine(2, seed=2), Machine(NODE)
    theirs, mine = leader.host(), machine.host(config=TopicConfig(flush_messages=2))
    theirs.apply(registration(leader=2, replicas=(2, NODE)))
    mine.apply(registration(leader=2, replicas=(2, NODE)))
    follower = Follower(machine.fake_host, mine)
    for durable in (0, 2, 2, 4):
        start = theirs.log.log_end_offset
        append(theirs, b"a")
        found = theirs.read(ReadRequest(start, 1 << 20, isolation=Isolation.LOG_END))
        follower.append(bytes_of(found.slice), machine.clock.now())
        assert mine.log.recovery_point == durable
