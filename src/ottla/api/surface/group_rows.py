"""The rows of the API surface for groups, transactions and share groups."""

from typing import Final

from ottla.api.surface.row import ITEMS_MAX, KAFKA_4_4, Api, Handler, Lists, Throttle, one_turn
from ottla.metadata.features import SHARE_VERSION
from ottla.protocol.api_keys import ApiKey

GROUPS: Final = (
    Api(
        key=ApiKey.FIND_COORDINATOR,
        broker=Handler(
            "ottla.api.groups.find_coordinator:FindCoordinatorHandler.find_coordinator_steps",
            waits_until_unfenced=True,
        ),
    ),
    Api(
        key=ApiKey.JOIN_GROUP,
        broker=one_turn("ottla.api.groups.classic_groups:GroupHandlers.on_join"),
    ),
    Api(
        key=ApiKey.HEARTBEAT,
        broker=Handler("ottla.api.groups.classic_groups:GroupHandlers.on_heartbeat"),
    ),
    Api(
        key=ApiKey.LEAVE_GROUP,
        broker=one_turn("ottla.api.groups.classic_groups:GroupHandlers.on_leave"),
    ),
    Api(
        key=ApiKey.SYNC_GROUP,
        broker=one_turn("ottla.api.groups.classic_groups:GroupHandlers.on_sync"),
    ),
    Api(
        key=ApiKey.DESCRIBE_GROUPS,
        broker=Handler("ottla.api.groups.classic_groups:GroupHandlers.describe_steps"),
    ),
    Api(
        key=ApiKey.LIST_GROUPS,
        broker=one_turn("ottla.api.groups.classic_groups:GroupHandlers.on_list"),
    ),
    Api(
        key=ApiKey.DELETE_GROUPS,
        broker=Handler(
            "ottla.api.groups.classic_groups:GroupHandlers.on_delete",
            lists=(Lists("groups_names", "results"),),
        ),
        newest_at=(3, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.OFFSET_COMMIT,
        broker=Handler(
            "ottla.api.groups.committed_offsets:OffsetHandlers.on_commit", fast_path="fast_path"
        ),
    ),
    Api(
        key=ApiKey.OFFSET_FETCH,
        broker=Handler(
            "ottla.api.groups.committed_offsets:OffsetHandlers.on_fetch",
            lists=(Lists("groups", "groups", "topics", "topics"),),
        ),
    ),
    Api(
        key=ApiKey.OFFSET_DELETE,
        broker=Handler(
            "ottla.api.groups.committed_offsets:OffsetHandlers.on_delete",
            lists=(Lists("topics", "topics", "partitions", "partitions"),),
        ),
    ),
    Api(
        key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        broker=one_turn("ottla.api.groups.consumer_groups:ConsumerGroupHandlers.on_heartbeat"),
    ),
    Api(
        key=ApiKey.CONSUMER_GROUP_DESCRIBE,
        broker=Handler(
            "ottla.api.groups.consumer_groups:ConsumerGroupHandlers.on_describe",
            lists=(Lists("group_ids", "groups", is_one_by_one=True),),
        ),
    ),
    Api(
        key=ApiKey.STREAMS_GROUP_HEARTBEAT,
        broker=one_turn("ottla.api.groups.streams_groups:StreamsGroupHandlers.on_heartbeat"),
        newest_at=(1, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.STREAMS_GROUP_DESCRIBE,
        broker=Handler(
            "ottla.api.groups.streams_groups:StreamsGroupHandlers.on_describe",
            lists=(Lists("group_ids", "groups", is_one_by_one=True),),
        ),
        newest_at=(1, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        broker=one_turn(
            "ottla.api.groups.streams_groups:StreamsGroupHandlers.on_topology_description"
        ),
        newest_at=(0, KAFKA_4_4),
    ),
)

TRANSACTIONS: Final = (
    Api(
        key=ApiKey.INIT_PRODUCER_ID,
        broker=Handler("ottla.api.transactions.producer_ids:InitProducerIdHandler.handle"),
        unstable_from=6,
    ),
    Api(
        key=ApiKey.ADD_PARTITIONS_TO_TXN,
        broker=Handler(
            "ottla.api.transactions.transaction_requests:TransactionHandlers.on_add_partitions",
            lists=(Lists("transactions", "results_by_transaction"),),
        ),
    ),
    Api(
        key=ApiKey.ADD_OFFSETS_TO_TXN,
        broker=Handler(
            "ottla.api.transactions.transaction_requests:TransactionHandlers.on_add_offsets"
        ),
    ),
    Api(
        key=ApiKey.END_TXN,
        broker=Handler("ottla.api.transactions.transaction_requests:TransactionHandlers.on_end"),
    ),
    Api(
        key=ApiKey.TXN_OFFSET_COMMIT,
        broker=Handler(
            "ottla.api.transactions.txn_offsets:TxnOffsetHandler.on_commit",
            lists=(Lists("topics", "topics", "partitions", "partitions"),),
        ),
        newest_at=(6, KAFKA_4_4),
    ),
    Api(
        key=ApiKey.DESCRIBE_TRANSACTIONS,
        broker=Handler(
            "ottla.api.transactions.describe_transactions:DescribeTransactionsHandlers.on_describe",
            lists=(Lists("transactional_ids", "transaction_states", is_one_by_one=True),),
        ),
    ),
    Api(
        key=ApiKey.LIST_TRANSACTIONS,
        broker=one_turn(
            "ottla.api.transactions.describe_transactions:DescribeTransactionsHandlers.on_list"
        ),
    ),
)

SHARE_GROUPS: Final = (
    Api(
        key=ApiKey.SHARE_FETCH,
        broker=Handler(
            "ottla.api.share.share_fetch:ShareHandlers.on_fetch",
            cancel_when_gone=True,
            items_max=ITEMS_MAX,
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.FETCH,
    ),
    Api(
        key=ApiKey.SHARE_ACKNOWLEDGE,
        broker=one_turn("ottla.api.share.share_fetch:ShareHandlers.on_acknowledge"),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.SHARE_GROUP_HEARTBEAT,
        broker=one_turn("ottla.api.groups.share_groups:ShareGroupHandlers.on_heartbeat"),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.SHARE_GROUP_DESCRIBE,
        broker=Handler(
            "ottla.api.groups.share_groups:ShareGroupHandlers.on_describe",
            lists=(Lists("group_ids", "groups", is_one_by_one=True),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        broker=Handler(
            "ottla.api.share.share_offsets:ShareOffsetHandlers.on_describe",
            lists=(Lists("groups", "groups", "topics", "topics"),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        broker=Handler(
            "ottla.api.share.share_offsets:ShareOffsetHandlers.on_alter",
            lists=(Lists("topics", "responses", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        broker=Handler(
            "ottla.api.share.share_offsets:ShareOffsetHandlers.on_delete",
            lists=(Lists("topics", "responses"),),
        ),
        feature=SHARE_VERSION,
    ),
    Api(
        key=ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        broker=Handler(
            "ottla.api.share.share_state:ShareStateHandlers.on_initialize",
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.READ_SHARE_GROUP_STATE,
        broker=Handler(
            "ottla.api.share.share_state:ShareStateHandlers.on_read",
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.WRITE_SHARE_GROUP_STATE,
        broker=Handler(
            "ottla.api.share.share_state:ShareStateHandlers.on_write",
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.DELETE_SHARE_GROUP_STATE,
        broker=Handler(
            "ottla.api.share.share_state:ShareStateHandlers.on_delete",
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        broker=Handler(
            "ottla.api.share.share_state:ShareStateHandlers.on_summary",
            lists=(Lists("topics", "results", "partitions", "partitions"),),
        ),
        feature=SHARE_VERSION,
        throttle=Throttle.EXEMPT,
    ),
)
