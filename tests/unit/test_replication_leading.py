"""A partition that leads: appends, reads, acknowledgements, fencing."""

import errno

import pytest
from partition_fixtures import (
    LAG_MS,
    Machine,
    append,
    batch_of,
    bytes_of,
    lone_leader,
    registration,
    values_in,
)

from ottla.config.generated import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    Fault,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolated,
    StorageFailed,
    UnknownLeaderEpoch,
)
from ottla.replication.partition_reads import Isolation, ReadRequest

THREE = (0, 1, 2)


def test_lone_leader_acknowledges_at_once() -> None:
    partition = lone_leader()
    replies: list[Fault | None] = []
    assert append(partition, b"a", b"b", required_acks=-1).last_offset == 1
    partition.when_replicated(2, replies.append)
    assert replies == [None]
    assert partition.log.high_watermark == 2
    assert values_in(partition.log) == [b"a", b"b"]


def test_readers_are_woken_by_every_append_until_they_unsubscribe() -> None:
    partition = lone_leader()
    woken: list[int] = []
    leave = partition.on_appended(lambda: woken.append(partition.log.high_watermark))
    append(partition, b"a")
    append(partition, b"b")
    assert woken == [1, 2], "and the high watermark has moved before"
    leave()
    leave()
    append(partition, b"c")
    assert woken == [1, 2]


def test_waker_may_unsubscribe_others() -> None:
    partition = lone_leader()
    woken: list[str] = []

    def first() -> None:
        woken.append("first")
        leave_second()

    partition.on_appended(first)
    leave_second = partition.on_appended(lambda: woken.append("second"))
    append(partition, b"a")
    assert woken == ["first"]


def test_appended_batch_is_read_as_a_slice() -> None:
    partition = lone_leader()
    batch = batch_of(b"a")
    partition.append(batch, now=1)
    found = partition.read(ReadRequest(0, 1000))
    assert bytes_of(found.slice) == bytes(batch)
    assert found[1:] == (1, 1, 0, 1, None, None)


def test_offsets_outside_the_log_are_out_of_range() -> None:
    partition = lone_leader()
    append(partition, b"a")
    assert partition.read(ReadRequest(1, 1000)).slice.length == 0
    with pytest.raises(OffsetOutOfRange):
        partition.read(ReadRequest(2, 1000))


def test_every_request_is_fenced_by_the_leader_epoch() -> None:
    partition = Machine().host()
    partition.apply(registration(epoch=5))
    for call in (
        lambda epoch: append(partition, b"a", expected_epoch=epoch),
        lambda epoch: partition.read(ReadRequest(0, 100, current_leader_epoch=epoch)),
        lambda epoch: partition.epoch_end(epoch, 5),
    ):
        with pytest.raises(FencedLeaderEpoch):
            call(4)
        with pytest.raises(UnknownLeaderEpoch):
            call(6)
        call(5)


def test_follower_rejects_leader_requests() -> None:
    partition = Machine().host()
    partition.apply(registration(leader=1, replicas=(0, 1)))
    for call in (
        lambda: append(partition, b"a"),
        lambda: partition.read(ReadRequest(0, 100)),
        lambda: partition.epoch_end(-1, 0),
        lambda: partition.delete_records(0),
        lambda: partition.follower_fetched(1, 0, log_start=0),
    ):
        with pytest.raises(NotLeader):
            call()
    assert partition.read(ReadRequest(0, 100, allow_follower=True)).slice.length == 0
    assert partition.epoch_end(-1, 0, allow_follower=True) == (-1, -1)


def leader_of_three(min_insync: int = 1, epoch: int = 0):
    machine = Machine()
    partition = machine.host(config=TopicConfig(min_insync_replicas=min_insync))
    partition.apply(registration(replicas=THREE, epoch=epoch))
    return machine, partition


def fetch(partition, broker: int, offset: int, **more) -> None:
    partition.follower_fetched(broker, offset, log_start=0, **more)


def test_acks_all_waits_for_every_in_sync_replica() -> None:
    _, partition = leader_of_three()
    replies: list[Fault | None] = []
    append(partition, b"a", required_acks=-1)
    partition.when_replicated(1, replies.append)
    fetch(partition, 1, 1)
    assert replies == []
    assert partition.log.high_watermark == 0
    fetch(partition, 2, 0)
    assert replies == []
    fetch(partition, 2, 1)
    assert replies == [None]
    assert partition.log.high_watermark == 1


def test_consumer_sees_only_replicated_records_and_a_replica_sees_all() -> None:
    _, partition = leader_of_three()
    append(partition, b"a")
    assert partition.read(ReadRequest(0, 1000)).slice.length == 0
    want = ReadRequest(0, 1000, isolation=Isolation.LOG_END, replica_id=1)
    assert partition.read(want).slice.length > 0


def test_waiters_are_notified_when_leadership_is_lost() -> None:
    _, partition = leader_of_three()
    replies: list[Fault | None] = []
    woken: list[bool] = []
    partition.on_appended(lambda: woken.append(partition.is_leader))
    append(partition, b"a")
    partition.when_replicated(1, replies.append)
    partition.apply(registration(leader=1, epoch=1, partition_epoch=1, replicas=THREE))
    assert isinstance(replies[0], NotLeader)
    assert woken[-1] is False
    partition.when_replicated(1, replies.append)
    assert isinstance(replies[1], NotLeader)


def test_leader_that_is_elected_again_keeps_its_waiters() -> None:
    _, partition = leader_of_three()
    replies: list[Fault | None] = []
    append(partition, b"a")
    partition.when_replicated(1, replies.append)
    partition.apply(registration(epoch=1, partition_epoch=1, replicas=THREE, isr=(0,)))
    fetch(partition, 1, 1)
    fetch(partition, 2, 1)
    assert replies == [None]
    assert partition.log.epochs.latest_epoch == 1


def test_removed_waiter_is_not_called() -> None:
    _, partition = leader_of_three()
    replies: list[Fault | None] = []
    append(partition, b"a")
    leave = partition.when_replicated(1, replies.append)
    leave()
    fetch(partition, 1, 1)
    fetch(partition, 2, 1)
    assert replies == []


def test_too_small_isr_rejects_acks_all_and_nothing_else() -> None:
    _, partition = leader_of_three(min_insync=2)
    partition.apply(registration(replicas=THREE, isr=(0,), partition_epoch=1))
    with pytest.raises(NotEnoughReplicas):
        append(partition, b"a", required_acks=-1)
    append(partition, b"b", required_acks=1)
    assert partition.log.log_end_offset == 1
    assert partition.log.high_watermark == 0, "it does not advance under min ISR (KIP-966)"


def test_min_insync_replicas_is_limited_to_the_replicas() -> None:
    partition = lone_leader(TopicConfig(min_insync_replicas=2))
    append(partition, b"a", required_acks=-1)
    assert partition.log.high_watermark == 1


def test_isr_shrunk_after_the_append_fails_the_acknowledgement() -> None:
    _, partition = leader_of_three(min_insync=2)
    replies: list[Fault | None] = []
    append(partition, b"a", required_acks=-1)
    fetch(partition, 1, 1)
    fetch(partition, 2, 1)
    partition.apply(registration(replicas=THREE, isr=(0,), partition_epoch=1))
    partition.when_replicated(1, replies.append)
    assert isinstance(replies[0], NotEnoughReplicasAfterAppend)


def test_latest_offset_is_not_available_before_the_leader_epoch_start_is_replicated() -> None:
    _, partition = leader_of_three()
    append(partition, b"a")
    partition.apply(registration(replicas=THREE, epoch=1, partition_epoch=1))
    with pytest.raises(OffsetNotAvailable):
        partition.check_offset_available()
    fetch(partition, 1, 1)
    fetch(partition, 2, 1)
    partition.check_offset_available()


def test_stale_image_changes_nothing() -> None:
    _, partition = leader_of_three(epoch=3)
    partition.apply(registration(replicas=THREE, epoch=3, partition_epoch=7))
    assert not partition.apply(registration(leader=1, replicas=THREE, epoch=4, partition_epoch=6))
    assert partition.is_leader
    assert partition.partition_epoch == 7


def test_diverging_follower_receives_the_diverging_epoch() -> None:
    partition = Machine().host()
    partition.apply(registration(epoch=1))
    append(partition, b"a", b"b")
    partition.apply(registration(epoch=4, partition_epoch=1))
    append(partition, b"c")

    def diverging(offset: int, epoch: int):
        want = ReadRequest(offset, 1000, last_fetched_epoch=epoch, current_leader_epoch=4)
        return partition.read(want).diverging

    assert diverging(2, 1) is None
    assert diverging(3, 4) is None
    assert diverging(3, 1) == (1, 2), "it has more of epoch 1 than there is"
    assert diverging(3, 3) == (1, 2), "epoch 3 never was"
    with pytest.raises(OffsetOutOfRange):
        diverging(3, 5)


def test_records_are_deleted_up_to_the_high_watermark() -> None:
    partition = lone_leader()
    append(partition, b"a", b"b", b"c")
    assert partition.delete_records(1) == 1
    assert partition.low_watermark == 1
    with pytest.raises(OffsetOutOfRange):
        partition.delete_records(4)
    with pytest.raises(OffsetOutOfRange):
        partition.delete_records(-2)
    assert partition.delete_records(-1) == 3
    with pytest.raises(OffsetOutOfRange):
        partition.read(ReadRequest(0, 100))


def test_deletion_completes_when_all_live_replicas_have_deleted() -> None:
    machine, partition = leader_of_three()
    machine.fake_host.dead.add(2)
    append(partition, b"a")
    for broker in (1, 2):
        fetch(partition, broker, 1)
    replies: list[Fault | None] = []
    partition.when_deleted(partition.delete_records(1), replies.append)
    assert replies == []
    partition.follower_fetched(1, 1, log_start=1)
    assert replies == [None]


def test_delete_records_of_a_compacted_log_is_rejected() -> None:
    partition = lone_leader(is_deleted=False, is_compacted=True)
    with pytest.raises(PolicyViolated) as refused:
        partition.delete_records(0)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_failed_write_takes_the_directory_offline_and_notifies_waiters() -> None:
    machine, partition = leader_of_three()
    replies: list[Fault | None] = []
    append(partition, b"a")
    partition.when_replicated(1, replies.append)
    machine.disk.fail("write", error=errno.EIO, path_contains="/d/orders-0")
    with pytest.raises(StorageFailed):
        append(partition, b"b")
    assert machine.directory.is_failed
    assert isinstance(replies[0], StorageFailed)
    for call in (lambda: append(partition, b"c"), lambda: partition.read(ReadRequest(0, 1))):
        with pytest.raises(StorageFailed):
            call()


def test_lagging_followers_count_until_the_controller_accepts_the_smaller_isr() -> None:
    machine, partition = leader_of_three()
    append(partition, b"a")
    fetch(partition, 1, 1)
    machine.clock.pass_ms(LAG_MS + 1)
    assert partition.shrink_isr() == (2,)
    assert partition.log.high_watermark == 0, "the controller has not accepted it"
    (_, proposal), *rest = machine.fake_host.proposals
    assert not rest
    assert proposal.isr == (0, 1)
    assert proposal.broker_epochs == (100, -1)
    partition.isr_accepted(proposal, (0, 1), 0, 1)
    assert partition.isr == (0, 1)
    assert partition.log.high_watermark == 1


def one_has_left_the_isr(partition) -> list[Fault | None]:
    """All have everything; then 2 leaves the ISR, and only 1 fetches the next records."""
    replies: list[Fault | None] = []
    append(partition, b"a")
    for broker in (1, 2):
        fetch(partition, broker, 1)
    partition.apply(registration(replicas=THREE, isr=(0, 1), partition_epoch=1))
    append(partition, b"b", required_acks=-1)
    partition.when_replicated(2, replies.append)
    fetch(partition, 1, 2)
    return replies


def test_replica_outside_the_isr_holds_the_high_watermark_until_it_is_fenced() -> None:
    machine, partition = leader_of_three()
    reply = one_has_left_the_isr(partition)
    assert reply == [], "it was in sync a moment ago, and may join again"
    machine.fake_host.dead.add(2)
    woken: list[int] = []
    partition.on_appended(lambda: woken.append(1))
    partition.brokers_changed()
    assert reply == [None]
    assert woken == [1]


def test_replica_with_a_failed_directory_does_not_hold_the_high_watermark() -> None:
    machine, partition = leader_of_three()
    machine.fake_host.failed_at.add(2)
    assert one_has_left_the_isr(partition) == [None]
    fetch(partition, 2, 2)
    assert machine.fake_host.proposals == [], "and does not join"
