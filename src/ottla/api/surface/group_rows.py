"""The rows of the API surface for groups, transactions and share groups."""

from typing import Final

from ottla.api.surface.constructors import Constructors
from ottla.api.surface.row import (
    ITEMS_MAX,
    KAFKA_4_4,
    Api,
    Handler,
    Lists,
    Throttle,
    method,
    one_turn,
)
from ottla.metadata.features import SHARE_VERSION
from ottla.protocol.api_keys import ApiKey

GROUPS: Final = (
    Api(
        key=ApiKey.FIND_COORDINATOR,
        broker=Handler(
            method(Constructors.find_coordinator, lambda handler: handler.find_coordinator_steps),
            waits_until_unfenced=True,
        ),
    ),
    Api(
        key=ApiKey.JOIN_GROUP,
        broker=one_turn(Constructors.classic_groups, lambda handler: handler.on_join),
    ),
    Api(
        key=ApiKey.HEARTBEAT,
        broker=Handler(method(Constructors.classic_groups, lambda handler: handler.on_heartbeat)),
    ),
    Api(
        key=ApiKey.LEAVE_GROUP,
        broker=one_turn(Constructors.classic_groups, lambda handler: handler.on_leave),
    ),
    Api(
        key=ApiKey.SYNC_GROUP,
        broker=one_turn(Constructors.classic_groups, lambda handler: handler.on_sync),
    ),
    Api(
        key=ApiKey.DESCRIBE_GROUPS,
        broker=Handler(method(Constructors.classic_groups, lambda handler: handler.describe_steps)),
    ),
    Api(
        key=ApiKey.LIST_GROUPS,
        broker=one_turn(Constructors.classic_groups, lambda handler: handler.on_list),
    ),
    Api(
        key=ApiKey.DELETE_GROUPS,
        broker=Handler(
            method(Constructors.classic_groups, lambda handler: handler.on_delete),
            lists=(Lists("groups_names", "results"),),
        ),
        newest_at=(3, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.OFFSET_COMMIT,
        broker=Handler(
            method(
                Constructors.offsets,
                lambda offsets: offsets.on_commit,
                fast_path=lambda offsets: offsets.fast_path(),
            ),
        ),
    ),
    Api(
        key=ApiKey.OFFSET_FETCH,
        broker=Handler(
            method(Constructors.offsets, lambda offsets: offsets.on_fetch),
            lists=(Lists("groups", "groups", "topics", "topics"),),
        ),
    ),
    Api(
        key=ApiKey.OFFSET_DELETE,
        broker=Handler(
            method(Constructors.offsets, lambda offsets: offsets.on_delete),
            lists=(Lists("topics", "topics", "partitions", "partitions"),),
        ),
    ),
    Api(
        key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        broker=one_turn(Constructors.consumer_groups, lambda handler: handler.on_heartbeat),
    ),
    Api(
        key=ApiKey.CONSUMER_GROUP_DESCRIBE,
        broker=Handler(
            method(Constructors.consumer_groups, lambda handler: handler.on_describe),
            lists=(Lists("group_ids", "groups", is_one_by_one=True),),
        ),
    ),
    Api(
        key=ApiKey.STREAMS_GROUP_HEARTBEAT,
        broker=one_turn(Constructors.streams_groups, lambda handler: handler.on_heartbeat),
        newest_at=(1, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.STREAMS_GROUP_DESCRIBE,
        broker=Handler(
            method(Constructors.streams_groups, lambda handler: handler.on_describe),
            lists=(Lists("group_ids", "groups", is_one_by_one=True),),
        ),
        newest_at=(1, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        broker=one_turn(
            Constructors.streams_groups, lambda handler: handler.on_topology_description
        ),
        newest_at=(0, KAFKA_4_4),
    ),
)

TRANSACTIONS: Final = (
    Api(
        key=ApiKey.INIT_PRODUCER_ID,
        broker=Handler(method(Constructors.init_producer_id, lambda handler: handler.handle)),
        unstable_from=6,
    ),
    Api(
        key=ApiKey.ADD_PARTITIONS_TO_TXN,
        broker=Handler(
            method(Constructors.transactions, lambda transactions: transactions.on_add_partitions),
            lists=(Lists("transactions", "results_by_transaction"),),
        ),
    ),
    Api(
        key=ApiKey.ADD_OFFSETS_TO_TXN,
        broker=Handler(
            method(Constructors.transactions, lambda transactions: transactions.on_add_offsets)
        ),
    ),
    Api(
        key=ApiKey.END_TXN,
        broker=Handler(method(Constructors.transactions, lambda transactions: transactions.on_end)),
    ),
    Api(
        key=ApiKey.TXN_OFFSET_COMMIT,
        broker=Handler(
            method(Constructors.txn_offsets, lambda handler: handler.on_commit),
            lists=(Lists("topics", "topics", "partitions", "partitions"),),
        ),
        newest_at=(6, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.DESCRIBE_TRANSACTIONS,
        broker=Handler(
            method(Constructors.describe_transactions, lambda handler: handler.on_describe),
            lists=(Lists("transactional_ids", "transaction_states", is_one_by_one=True),),
        ),
    ),
    Api(
        key=ApiKey.LIST_TRANSACTIONS,
        broker=one_turn(Constructors.describe_transactions, lambda handler: handler.on_list),
    ),
)

SHARE_GROUPS: Final = (
    Api(
        key=ApiKey.SHARE_FETCH,
        broker=Handler(
            method(Constructors.shares, lambda shares: shares.on_fetch),
            cancel_when_gone=True,
            items_max=ITEMS_MAX,
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.FETCH,
    ),
    Api(
        key=ApiKey.SHARE_ACKNOWLEDGE,
        broker=one_turn(Constructors.shares, lambda shares: shares.on_acknowledge),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.SHARE_GROUP_HEARTBEAT,
        broker=one_turn(Constructors.share_groups, lambda handler: handler.on_heartbeat),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.SHARE_GROUP_DESCRIBE,
        broker=Handler(
            method(Constructors.share_groups, lambda handler: handler.on_describe),
            lists=(Lists("group_ids", "groups", is_one_by_one=True),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        broker=Handler(
            method(Constructors.share_offsets, lambda handler: handler.on_describe),
            lists=(Lists("groups", "groups", "topics", "topics"),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        broker=Handler(
            method(Constructors.share_offsets, lambda handler: handler.on_alter),
            lists=(Lists("topics", "responses", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        broker=Handler(
            method(Constructors.share_offsets, lambda handler: handler.on_delete),
            lists=(Lists("topics", "responses"),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        broker=Handler(
            method(Constructors.share_state, lambda handler: handler.on_initialize),
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.READ_SHARE_GROUP_STATE,
        broker=Handler(
            method(Constructors.share_state, lambda handler: handler.on_read),
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.WRITE_SHARE_GROUP_STATE,
        broker=Handler(
            method(Constructors.share_state, lambda handler: handler.on_write),
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.DELETE_SHARE_GROUP_STATE,
        broker=Handler(
            method(Constructors.share_state, lambda handler: handler.on_delete),
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        broker=Handler(
            method(Constructors.share_state, lambda handler: handler.on_summary),
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
)
