"""StreamsGroupHeartbeat: joins, tasks that move between owners, statuses, errors."""

from typing import Any

import pytest
from controller_images import GROUP, config
from msgspec.structs import replace
from streams_harness import (
    REBALANCE_MS,
    StreamsHarness,
    counting,
    image_of_sums,
    image_with_topics,
    statuses,
    sums,
    tasks_of,
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


def refused(harness: StreamsHarness, *args: Any, **fields: Any) -> ErrorCode:
    before = harness.machine.groups
    with pytest.raises(Fault) as caught:
        harness.beat(*args, **fields)
    assert harness.machine.groups is before, "a refusal changes nothing"
    return caught.value.code


def joining_refused(harness: StreamsHarness, *args: Any, **fields: Any) -> ErrorCode:
    before = harness.machine.groups
    with pytest.raises(Fault) as caught:
        harness.enter(*args, **fields)
    assert harness.machine.groups is before, "a refusal changes nothing"
    return caught.value.code


def with_config(harness: StreamsHarness, name: str, value: str) -> None:
    harness.image = image_of_sums(4, config(GROUP, "g", name, value))


# -- joining ---------------------------------------------------------------------------


def test_the_first_member_gets_all_tasks() -> None:
    harness = StreamsHarness()
    reply = harness.enter("a")
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 2, 5000)
    assert tasks_of(reply.active_tasks) == {"0": [0, 1, 2, 3]}
    assert (reply.standby_tasks, reply.warmup_tasks, reply.status) == ([], [], [])
    assert harness.app().state_name() == "Stable"


def test_a_join_writes_kafkas_records_in_kafkas_order() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    assert [type(record.key) for record in harness.records()] == [
        StreamsGroupMemberMetadataKey,
        StreamsGroupTopologyKey,
        StreamsGroupMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupCurrentMemberAssignmentKey,
    ]


def test_a_heartbeat_with_nothing_new_writes_nothing() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    before = len(harness.log.batches)
    reply = harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert (reply.member_epoch, reply.active_tasks, reply.status) == (2, None, [])
    assert len(harness.log.batches) == before


def test_second_member_gets_tasks_only_after_revocation() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    second = harness.enter("b")
    assert (second.member_epoch, tasks_of(second.active_tasks)) == (3, {})
    assert harness.app().state_name() == "Reconciling"
    asked = harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    kept = tasks_of(asked.active_tasks)
    assert asked.member_epoch == 2, "it stays at its epoch until it has given up"
    assert kept is not None
    assert len(kept["0"]) == 2
    assert tasks_of(harness.beat("b", 3, {}).active_tasks) is None
    assert harness.beat("a", 2, kept).member_epoch == 3
    given = tasks_of(harness.beat("b", 3, {}).active_tasks)
    assert given is not None
    assert sorted([*kept["0"], *given["0"]]) == [0, 1, 2, 3]
    assert harness.app().state_name() == "Stable"


def test_member_without_owned_tasks_field_is_waited_for() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 2)
    for _ in range(3):
        assert harness.beat("a", 2).member_epoch == 2
    assert harness.member("a").state is MemberState.UNREVOKED
    assert harness.active("b") == []


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 2)
    harness.pass_ms(REBALANCE_MS - 1)
    assert "a" in harness.app().members
    harness.pass_ms(1)
    assert "a" not in harness.app().members
    harness.settle()
    assert harness.active("b") == [0, 1, 2, 3]


def test_member_is_removed_after_its_session_timeout() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.pass_ms(40_000)
    harness.beat("a", 2)
    harness.pass_ms(44_999)
    assert not harness.app().is_empty()
    harness.pass_ms(1)
    assert harness.app().state_name() == "Empty"
    assert harness.app().epoch == 3


def test_session_timeout_rejected_by_the_log_is_retried() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.log.fault = NotEnoughReplicas("none")
    harness.pass_ms(45_000)
    assert not harness.app().is_empty()
    harness.log.fault = None
    harness.pass_ms(500)
    assert harness.app().is_empty()


def test_new_coordinator_gives_every_member_its_whole_session_timeout() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 2)
    harness.pass_ms(20_000)
    harness = harness.reload()
    harness.pass_ms(REBALANCE_MS - 1)
    assert set(harness.app().members) == {"a", "b"}
    harness.pass_ms(1)
    assert set(harness.app().members) == {"b"}
    harness.pass_ms(15_000)
    assert harness.app().is_empty()


def test_leaving_frees_the_tasks() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.settle()
    reply = harness.beat("a", -1)
    assert (reply.member_id, reply.member_epoch, reply.status) == ("a", -1, [])
    harness.settle()
    assert harness.active("b") == [0, 1, 2, 3]


def test_a_join_that_is_sent_again_changes_nothing() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    before = len(harness.log.batches)
    reply = harness.enter("a")
    assert (reply.member_epoch, tasks_of(reply.active_tasks)) == (2, {"0": [0, 1, 2, 3]})
    assert len(harness.log.batches) == before


def test_rejoining_member_has_revoked_everything() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 2)
    assert harness.member("a").state is MemberState.UNREVOKED
    harness.enter("a")
    assert harness.member("a").state is MemberState.STABLE


# -- forming a group ---------------------------------------------------------------------


def test_a_new_group_waits_for_more_members() -> None:
    harness = StreamsHarness(streams=DELAYED)
    first = harness.enter("a")
    assert (first.member_epoch, tasks_of(first.active_tasks)) == (1, {})
    assert statuses(first) == [Status.ASSIGNMENT_DELAYED]
    harness.pass_ms(2999)
    assert statuses(harness.enter("b")) == [Status.ASSIGNMENT_DELAYED]
    assert statuses(harness.beat("a", 1)) == [Status.ASSIGNMENT_DELAYED]
    harness.pass_ms(1)
    for member_id in ("a", "b"):
        harness.beat(member_id, 1, {})
        assert len(harness.active(member_id)) == 2
    assert harness.app().state_name() == "Stable"


def test_only_an_empty_group_is_formed() -> None:
    harness = StreamsHarness(streams=DELAYED)
    harness.enter("a")
    harness.pass_ms(3000)
    harness.beat("a", 1, {})
    assert statuses(harness.enter("b")) == []
    harness.beat("a", -1)
    harness.beat("b", -1)
    assert statuses(harness.enter("c")) == [Status.ASSIGNMENT_DELAYED]


def test_a_group_that_could_not_be_written_does_not_wait_forever() -> None:
    harness = StreamsHarness(streams=DELAYED)
    harness.log.fault = NotEnoughReplicas("none")
    with pytest.raises(Fault):
        harness.enter("a")
    harness.log.fault = None
    assert statuses(harness.enter("a")) == [Status.ASSIGNMENT_DELAYED]
    harness.pass_ms(3000)
    assert statuses(harness.beat("a", 1, {})) == []
    assert harness.active("a") == [0, 1, 2, 3]


def test_first_targets_that_are_refused_come_with_the_next_heartbeat() -> None:
    harness = StreamsHarness(streams=DELAYED)
    harness.enter("a")
    harness.log.fault = NotEnoughReplicas("none")
    harness.pass_ms(3000)
    harness.log.fault = None
    harness.beat("a", 1, {})
    assert harness.active("a") == [0, 1, 2, 3]


def test_emptied_group_is_not_assigned() -> None:
    harness = StreamsHarness(streams=DELAYED)
    harness.enter("a")
    harness.beat("a", -1)
    before = len(harness.log.batches)
    harness.pass_ms(3000)
    assert len(harness.log.batches) == before
    harness.enter("b")
    harness.delete("g")
    harness.pass_ms(3000)


def test_a_group_sets_its_own_delay() -> None:
    harness = StreamsHarness(streams=DELAYED)
    with_config(harness, "streams.initial.rebalance.delay.ms", "0")
    assert tasks_of(harness.enter("a").active_tasks) == {"0": [0, 1, 2, 3]}


# -- topics ------------------------------------------------------------------------------


def test_missing_sources_are_a_status_and_no_tasks() -> None:
    harness = StreamsHarness(image=image_with_topics({}))
    reply = harness.enter("a")
    assert statuses(reply) == [Status.MISSING_SOURCE_TOPICS]
    assert tasks_of(reply.active_tasks) == {}
    assert harness.app().state_name() == "NotReady"
    assert harness.missing == ()
    before = len(harness.log.batches)
    assert statuses(harness.beat("a", 2)) == [Status.MISSING_SOURCE_TOPICS]
    assert len(harness.log.batches) == before


def test_missing_internal_topics_are_asked_for_and_then_tasks_run() -> None:
    harness = StreamsHarness(image=image_with_topics({"t": 3}))
    reply = harness.enter("a", topology=counting())
    assert statuses(reply) == [Status.MISSING_INTERNAL_TOPICS]
    names = {each.name: each.partitions for each in harness.missing}
    assert names == {"g-counts-changelog": 3, "g-words-repartition": 3}
    assert harness.app().state_name() == "NotReady"
    harness.image = image_with_topics({"t": 3, **names})
    reply = harness.beat("a", 2, {})
    assert (reply.status, harness.missing) == ([], ())
    assert tasks_of(reply.active_tasks) == {"0": [0, 1, 2], "1": [0, 1, 2]}
    assert harness.app().state_name() == "Stable"


def test_tasks_end_where_a_topic_goes() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.image = image_with_topics({"g-sums-changelog": 4})
    reply = harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert statuses(reply) == [Status.MISSING_SOURCE_TOPICS]
    assert tasks_of(reply.active_tasks) == {}


def test_a_topic_that_grows_without_its_changelog_does_not_fit() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.image = image_with_topics({"t": 6, "g-sums-changelog": 4})
    assert statuses(harness.beat("a", 2)) == [Status.INCORRECTLY_PARTITIONED_TOPICS]


def test_a_topic_made_anew_begins_another_epoch() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.image = image_of_sums(6)
    reply = harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert (reply.member_epoch, tasks_of(reply.active_tasks)) == (3, {"0": [0, 1, 2, 3, 4, 5]})


# -- topologies ----------------------------------------------------------------------------


def test_different_topology_is_rejected_and_stale_one_gets_a_status() -> None:
    harness = StreamsHarness()
    harness.enter("a", topology=sums(1))
    assert joining_refused(harness, "b", topology=counting_at(1)) is ErrorCode.INVALID_REQUEST
    assert joining_refused(harness, "b", topology=sums(2)) is ErrorCode.INVALID_REQUEST
    reply = harness.enter("b", topology=counting_at(0))
    assert statuses(reply) == [Status.STALE_TOPOLOGY]
    topology = harness.app().topology
    assert topology is not None
    assert topology.epoch == 1
    assert statuses(harness.beat("a", 2, {"0": [0, 1, 2, 3]})) == []


def counting_at(epoch: int) -> Topology:
    return Topology(epoch, counting().subtopologies)


def test_subtopologies_in_another_order_are_the_same_topology() -> None:
    image = image_with_topics({"t": 2, "g-words-repartition": 2, "g-counts-changelog": 2})
    harness = StreamsHarness(image=image)
    harness.enter("a", topology=counting())
    said = Topology(0, list(reversed(counting().subtopologies)))
    assert harness.enter("b", topology=said).error_code == 0


def test_a_topology_that_cannot_run_begins_no_group() -> None:
    harness = StreamsHarness()
    loop = Topology(0, [Subtopology("0", [], repartition_sink_topics=["x"])])
    code = joining_refused(harness, "a", topology=loop)
    assert code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert not harness.machine.groups


# -- standbys ------------------------------------------------------------------------------


def test_standbys_are_given_to_other_processes_by_the_groups_setting() -> None:
    harness = StreamsHarness()
    with_config(harness, "streams.num.standby.replicas", "1")
    harness.enter("a", "p")
    harness.enter("b", "q")
    harness.settle()
    assert harness.active("a") == harness.standby("b")
    assert harness.active("b") == harness.standby("a")
    assert sorted(harness.active("a") + harness.active("b")) == [0, 1, 2, 3]


def test_a_setting_that_changes_begins_another_epoch() -> None:
    harness = StreamsHarness()
    harness.enter("a", "p")
    harness.enter("b", "q")
    harness.settle()
    epoch = harness.app().epoch
    with_config(harness, "streams.num.standby.replicas", "1")
    harness.settle()
    assert harness.app().epoch == epoch + 1
    assert harness.standby("b") == harness.active("a")


def test_standby_waits_until_its_own_process_has_released_the_task() -> None:
    """Threads of a process share a directory for the state."""
    harness = StreamsHarness()
    with_config(harness, "streams.num.standby.replicas", "1")
    harness.enter("a", "p")
    harness.enter("b", "q")
    harness.settle()
    held = harness.active("a")
    harness.enter("c", "p")
    for _ in range(3):
        reply = harness.beat("c", harness.member("c").epoch, {})
        assert tasks_of(reply.active_tasks) is None
        beside = harness.member("a").held().any_role()
        assert not harness.member("c").held().any_role() & beside
    harness.settle()
    assert harness.app().state_name() == "Stable"
    assert set(held) >= set(harness.active("a"))


def test_a_standby_is_promoted_in_one_step_once_its_task_is_free() -> None:
    harness = StreamsHarness()
    with_config(harness, "streams.num.standby.replicas", "1")
    harness.enter("a", "p")
    harness.enter("b", "q")
    harness.settle()
    mine, copies = harness.active("b"), harness.standby("b")
    harness.beat("a", -1)
    epoch = harness.member("b").epoch
    asked = harness.beat("b", epoch, {"0": mine}, {"0": copies})
    assert tasks_of(asked.standby_tasks) == {}
    reply = harness.beat("b", epoch, {"0": mine})
    assert tasks_of(reply.active_tasks) == {"0": [0, 1, 2, 3]}


# -- who may say what ----------------------------------------------------------------------


def test_members_at_other_epochs_are_fenced() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    assert refused(harness, "a", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(harness, "a", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(harness, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(harness, "b", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(harness, "a", 2, group="other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused(harness, "a", -1, group="other") is ErrorCode.GROUP_ID_NOT_FOUND


def test_member_one_epoch_behind_gets_its_tasks_again() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.image = image_of_sums(5)
    harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    before = len(harness.log.batches)
    reply = harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    assert (reply.member_epoch, tasks_of(reply.active_tasks)) == (3, {"0": [0, 1, 2, 3, 4]})
    assert len(harness.log.batches) == before
    assert refused(harness, "a", 2) is ErrorCode.FENCED_MEMBER_EPOCH


def test_member_one_epoch_behind_with_foreign_tasks_is_fenced() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.settle()
    member = harness.member("a")
    lost = [each for each in range(4) if each not in harness.active("a")]
    behind = harness.beat("a", member.previous_epoch, {"0": harness.active("a")})
    assert behind.member_epoch == member.epoch
    code = refused(harness, "a", member.previous_epoch, {"0": lost})
    assert code is ErrorCode.FENCED_MEMBER_EPOCH


def test_full_heartbeat_gets_the_tasks_only_if_the_member_lacks_some() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    reply = harness.beat("a", 2, {"0": [0]}, rebalance_timeout_ms=REBALANCE_MS)
    assert tasks_of(reply.active_tasks) == {"0": [0, 1, 2, 3]}
    reply = harness.beat("a", 2, {"0": [0, 1, 2, 3]}, rebalance_timeout_ms=REBALANCE_MS)
    assert reply.active_tasks is None, "as Kafka"


def test_member_one_epoch_behind_gets_the_tasks_only_if_it_lacks_some() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.settle()
    member, tasks = harness.member("a"), harness.active("a")
    for changes in ({}, {"rebalance_timeout_ms": REBALANCE_MS}):
        reply = harness.beat("a", member.previous_epoch, {"0": tasks}, **changes)
        assert (reply.member_epoch, reply.active_tasks) == (member.epoch, None), "as Kafka"
        reply = harness.beat("a", member.previous_epoch, {"0": tasks[:1]}, **changes)
        assert tasks_of(reply.active_tasks) == {"0": tasks}


def test_unknown_tasks_are_rejected() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    assert refused(harness, "a", 2, {"9": [0]}) is ErrorCode.INVALID_REQUEST
    assert refused(harness, "a", 2, {"0": [4]}) is ErrorCode.INVALID_REQUEST
    assert refused(harness, "a", 2, {"0": [-1]}) is ErrorCode.INVALID_REQUEST
    assert refused(harness, "a", 2, {}, {"0": [4]}) is ErrorCode.INVALID_REQUEST


def test_full_group_rejects_new_members() -> None:
    harness = StreamsHarness(streams=StreamsSettings(max_size=1, initial_rebalance_delay_ms=0))
    harness.enter("a")
    assert joining_refused(harness, "b") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.enter("a").member_epoch == 2


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
    harness = StreamsHarness()
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
        harness.send(replace(request, **changes))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert not harness.machine.groups


# -- shutting down -------------------------------------------------------------------------


def test_shutdown_status_reaches_all_members_until_the_group_is_empty() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    assert statuses(harness.beat("a", 2, shutdown_application=True)) == [
        Status.SHUTDOWN_APPLICATION
    ]
    reply = harness.beat("b", 3)
    assert statuses(reply) == [Status.SHUTDOWN_APPLICATION]
    assert reply.status is not None
    assert "member a encountered" in reply.status[0].status_detail
    harness.beat("a", -1)
    assert statuses(harness.beat("b", harness.member("b").epoch, {})) == [
        Status.SHUTDOWN_APPLICATION
    ]
    harness.beat("b", -1)
    assert statuses(harness.enter("c")) == []


def test_leaving_member_may_request_shutdown() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", -1, shutdown_application=True)
    assert statuses(harness.beat("b", 3, {})) == [Status.SHUTDOWN_APPLICATION]


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
    harness = StreamsHarness()
    with_config(harness, "streams.num.standby.replicas", "1")
    first = harness.enter("a", user_endpoint=RequestEndpoint("one", 1))
    assert endpoints(first) == {"one:1": ([("t", [0, 1, 2, 3])], [])}
    again = harness.beat("a", 2, endpoint_information_epoch=first.endpoint_information_epoch)
    assert endpoints(again) is None
    harness.enter("b", user_endpoint=RequestEndpoint("two", 2))
    harness.settle()
    known = endpoints(harness.beat("a", harness.member("a").epoch, endpoint_information_epoch=-1))
    assert known is not None
    assert known["one:1"] == ([("t", harness.active("a"))], [("t", harness.active("b"))])
    assert known["two:2"] == ([("t", harness.active("b"))], [("t", harness.active("a"))])


def test_duplicate_client_tag_is_rejected() -> None:
    tags = [KeyValue("zone", "a"), KeyValue("zone", "b")]
    assert joining_refused(StreamsHarness(), "a", client_tags=tags) is ErrorCode.INVALID_REQUEST


def test_heartbeat_reports_a_removed_endpoint() -> None:
    harness = StreamsHarness()
    harness.enter("a", user_endpoint=RequestEndpoint("one", 1))
    epoch = harness.enter("b").endpoint_information_epoch
    harness.beat("a", -1)
    reply = harness.beat("b", 3, {}, endpoint_information_epoch=epoch)
    assert endpoints(reply) == {}
    assert reply.endpoint_information_epoch > epoch


def test_endpoint_epoch_differs_after_a_change_of_coordinator() -> None:
    harness = StreamsHarness()
    known = harness.enter("a", user_endpoint=RequestEndpoint("one", 1)).endpoint_information_epoch
    harness.enter("b")
    harness = harness.reload()
    harness.beat("a", 2, {"0": [0, 1, 2, 3]}, user_endpoint=RequestEndpoint("two", 2))
    reply = harness.beat("b", 3, {}, endpoint_information_epoch=known)
    assert list(endpoints(reply) or ()) == ["two:2"]


def test_a_shorter_topic_has_only_its_own_partitions() -> None:
    topology = Topology(0, [Subtopology("0", ["t", "u"])])
    harness = StreamsHarness(image=image_with_topics({"t": 4, "u": 2}))
    reply = harness.enter("a", topology=topology, user_endpoint=RequestEndpoint("one", 1))
    assert endpoints(reply) == {"one:1": ([("t", [0, 1, 2, 3]), ("u", [0, 1])], [])}


# -- as any group --------------------------------------------------------------------------


def test_a_drained_classic_group_becomes_a_streams_group_with_its_offsets() -> None:
    harness = StreamsHarness()
    members = harness.stable(1)
    assert joining_refused(harness, "a") is ErrorCode.GROUP_ID_NOT_FOUND
    harness.leave(*members)
    harness.commit(41)
    harness.enter("a")
    assert harness.app().type.value == "streams"
    again = harness.reload()
    assert again.app() == harness.app()
    assert again.machine.offsets.of_group("g")["t", 0].offset == 41


def test_streams_group_rejects_classic_members() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    assert harness.join().reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_drained_streams_group_becomes_a_classic_group_with_its_offsets() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.commit(41, "a", 2)
    harness.beat("a", -1)
    harness.stable(1)
    again = harness.reload()
    assert again.machine.groups["g"].type.value == "classic"
    assert again.machine.offsets.of_group("g")["t", 0].offset == 41


def test_only_an_empty_group_is_deleted_and_nothing_of_it_is_left() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.commit(1, "a", 2)
    assert harness.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    harness.beat("a", -1)
    assert harness.delete("g") == [ErrorCode.NONE]
    harness = harness.reload()
    assert not harness.machine.groups
    assert tasks_of(harness.enter("b", topology=sums(7)).active_tasks) == {"0": [0, 1, 2, 3]}


def test_streams_group_is_listed_with_kind_and_state() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    (listed,) = list_groups(harness.machine.view(), ["stable"], ["streams"])
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("g", "streams", "Stable")
    assert list_groups(harness.machine.view(), [], ["consumer"]) == []


def test_offsets_are_committed_by_members_at_their_epoch() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    assert harness.commit_code(1, "a", 2) == ErrorCode.NONE
    assert harness.commit_code(1, "a", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert harness.commit_code(1, "b", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit_code(1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.commit_code(1, "a", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    harness.beat("a", -1)
    assert harness.commit_code(1) == ErrorCode.NONE


def test_a_member_moved_on_may_still_commit_for_tasks_it_had() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.settle()
    mine, others = harness.active("a"), harness.active("b")
    assert harness.member("a").epoch == 3
    assert harness.commit_code(1, "a", 2, partition=mine[0]) == ErrorCode.NONE
    assert harness.commit_code(1, "a", 2, partition=others[0]) == ErrorCode.STALE_MEMBER_EPOCH
    assert harness.commit_code(1, "b", 2, partition=others[0]) == ErrorCode.STALE_MEMBER_EPOCH
    code = harness.commit_code(1, "a", 2, partition=mine[0], topic="elsewhere")
    assert code == ErrorCode.STALE_MEMBER_EPOCH
    assert harness.reload().commit_code(1, "a", 2, partition=mine[0]) == ErrorCode.NONE


@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_commit_that_names_one_task_of_another_member_is_refused_as_a_whole(
    is_transactional: bool,
) -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.settle()
    indexes = [harness.active("a")[0], harness.active("b")[0]]
    if is_transactional:
        there = [TxnOffsetCommitRequestPartition(each, 1) for each in indexes]
        topics = [TxnOffsetCommitRequestTopic("t", partitions=there)]
        txn = TxnOffsetCommitRequest("tx", "g", 5, 0, 2, "a", topics=topics)
        future = harness.submit(lambda m, now, _: decide_txn_offset_commit(m, txn, 3, now))
        expected = ErrorCode.ILLEGAL_GENERATION
    else:
        those = [OffsetCommitRequestPartition(each, 1) for each in indexes]
        plain = OffsetCommitRequest(
            "g", 2, "a", topics=[OffsetCommitRequestTopic("t", partitions=those)]
        )
        future = harness.submit(lambda m, now, _: decide_offset_commit(m, plain, 9, now))
        expected = ErrorCode.STALE_MEMBER_EPOCH

    codes = [each.error_code for each in future.reply.topics[0].partitions]

    assert codes == [expected] * 2
    assert not harness.machine.offsets.of_group("g")


def test_member_may_commit_for_tasks_pending_revocation() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    harness.enter("b")
    harness.beat("a", 2, {"0": [0, 1, 2, 3]})
    for partition in range(4):
        assert harness.commit_code(1, "a", 2, partition=partition) == ErrorCode.NONE


def test_streams_group_is_described() -> None:
    harness = StreamsHarness()
    tags = [KeyValue("zone", "x")]
    harness.enter("a", user_endpoint=RequestEndpoint("one", 1), client_tags=tags, rack_id="r")
    harness.enter("b")
    found = describe_streams_group(harness.machine.view(), "g", harness.context.count_of)
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
    assert tasks_of(first.assignment.active_tasks) == {"0": [0, 1, 2, 3]}
    assert len(first.target_assignment.active_tasks[0].partitions) == 2
    missing = describe_streams_group(harness.machine.view(), "h", harness.context.count_of)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_member_with_unknown_state_must_rejoin_without_partitions() -> None:
    harness = StreamsHarness()
    harness.enter("a")
    value = replace(harness.member("a").assignment_value(), state=9)
    read = StreamsMember("a").with_assignment(value)
    assert read.state is MemberState.UNKNOWN
    harness.machine.put(harness.app().with_member(replace(harness.member("a"), state=read.state)))
    assert refused(harness, "a", 2, {"0": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(harness, "a", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert tasks_of(harness.enter("a").active_tasks) == {"0": [0, 1, 2, 3]}


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


@pytest.mark.parametrize(
    ("state", "number"),
    [(MemberState.STABLE, 1), (MemberState.UNREVOKED, 2), (MemberState.UNRELEASED, 3)],
)
def test_member_state_has_kafkas_number_for_streams_groups(state: MemberState, number: int) -> None:
    value = StreamsMember("m", state=state).assignment_value()
    assert value.state == number
    assert StreamsMember("m").with_assignment(value).state is state
