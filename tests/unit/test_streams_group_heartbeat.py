"""StreamsGroupHeartbeat: joining, moving tasks from one owner to the next, statuses, refusals."""

from typing import Any

import pytest
from controller_images import GROUP, config
from msgspec.structs import replace
from streams_world import (
    REBALANCE_MS,
    StreamsWorld,
    counting,
    image_of_sums,
    image_with_topics,
    statuses,
    sums,
    told,
)

from ottla.coordinators.groups.describe import list_groups
from ottla.coordinators.groups.epoch_group.member import MemberState
from ottla.coordinators.groups.requests import decide_offset_commit, decide_txn_offset_commit
from ottla.coordinators.groups.streams.describe import describe_streams_group
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.coordinators.groups.streams.tasks import TaskRoles
from ottla.coordinators.groups.streams.topics import Status
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotEnoughReplicas
from ottla.protocol.internal.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    RequestEndpoint,
    RequestTaskIds,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskOffset,
    Topology,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

DELAYED = StreamsSettings(initial_rebalance_delay_ms=3000)


def refused(world: StreamsWorld, *args: Any, **fields: Any) -> ErrorCode:
    before = world.machine.groups
    with pytest.raises(Fault) as caught:
        world.beat(*args, **fields)
    assert world.machine.groups is before, "a refusal changes nothing"
    return caught.value.code


def joining_refused(world: StreamsWorld, *args: Any, **fields: Any) -> ErrorCode:
    before = world.machine.groups
    with pytest.raises(Fault) as caught:
        world.enter(*args, **fields)
    assert world.machine.groups is before, "a refusal changes nothing"
    return caught.value.code


def with_config(world: StreamsWorld, name: str, value: str) -> None:
    world.image = image_of_sums(4, config(GROUP, "g", name, value))


# -- joining ---------------------------------------------------------------------------


def test_the_first_member_gets_all_tasks() -> None:
    world = StreamsWorld()
    reply = world.enter("a")
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 2, 5000)
    assert told(reply.active_tasks) == {"0": [0, 1, 2, 3]}
    assert (reply.standby_tasks, reply.warmup_tasks, reply.status) == ([], [], [])
    assert world.app().state_name() == "Stable"


def test_a_join_writes_kafkas_records_in_kafkas_order() -> None:
    world = StreamsWorld()
    world.enter("a")
    assert [type(record.key) for record in world.records()] == [
        StreamsGroupMemberMetadataKey,
        StreamsGroupTopologyKey,
        StreamsGroupMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupCurrentMemberAssignmentKey,
    ]


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    world = StreamsWorld()
    world.enter("a")
    before = len(world.log.batches)
    reply = world.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert (reply.member_epoch, reply.active_tasks, reply.status) == (2, None, [])
    assert len(world.log.batches) == before


def test_second_member_gets_tasks_only_after_revocation() -> None:
    world = StreamsWorld()
    world.enter("a")
    second = world.enter("b")
    assert (second.member_epoch, told(second.active_tasks)) == (3, {})
    assert world.app().state_name() == "Reconciling"
    asked = world.beat("a", 2, {"0": [0, 1, 2, 3]})
    kept = told(asked.active_tasks)
    assert asked.member_epoch == 2, "it stays at its epoch until it has given up"
    assert kept is not None
    assert len(kept["0"]) == 2
    assert told(world.beat("b", 3, {}).active_tasks) is None
    assert world.beat("a", 2, kept).member_epoch == 3
    given = told(world.beat("b", 3, {}).active_tasks)
    assert given is not None
    assert sorted([*kept["0"], *given["0"]]) == [0, 1, 2, 3]
    assert world.app().state_name() == "Stable"


def test_member_without_owned_tasks_field_is_waited_for() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2)
    for _ in range(3):
        assert world.beat("a", 2).member_epoch == 2
    assert world.member("a").state is MemberState.UNREVOKED
    assert world.active("b") == []


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2)
    world.pass_ms(REBALANCE_MS - 1)
    assert "a" in world.app().members
    world.pass_ms(1)
    assert "a" not in world.app().members
    world.settle()
    assert world.active("b") == [0, 1, 2, 3]


def test_member_is_removed_after_its_session_timeout() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.pass_ms(40_000)
    world.beat("a", 2)
    world.pass_ms(44_999)
    assert not world.app().is_empty()
    world.pass_ms(1)
    assert world.app().state_name() == "Empty"
    assert world.app().epoch == 3


def test_session_timeout_rejected_by_the_log_is_retried() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.log.fault = NotEnoughReplicas("none")
    world.pass_ms(45_000)
    assert not world.app().is_empty()
    world.log.fault = None
    world.pass_ms(500)
    assert world.app().is_empty()


def test_new_coordinator_gives_every_member_its_whole_session_timeout() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2)
    world.pass_ms(20_000)
    world = world.reload()
    world.pass_ms(REBALANCE_MS - 1)
    assert set(world.app().members) == {"a", "b"}
    world.pass_ms(1)
    assert set(world.app().members) == {"b"}
    world.pass_ms(15_000)
    assert world.app().is_empty()


def test_leaving_frees_the_tasks() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.settle()
    reply = world.beat("a", -1)
    assert (reply.member_id, reply.member_epoch, reply.status) == ("a", -1, [])
    world.settle()
    assert world.active("b") == [0, 1, 2, 3]


def test_a_join_that_is_sent_again_changes_nothing() -> None:
    world = StreamsWorld()
    world.enter("a")
    before = len(world.log.batches)
    reply = world.enter("a")
    assert (reply.member_epoch, told(reply.active_tasks)) == (2, {"0": [0, 1, 2, 3]})
    assert len(world.log.batches) == before


def test_rejoining_member_has_revoked_everything() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2)
    assert world.member("a").state is MemberState.UNREVOKED
    world.enter("a")
    assert world.member("a").state is MemberState.STABLE


# -- forming a group ---------------------------------------------------------------------


def test_a_new_group_waits_for_more_members() -> None:
    world = StreamsWorld(streams=DELAYED)
    first = world.enter("a")
    assert (first.member_epoch, told(first.active_tasks)) == (1, {})
    assert statuses(first) == [Status.ASSIGNMENT_DELAYED]
    world.pass_ms(2999)
    assert statuses(world.enter("b")) == [Status.ASSIGNMENT_DELAYED]
    assert statuses(world.beat("a", 1)) == [Status.ASSIGNMENT_DELAYED]
    world.pass_ms(1)
    for member_id in ("a", "b"):
        world.beat(member_id, 1, {})
        assert len(world.active(member_id)) == 2
    assert world.app().state_name() == "Stable"


def test_only_an_empty_group_is_formed() -> None:
    world = StreamsWorld(streams=DELAYED)
    world.enter("a")
    world.pass_ms(3000)
    world.beat("a", 1, {})
    assert statuses(world.enter("b")) == []
    world.beat("a", -1)
    world.beat("b", -1)
    assert statuses(world.enter("c")) == [Status.ASSIGNMENT_DELAYED]


def test_a_group_that_could_not_be_written_does_not_wait_forever() -> None:
    world = StreamsWorld(streams=DELAYED)
    world.log.fault = NotEnoughReplicas("none")
    with pytest.raises(Fault):
        world.enter("a")
    world.log.fault = None
    assert statuses(world.enter("a")) == [Status.ASSIGNMENT_DELAYED]
    world.pass_ms(3000)
    assert statuses(world.beat("a", 1, {})) == []
    assert world.active("a") == [0, 1, 2, 3]


def test_first_targets_that_are_refused_come_with_the_next_heartbeat() -> None:
    world = StreamsWorld(streams=DELAYED)
    world.enter("a")
    world.log.fault = NotEnoughReplicas("none")
    world.pass_ms(3000)
    world.log.fault = None
    world.beat("a", 1, {})
    assert world.active("a") == [0, 1, 2, 3]


def test_emptied_group_is_not_assigned() -> None:
    world = StreamsWorld(streams=DELAYED)
    world.enter("a")
    world.beat("a", -1)
    before = len(world.log.batches)
    world.pass_ms(3000)
    assert len(world.log.batches) == before
    world.enter("b")
    world.delete("g")
    world.pass_ms(3000)


def test_a_group_sets_its_own_delay() -> None:
    world = StreamsWorld(streams=DELAYED)
    with_config(world, "streams.initial.rebalance.delay.ms", "0")
    assert told(world.enter("a").active_tasks) == {"0": [0, 1, 2, 3]}


# -- topics ------------------------------------------------------------------------------


def test_missing_sources_are_a_status_and_no_tasks() -> None:
    world = StreamsWorld(image=image_with_topics({}))
    reply = world.enter("a")
    assert statuses(reply) == [Status.MISSING_SOURCE_TOPICS]
    assert told(reply.active_tasks) == {}
    assert world.app().state_name() == "NotReady"
    assert world.missing == ()
    before = len(world.log.batches)
    assert statuses(world.beat("a", 2)) == [Status.MISSING_SOURCE_TOPICS]
    assert len(world.log.batches) == before


def test_missing_internal_topics_are_asked_for_and_then_tasks_run() -> None:
    world = StreamsWorld(image=image_with_topics({"t": 3}))
    reply = world.enter("a", topology=counting())
    assert statuses(reply) == [Status.MISSING_INTERNAL_TOPICS]
    names = {each.name: each.partitions for each in world.missing}
    assert names == {"g-counts-changelog": 3, "g-words-repartition": 3}
    assert world.app().state_name() == "NotReady"
    world.image = image_with_topics({"t": 3, **names})
    reply = world.beat("a", 2, {})
    assert (reply.status, world.missing) == ([], ())
    assert told(reply.active_tasks) == {"0": [0, 1, 2], "1": [0, 1, 2]}
    assert world.app().state_name() == "Stable"


def test_tasks_end_where_a_topic_goes() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.image = image_with_topics({"g-sums-changelog": 4})
    reply = world.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert statuses(reply) == [Status.MISSING_SOURCE_TOPICS]
    assert told(reply.active_tasks) == {}


def test_a_topic_that_grows_without_its_changelog_does_not_fit() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.image = image_with_topics({"t": 6, "g-sums-changelog": 4})
    assert statuses(world.beat("a", 2)) == [Status.INCORRECTLY_PARTITIONED_TOPICS]


def test_a_topic_made_anew_begins_another_epoch() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.image = image_of_sums(6)
    reply = world.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert (reply.member_epoch, told(reply.active_tasks)) == (3, {"0": [0, 1, 2, 3, 4, 5]})


# -- topologies ----------------------------------------------------------------------------


def test_different_topology_is_rejected_and_stale_one_gets_a_status() -> None:
    world = StreamsWorld()
    world.enter("a", topology=sums(1))
    assert joining_refused(world, "b", topology=counting_at(1)) is ErrorCode.INVALID_REQUEST
    assert joining_refused(world, "b", topology=sums(2)) is ErrorCode.INVALID_REQUEST
    reply = world.enter("b", topology=counting_at(0))
    assert statuses(reply) == [Status.STALE_TOPOLOGY]
    topology = world.app().topology
    assert topology is not None
    assert topology.epoch == 1
    assert statuses(world.beat("a", 2, {"0": [0, 1, 2, 3]})) == []


def counting_at(epoch: int) -> Topology:
    return Topology(epoch, counting().subtopologies)


def test_subtopologies_in_another_order_are_the_same_topology() -> None:
    image = image_with_topics({"t": 2, "g-words-repartition": 2, "g-counts-changelog": 2})
    world = StreamsWorld(image=image)
    world.enter("a", topology=counting())
    said = Topology(0, list(reversed(counting().subtopologies)))
    assert world.enter("b", topology=said).error_code == 0


def test_a_topology_that_cannot_run_begins_no_group() -> None:
    world = StreamsWorld()
    loop = Topology(0, [Subtopology("0", [], repartition_sink_topics=["x"])])
    code = joining_refused(world, "a", topology=loop)
    assert code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not world.machine.groups


# -- standbys ------------------------------------------------------------------------------


def test_standbys_are_given_to_other_processes_by_the_groups_setting() -> None:
    world = StreamsWorld()
    with_config(world, "streams.num.standby.replicas", "1")
    world.enter("a", "p")
    world.enter("b", "q")
    world.settle()
    assert world.active("a") == world.standby("b")
    assert world.active("b") == world.standby("a")
    assert sorted(world.active("a") + world.active("b")) == [0, 1, 2, 3]


def test_a_setting_that_changes_begins_another_epoch() -> None:
    world = StreamsWorld()
    world.enter("a", "p")
    world.enter("b", "q")
    world.settle()
    epoch = world.app().epoch
    with_config(world, "streams.num.standby.replicas", "1")
    world.settle()
    assert world.app().epoch == epoch + 1
    assert world.standby("b") == world.active("a")


def test_standby_waits_until_its_own_process_has_released_the_task() -> None:
    """Threads of a process share a directory for the state."""
    world = StreamsWorld()
    with_config(world, "streams.num.standby.replicas", "1")
    world.enter("a", "p")
    world.enter("b", "q")
    world.settle()
    held = world.active("a")
    world.enter("c", "p")
    for _ in range(3):
        reply = world.beat("c", world.member("c").epoch, {})
        assert told(reply.active_tasks) is None
        beside = world.member("a").held().any_role()
        assert not world.member("c").held().any_role() & beside
    world.settle()
    assert world.app().state_name() == "Stable"
    assert set(held) >= set(world.active("a"))


def test_a_standby_is_promoted_in_one_step_once_its_task_is_free() -> None:
    world = StreamsWorld()
    with_config(world, "streams.num.standby.replicas", "1")
    world.enter("a", "p")
    world.enter("b", "q")
    world.settle()
    mine, copies = world.active("b"), world.standby("b")
    world.beat("a", -1)
    epoch = world.member("b").epoch
    asked = world.beat("b", epoch, {"0": mine}, {"0": copies})
    assert told(asked.standby_tasks) == {}
    reply = world.beat("b", epoch, {"0": mine})
    assert told(reply.active_tasks) == {"0": [0, 1, 2, 3]}


# -- who may say what ----------------------------------------------------------------------


def test_members_at_other_epochs_are_fenced() -> None:
    world = StreamsWorld()
    world.enter("a")
    assert refused(world, "a", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "a", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "b", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(world, "a", 2, group="other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(world, "a", -1, group="other") is ErrorCode.GROUP_ID_NOT_FOUND


def test_member_one_epoch_behind_gets_its_tasks_again() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.image = image_of_sums(5)
    world.beat("a", 2, {"0": [0, 1, 2, 3]})
    before = len(world.log.batches)
    reply = world.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert (reply.member_epoch, told(reply.active_tasks)) == (3, {"0": [0, 1, 2, 3, 4]})
    assert len(world.log.batches) == before
    assert refused(world, "a", 2) is ErrorCode.FENCED_MEMBER_EPOCH


def test_member_one_epoch_behind_with_foreign_tasks_is_fenced() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.settle()
    member = world.member("a")
    lost = [each for each in range(4) if each not in world.active("a")]
    behind = world.beat("a", member.previous_epoch, {"0": world.active("a")})
    assert behind.member_epoch == member.epoch
    code = refused(world, "a", member.previous_epoch, {"0": lost})
    assert code is ErrorCode.FENCED_MEMBER_EPOCH


def test_full_heartbeat_gets_a_full_reply() -> None:
    world = StreamsWorld()
    world.enter("a")
    reply = world.beat("a", 2, {"0": [0]}, rebalance_timeout_ms=REBALANCE_MS)
    assert told(reply.active_tasks) == {"0": [0, 1, 2, 3]}


def test_unknown_tasks_are_rejected() -> None:
    world = StreamsWorld()
    world.enter("a")
    assert refused(world, "a", 2, {"9": [0]}) is ErrorCode.INVALID_REQUEST
    assert refused(world, "a", 2, {"0": [4]}) is ErrorCode.INVALID_REQUEST
    assert refused(world, "a", 2, {"0": [-1]}) is ErrorCode.INVALID_REQUEST
    assert refused(world, "a", 2, {}, {"0": [4]}) is ErrorCode.INVALID_REQUEST


def test_full_group_rejects_new_members() -> None:
    world = StreamsWorld(streams=StreamsSettings(max_size=1, initial_rebalance_delay_ms=0))
    world.enter("a")
    assert joining_refused(world, "b") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.enter("a").member_epoch == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": " "},
        {"group_id": ""},
        {"rack_id": " "},
        {"instance_id": "i"},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"topology": None},
        {"active_tasks": [RequestTaskIds("0", [0])]},
        {"standby_tasks": [RequestTaskIds("0", [0])]},
        {"warmup_tasks": [RequestTaskIds("0", [0])]},
        {"active_tasks": None},
        {"warmup_tasks": None},
        {"active_tasks": None, "standby_tasks": None, "warmup_tasks": None},
        {"member_epoch": 1, "topology": None, "standby_tasks": None},
        {"task_offsets": [TaskOffset("0", 0, 0)]},
        {"task_end_offsets": []},
        {"member_epoch": 1},
        {"topology": Topology(0, [Subtopology("0", ["t"], ["t.*"])])},
    ],
)
def test_invalid_requests_are_rejected(changes: dict[str, Any]) -> None:
    world = StreamsWorld()
    request = StreamsGroupHeartbeatRequest(
        "g",
        "a",
        0,
        rebalance_timeout_ms=REBALANCE_MS,
        topology=sums(),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    with pytest.raises(Fault) as caught:
        world.send(replace(request, **changes))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert not world.machine.groups


# -- shutting down -------------------------------------------------------------------------


def test_shutdown_status_reaches_all_members_until_the_group_is_empty() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    assert statuses(world.beat("a", 2, shutdown_application=True)) == [Status.SHUTDOWN_APPLICATION]
    reply = world.beat("b", 3)
    assert statuses(reply) == [Status.SHUTDOWN_APPLICATION]
    assert reply.status is not None
    assert "member a encountered" in reply.status[0].status_detail
    world.beat("a", -1)
    assert statuses(world.beat("b", world.member("b").epoch, {})) == [Status.SHUTDOWN_APPLICATION]
    world.beat("b", -1)
    assert statuses(world.enter("c")) == []


def test_leaving_member_may_request_shutdown() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", -1, shutdown_application=True)
    assert statuses(world.beat("b", 3, {})) == [Status.SHUTDOWN_APPLICATION]


# -- endpoints -----------------------------------------------------------------------------


def endpoints(reply: Any) -> dict[str, tuple[list[Any], list[Any]]] | None:
    if reply.partitions_by_user_endpoint is None:
        return None
    return {
        f"{each.user_endpoint.host}:{each.user_endpoint.port}": (
            [(topic.topic, topic.partitions) for topic in each.active_partitions],
            [(topic.topic, topic.partitions) for topic in each.standby_partitions],
        )
        for each in reply.partitions_by_user_endpoint
    }


def test_members_get_the_endpoints_of_their_group() -> None:
    world = StreamsWorld()
    with_config(world, "streams.num.standby.replicas", "1")
    first = world.enter("a", user_endpoint=RequestEndpoint("one", 1))
    assert endpoints(first) == {"one:1": ([("t", [0, 1, 2, 3])], [])}
    again = world.beat("a", 2, endpoint_information_epoch=first.endpoint_information_epoch)
    assert endpoints(again) is None
    world.enter("b", user_endpoint=RequestEndpoint("two", 2))
    world.settle()
    known = endpoints(world.beat("a", world.member("a").epoch, endpoint_information_epoch=-1))
    assert known is not None
    assert known["one:1"] == ([("t", world.active("a"))], [("t", world.active("b"))])
    assert known["two:2"] == ([("t", world.active("b"))], [("t", world.active("a"))])


def test_duplicate_client_tag_is_rejected() -> None:
    tags = [KeyValue("zone", "a"), KeyValue("zone", "b")]
    assert joining_refused(StreamsWorld(), "a", client_tags=tags) is ErrorCode.INVALID_REQUEST


def test_an_endpoint_that_is_gone_is_told_of() -> None:
    world = StreamsWorld()
    world.enter("a", user_endpoint=RequestEndpoint("one", 1))
    epoch = world.enter("b").endpoint_information_epoch
    world.beat("a", -1)
    reply = world.beat("b", 3, {}, endpoint_information_epoch=epoch)
    assert endpoints(reply) == {}
    assert reply.endpoint_information_epoch > epoch


def test_endpoint_epoch_differs_after_a_change_of_coordinator() -> None:
    world = StreamsWorld()
    known = world.enter("a", user_endpoint=RequestEndpoint("one", 1)).endpoint_information_epoch
    world.enter("b")
    world = world.reload()
    world.beat("a", 2, {"0": [0, 1, 2, 3]}, user_endpoint=RequestEndpoint("two", 2))
    reply = world.beat("b", 3, {}, endpoint_information_epoch=known)
    assert list(endpoints(reply) or ()) == ["two:2"]


def test_a_shorter_topic_has_only_its_own_partitions() -> None:
    topology = Topology(0, [Subtopology("0", ["t", "u"])])
    world = StreamsWorld(image=image_with_topics({"t": 4, "u": 2}))
    reply = world.enter("a", topology=topology, user_endpoint=RequestEndpoint("one", 1))
    assert endpoints(reply) == {"one:1": ([("t", [0, 1, 2, 3]), ("u", [0, 1])], [])}


# -- as any group --------------------------------------------------------------------------


def test_a_drained_classic_group_becomes_a_streams_group_with_its_offsets() -> None:
    world = StreamsWorld()
    members = world.stable(1)
    assert joining_refused(world, "a") is ErrorCode.GROUP_ID_NOT_FOUND
    world.leave(*members)
    world.commit(41)
    world.enter("a")
    assert world.app().type.value == "streams"
    again = world.reload()
    assert again.app() == world.app()
    assert again.machine.offsets.of_group("g")["t", 0].offset == 41


def test_streams_group_rejects_classic_members() -> None:
    world = StreamsWorld()
    world.enter("a")
    assert world.join().reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_drained_streams_group_becomes_a_classic_group_with_its_offsets() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.commit(41, "a", 2)
    world.beat("a", -1)
    world.stable(1)
    again = world.reload()
    assert again.machine.groups["g"].type.value == "classic"
    assert again.machine.offsets.of_group("g")["t", 0].offset == 41


def test_only_an_empty_group_is_deleted_and_nothing_of_it_is_left() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.commit(1, "a", 2)
    assert world.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    world.beat("a", -1)
    assert world.delete("g") == [ErrorCode.NONE]
    world = world.reload()
    assert not world.machine.groups
    assert told(world.enter("b", topology=sums(7)).active_tasks) == {"0": [0, 1, 2, 3]}


def test_streams_group_is_listed_with_kind_and_state() -> None:
    world = StreamsWorld()
    world.enter("a")
    (listed,) = list_groups(world.machine.view(), ["stable"], ["streams"])
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("g", "streams", "Stable")
    assert list_groups(world.machine.view(), [], ["consumer"]) == []


def test_offsets_are_committed_by_members_at_their_epoch() -> None:
    world = StreamsWorld()
    world.enter("a")
    assert world.commit_code(1, "a", 2) == ErrorCode.NONE
    assert world.commit_code(1, "a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit_code(1, "b", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit_code(1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit_code(1, "a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    world.beat("a", -1)
    assert world.commit_code(1) == ErrorCode.NONE


def test_a_member_moved_on_may_still_commit_for_tasks_it_had() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.settle()
    mine, others = world.active("a"), world.active("b")
    assert world.member("a").epoch == 3
    assert world.commit_code(1, "a", 2, partition=mine[0]) == ErrorCode.NONE
    assert world.commit_code(1, "a", 2, partition=others[0]) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit_code(1, "b", 2, partition=others[0]) == ErrorCode.STALE_MEMBER_EPOCH
    code = world.commit_code(1, "a", 2, partition=mine[0], topic="elsewhere")
    assert code == ErrorCode.STALE_MEMBER_EPOCH
    assert world.reload().commit_code(1, "a", 2, partition=mine[0]) == ErrorCode.NONE


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_commit_that_names_one_task_of_another_member_is_refused_as_a_whole(
    is_transactional: bool,
) -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.settle()
    indexes = [world.active("a")[0], world.active("b")[0]]
    if is_transactional:
        there = [TxnOffsetCommitRequestPartition(each, 1) for each in indexes]
        topics = [TxnOffsetCommitRequestTopic("t", there)]
        txn = TxnOffsetCommitRequest("tx", "g", 5, 0, 2, "a", topics=topics)
        future = world.submit(lambda m, now, _: decide_txn_offset_commit(m, txn, 3, now))
        expected = ErrorCode.ILLEGAL_GENERATION
    else:
        those = [OffsetCommitRequestPartition(each, 1) for each in indexes]
        plain = OffsetCommitRequest(
            "g", 2, "a", topics=[OffsetCommitRequestTopic("t", partitions=those)]
        )
        future = world.submit(lambda m, now, _: decide_offset_commit(m, plain, 9, now))
        expected = ErrorCode.STALE_MEMBER_EPOCH

    codes = [each.error_code for each in future.reply.topics[0].partitions]

    assert codes == [expected] * 2
    assert not world.machine.offsets.of_group("g")


def test_member_may_commit_for_tasks_pending_revocation() -> None:
    world = StreamsWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2, {"0": [0, 1, 2, 3]})
    for partition in range(4):
        assert world.commit_code(1, "a", 2, partition=partition) == ErrorCode.NONE


def test_streams_group_is_described() -> None:
    world = StreamsWorld()
    tags = [KeyValue("zone", "x")]
    world.enter("a", user_endpoint=RequestEndpoint("one", 1), client_tags=tags, rack_id="r")
    world.enter("b")
    found = describe_streams_group(world.machine.view(), "g", world.context.count_of)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", 3, 3)
    assert found.topology is not None
    assert found.topology.subtopologies is not None
    (subtopology,) = found.topology.subtopologies
    assert subtopology.source_topics == ["t"]
    (changelog,) = subtopology.state_changelog_topics
    assert (changelog.name, changelog.partitions) == ("g-sums-changelog", 4)
    first = found.members[0]
    assert (first.member_id, first.member_epoch, first.process_id) == ("a", 2, "p-a")
    assert (first.rack_id, first.client_tags[0].value) == ("r", "x")
    assert first.user_endpoint is not None
    assert (first.user_endpoint.host, first.topology_epoch) == ("one", 0)
    assert told(first.assignment.active_tasks) == {"0": [0, 1, 2, 3]}
    assert len(first.target_assignment.active_tasks[0].partitions) == 2
    missing = describe_streams_group(world.machine.view(), "h", world.context.count_of)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_member_with_unknown_state_must_rejoin_without_partitions() -> None:
    world = StreamsWorld()
    world.enter("a")
    value = replace(world.member("a").assignment_value(), state=9)
    read = StreamsMember("a").with_assignment(value)
    assert read.state is MemberState.UNKNOWN
    world.machine.put(world.app().with_member(replace(world.member("a"), state=read.state)))
    assert refused(world, "a", 2, {"0": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(world, "a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert told(world.enter("a").active_tasks) == {"0": [0, 1, 2, 3]}


def test_records_bring_a_member_back_with_the_epochs_of_its_tasks() -> None:
    member = StreamsMember(
        "m",
        rack_id="r",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5,
        topology_epoch=3,
        process_id="p",
        endpoint=("host", 65535),
        tags=(("a", "1"), ("b", "2")),
        epoch=7,
        previous_epoch=6,
        state=MemberState.UNREVOKED,
        assigned=TaskRoles(frozenset({("0", 1), ("1", 2)}), frozenset({("0", 4)})),
        pending_revocation=TaskRoles(frozenset({("0", 3)}), frozenset({("1", 0)})),
        task_epochs={("0", 1): 5, ("1", 2): 7, ("0", 3): 6},
    )
    described = decode(StreamsGroupMemberMetadataValue, 0, encode(member.metadata_value(), 0))
    placed = decode(
        StreamsGroupCurrentMemberAssignmentValue, 0, encode(member.assignment_value(), 0)
    )
    assert StreamsMember("m").with_metadata(described).with_assignment(placed) == member
    for each in (*placed.active_tasks, *placed.active_tasks_pending_revocation):
        each.assignment_epochs = None
    epochs = StreamsMember("m").with_assignment(placed).task_epochs
    assert set(epochs.values()) == {7}, "without epochs of their own: that of the member"
