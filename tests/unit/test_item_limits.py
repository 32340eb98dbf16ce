"""Lists of requests that are served in one turn are limited, those within rows, too."""

from typing import Any

import pytest
from msgspec.structs import replace

from ottla.api.groups.streams_groups import TOPOLOGY_MAX, StreamsGroupHandlers
from ottla.api.surface.binding import bind_routes, handlers_of
from ottla.api.surface.constructors import Constructors
from ottla.api.surface.error_reply import error_reply_steps
from ottla.api.surface.item_limits import NUMBERS_PER_ITEM, TooManyItems, has_long_list, limited
from ottla.api.surface.replies import ITEMS_PER_STEP, Steps
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import ITEMS_MAX, Handler, method
from ottla.api.surface.table import SURFACE
from ottla.controller.decision import RECORDS_MAX
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import (
    alter_client_quotas,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_heartbeat,
    create_topics,
    describe_user_scram_credentials,
    list_partition_reassignments,
    request_class,
    streams_group_heartbeat,
    write_txn_markers,
)
from ottla.protocol.schema import Kind, Schema
from ottla.runtime.ports import Address

CALLER = Caller("User:alice", None, Address("192.0.2.1", 1), "PLAINTEXT")
MAX = 10
NAMES = [f"n{number}" for number in range(MAX + 1)]


def heartbeat(names: int, partitions: int = 0) -> Any:
    rows = consumer_group_heartbeat.RequestTopicPartitions
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        subscribed_topic_names=NAMES[:names],
        topic_partitions=[rows(partitions=list(range(partitions)))],
    )


def test_list_of_names_is_long_beyond_the_limit() -> None:
    assert not has_long_list(heartbeat(MAX), MAX)
    assert has_long_list(heartbeat(MAX + 1), MAX)


def test_numbers_count_less_than_names() -> None:
    assert not has_long_list(heartbeat(0, MAX * NUMBERS_PER_ITEM), MAX)
    assert has_long_list(heartbeat(0, MAX * NUMBERS_PER_ITEM + 1), MAX)


def test_lists_within_rows_are_counted_over_all_rows() -> None:
    def topics(configs: int) -> create_topics.CreateTopicsRequest:
        entry = create_topics.CreatableTopicConfig("k", "v")
        row = create_topics.CreatableTopic
        return create_topics.CreateTopicsRequest(
            [row("a", configs=[entry] * (MAX - 1)), row("b", configs=[entry] * configs)]
        )

    assert not has_long_list(topics(1), MAX)
    assert has_long_list(topics(2), MAX)


def test_lists_within_a_struct_are_counted() -> None:
    topology = streams_group_heartbeat.Topology(
        subtopologies=[streams_group_heartbeat.Subtopology(source_topics=NAMES)]
    )
    request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(topology=topology)
    assert has_long_list(request, MAX)
    topology.subtopologies[0].source_topics = NAMES[:MAX]
    assert not has_long_list(request, MAX)


def test_different_lists_are_not_added_up() -> None:
    """A change of many quotas has fewer records than lists of names and values."""
    entry = alter_client_quotas.RequestEntryData(
        [alter_client_quotas.RequestEntityData("user", "u")], [alter_client_quotas.OpData("k")]
    )
    assert not has_long_list(alter_client_quotas.AlterClientQuotasRequest([entry] * MAX), MAX)


def test_limited_handler_refuses_and_serves() -> None:
    served: list[Any] = []
    handle = limited(lambda caller, request, version: served.append(request), MAX)
    handle(CALLER, heartbeat(MAX), 1)
    with pytest.raises(TooManyItems, match="at most 10 elements"):
        handle(CALLER, heartbeat(MAX + 1), 1)
    assert len(served) == 1
    assert TooManyItems.code is ErrorCode.INVALID_REQUEST


class Groups:
    """A handler that a row of the surface names."""

    def on_heartbeat(self, caller: Caller, request: Any, version: int) -> str:
        return "served"


def test_limit_of_a_row_holds_for_its_route() -> None:
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    for is_loaded_at_start in (True, False):
        handler = Handler(
            method(Constructors.consumer_groups, lambda groups: groups.on_heartbeat),
            items_max=MAX,
            is_loaded_at_start=is_loaded_at_start,
        )
        row = replace(SURFACE[key], broker=handler)
        (route,) = bind_routes(Listener.BROKER, handlers_of(consumer_groups=Groups()), rows=[row])
        assert route.handle(CALLER, heartbeat(MAX), 1) == "served"
        with pytest.raises(TooManyItems):
            route.handle(CALLER, heartbeat(MAX + 1), 1)


def _has_list(schema: Schema) -> bool:
    return any(
        field.type.kind is Kind.ARRAY
        or (field.type.struct is not None and _has_list(field.type.struct.SCHEMA))
        for field in schema.fields
    )


# Served in steps by their own handlers, for which the wire tests in `test_long_requests.py` stand.
_IN_STEPS = {
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    *(ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS),
    *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS),
    *(ApiKey.OFFSET_COMMIT, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
    ApiKey.DESCRIBE_PRODUCERS,
}


def _is_bounded(handler: Handler) -> bool:
    is_forwarder = handler.method.owner in ("forwarder", "quorum")
    return bool(handler.lists) or handler.items_max is not None or is_forwarder


def test_every_handler_of_a_broker_serves_long_lists_in_steps_or_limits_them() -> None:
    unbounded = [
        key.name
        for key, row in SURFACE.items()
        if row.broker is not None
        and _has_list(request_class(key).SCHEMA)
        and key not in _IN_STEPS
        and not _is_bounded(row.broker)
    ]
    assert unbounded == []


def test_every_change_that_brokers_forward_is_limited_at_the_controller() -> None:
    in_steps = {ApiKey.ELECT_LEADERS, ApiKey.INCREMENTAL_ALTER_CONFIGS}  # `_OTHER_LISTS`
    unbounded = [
        key.name
        for key, row in SURFACE.items()
        if row.forwarding is not None and _has_list(request_class(key).SCHEMA)
        if row.controller is not None and key not in in_steps and not _is_bounded(row.controller)
    ]
    assert unbounded == []
    assert ITEMS_MAX == RECORDS_MAX


# -- error replies in steps -----------------------------------------------------------------------

ROWS = 40 * ITEMS_PER_STEP


def _longest_step(steps: Steps[Any], rows: int) -> float:
    """Return how many rows a step stands for on average; the reply must have all of them."""
    count = 0
    for _ in steps:
        count += 1
    return rows / (count or 1)


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        (
            ApiKey.WRITE_TXN_MARKERS,
            write_txn_markers.WriteTxnMarkersRequest(
                [
                    write_txn_markers.WritableTxnMarker(
                        topics=[
                            write_txn_markers.WritableTxnMarkerTopic("t", list(range(ROWS))),
                        ]
                    )
                ]
            ),
        ),
        (
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            list_partition_reassignments.ListPartitionReassignmentsRequest(
                topics=[
                    list_partition_reassignments.ListPartitionReassignmentsTopics(
                        "t", list(range(ROWS))
                    )
                ]
            ),
        ),
        (
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                deletions=[
                    alter_user_scram_credentials.ScramCredentialDeletion(f"u{number}")
                    for number in range(ROWS)
                ]
            ),
        ),
        (
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                [describe_user_scram_credentials.UserName("u")] * ROWS
            ),
        ),
        (
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            alter_replica_log_dirs.AlterReplicaLogDirsRequest(
                [
                    alter_replica_log_dirs.AlterReplicaLogDir(
                        topics=[
                            alter_replica_log_dirs.AlterReplicaLogDirTopic(f"t{number}", [0])
                            for number in range(ROWS)
                        ]
                    )
                ]
            ),
        ),
    ],
    ids=["markers", "reassignments", "scram", "described-scram", "log-dirs"],
)
def test_error_reply_to_a_long_request_is_made_in_steps_in_all_its_parts(
    key: ApiKey, request_: Any
) -> None:
    """Each has two passes over the rows, and both yield."""
    version = request_class(key).SCHEMA.versions[1]
    steps = error_reply_steps(key, version, request_, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    passes = 1 if key is ApiKey.LIST_PARTITION_REASSIGNMENTS else 2
    assert _longest_step(steps, passes * ROWS) <= ITEMS_PER_STEP + 1


def test_topology_of_a_streams_group_has_a_limit_of_its_own() -> None:
    """Its topics are created at once, so it is shorter than other lists."""
    assert TOPOLOGY_MAX < ITEMS_MAX
    names = [f"t{number}" for number in range(TOPOLOGY_MAX + 1)]
    topology = streams_group_heartbeat.Topology(
        subtopologies=[streams_group_heartbeat.Subtopology("0", source_topics=names)]
    )
    request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m", topology=topology
    )
    # Refused before the coordinator or the image is looked at.
    missing: Any = None
    handlers = StreamsGroupHandlers(missing, missing, missing, missing)
    reply: Any = handlers.on_heartbeat(CALLER, request, 0)
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert reply.error_message == f"A topology may name at most {TOPOLOGY_MAX} things of a kind."
