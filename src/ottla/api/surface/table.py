"""The API surface: one row per API, from which everything about serving it is derived.

    ApiVersions    which APIs and versions a listener advertises
    dispatch       which handler answers, and whether it gets the message or the raw body
    lazy loading   which handlers are constructed at start and which with their first request
    forwarding     which requests a broker may hand to the active controller
    features       which APIs are hidden while a feature is at level 0
    authorization  which permissions a client needs (`ottla.api.security.authorization_rules`)
    docs/apis.md   written by ``make docs``

To add an API, add one row here and one handler. A row has the constructor of the handler's class
(`ottla.api.surface.constructors`), which imports it when it is called, and the method that serves
the API: so a node loads at start only what its first clients need. `ottla.api.surface.binding`
turns rows into the routes of a listener. The columns are explained in `ottla.api.surface.row`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from ottla.api.cluster import controller_decisions as decisions
from ottla.api.security.authorization_rules import CONTROLLER_RULES, RULES
from ottla.api.surface.constructors import Constructors
from ottla.api.surface.group_rows import GROUPS, SHARE_GROUPS, TRANSACTIONS
from ottla.api.surface.row import (
    ITEMS_MAX,
    KAFKA_4_4,
    Api,
    Forwarding,
    Handler,
    Lists,
    Throttle,
    method,
    one_turn,
)
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.protocol.api_keys import ApiKey


def _decision(
    decide: decisions.DecisionFunction, *lists: Lists, items_max: int | None = None
) -> Handler:
    """Return the handler of a decision that the active controller makes in its turn."""
    return Handler(
        method(Constructors.controller, lambda controller: controller.handler_of),
        decision=decide,
        is_loaded_at_start=True,
        lists=lists,
        items_max=items_max,
    )


_NODES_MAX: Final = 1000
"""The limit of lists about nodes, their listeners and features."""


_FORWARD: Final = Handler(
    method(Constructors.forwarder, lambda forwarder: forwarder.forward),
    raw=True,
    is_loaded_at_start=True,
)
_CHANGE: Final = Forwarding()
_TIMED_CHANGE: Final = Forwarding(timeout_field="timeout_ms")
_READ: Final = Forwarding(is_change=False)

# Answered by every dispatcher from its own routes, so it is never bound.
_API_VERSIONS: Final = Handler(
    method(Constructors.api_versions, lambda api_versions: api_versions.handle)
)
_SASL_HANDSHAKE: Final = Handler(method(Constructors.sasl, lambda sasl: sasl.on_handshake))
_SASL_AUTHENTICATE: Final = Handler(method(Constructors.sasl, lambda sasl: sasl.on_authenticate))
_DESCRIBE_ACLS: Final = Handler(
    method(Constructors.settings, lambda settings: settings.on_describe_acls)
)
_DESCRIBE_SCRAM: Final = one_turn(
    Constructors.settings, lambda settings: settings.on_describe_scram
)
_DESCRIBE_TOKENS: Final = one_turn(
    Constructors.token_descriptions, lambda handler: handler.on_describe
)

_RECORDS: Final = (
    Api(
        key=ApiKey.PRODUCE,
        broker=Handler(
            method(
                Constructors.produce,
                lambda produce: produce.handle,
                fast_path=lambda produce: produce.fast_path(),
            ),
            raw=True,
            keeps_body=False,
            is_loaded_at_start=True,
        ),
        throttle=Throttle.PRODUCE,
    ),
    Api(
        key=ApiKey.FETCH,
        broker=Handler(
            method(Constructors.fetch, lambda fetch: fetch.on_fetch),
            raw=True,
            keeps_body=False,
            cancel_when_gone=True,
            is_loaded_at_start=True,
        ),
        controller=Handler(
            method(Constructors.raft, lambda raft: raft.on_fetch), cancel_when_gone=True
        ),
        throttle=Throttle.FETCH,
    ),
    Api(
        key=ApiKey.LIST_OFFSETS,
        broker=Handler(
            method(Constructors.list_offsets, lambda handler: handler.list_offsets_steps)
        ),
    ),
    Api(
        key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
        broker=Handler(
            method(Constructors.epochs, lambda epochs: epochs.offset_for_leader_epoch_steps)
        ),
    ),
    Api(
        key=ApiKey.DELETE_RECORDS,
        broker=Handler(method(Constructors.delete_records, lambda handler: handler.delete_steps)),
    ),
    Api(
        key=ApiKey.DESCRIBE_PRODUCERS,
        broker=Handler(
            method(Constructors.describe_producers, lambda handler: handler.describe_steps)
        ),
    ),
    Api(
        key=ApiKey.DESCRIBE_LOG_DIRS,
        broker=Handler(
            method(Constructors.log_dirs, lambda handler: handler.describe_log_dirs_steps)
        ),
        newest_at=(5, MetadataVersion.IBP_4_3_IV0),
    ),
    Api(
        key=ApiKey.ALTER_REPLICA_LOG_DIRS,
        broker=Handler(
            method(Constructors.alter_log_dirs, lambda handler: handler.on_alter_replica_log_dirs),
            lists=(Lists("dirs", "results", "topics"),),
            items_max=ITEMS_MAX,
        ),
    ),
)

_CLUSTER: Final = (
    Api(key=ApiKey.API_VERSIONS, broker=_API_VERSIONS, controller=_API_VERSIONS),
    Api(
        key=ApiKey.METADATA,
        broker=Handler(
            method(Constructors.cluster, lambda cluster: cluster.answer_metadata_steps),
            is_loaded_at_start=True,
            waits_until_unfenced=True,
        ),
    ),
    Api(
        key=ApiKey.DESCRIBE_CLUSTER,
        broker=Handler(
            method(Constructors.cluster, lambda cluster: cluster.on_describe_cluster),
            is_loaded_at_start=True,
            waits_until_unfenced=True,
        ),
        controller=Handler(
            method(Constructors.cluster, lambda cluster: cluster.on_describe_cluster),
            is_loaded_at_start=True,
        ),
    ),
    Api(
        key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        broker=Handler(
            method(
                Constructors.topic_partitions,
                lambda handler: handler.describe_topic_partitions_steps,
            ),
            waits_until_unfenced=True,
        ),
    ),
    Api(
        key=ApiKey.DESCRIBE_CONFIGS,
        broker=Handler(
            method(Constructors.settings, lambda settings: settings.describe_configs_steps)
        ),
        controller=Handler(
            method(Constructors.settings, lambda settings: settings.describe_configs_steps)
        ),
    ),
    Api(
        key=ApiKey.LIST_CONFIG_RESOURCES,
        broker=one_turn(Constructors.settings, lambda settings: settings.on_list_config_resources),
    ),
    Api(
        key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
        broker=one_turn(Constructors.settings, lambda settings: settings.on_describe_client_quotas),
    ),
    Api(
        key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        broker=Handler(method(Constructors.telemetry, lambda telemetry: telemetry.on_get)),
        is_advertised=False,
    ),
    Api(
        key=ApiKey.PUSH_TELEMETRY,
        broker=one_turn(Constructors.telemetry, lambda telemetry: telemetry.on_push),
        is_advertised=False,
    ),
)

# Changes of the cluster: a broker forwards them, the active controller decides.
_CHANGES: Final = (
    Api(
        key=ApiKey.CREATE_TOPICS,
        broker=_FORWARD,
        controller=_decision(decisions.create_topics, Lists("topics", "topics")),
        forwarding=_TIMED_CHANGE,
        throttle=Throttle.CONTROLLER_MUTATION,
    ),
    Api(
        key=ApiKey.DELETE_TOPICS,
        broker=_FORWARD,
        controller=_decision(
            decisions.delete_topics, Lists("topics", "responses"), Lists("topic_names", "responses")
        ),
        forwarding=_TIMED_CHANGE,
        throttle=Throttle.CONTROLLER_MUTATION,
    ),
    Api(
        key=ApiKey.CREATE_PARTITIONS,
        broker=_FORWARD,
        controller=_decision(decisions.create_partitions, Lists("topics", "results")),
        forwarding=_TIMED_CHANGE,
        throttle=Throttle.CONTROLLER_MUTATION,
    ),
    Api(
        key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        broker=_FORWARD,
        controller=_decision(
            decisions.alter_partition_reassignments,
            Lists("topics", "responses", "partitions", "partitions"),
        ),
        forwarding=_CHANGE,
    ),
    # Only read, and yet decided in its turn: a client finds a reassignment that it just began.
    Api(
        key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
        broker=_FORWARD,
        controller=_decision(decisions.list_partition_reassignments, items_max=ITEMS_MAX),
        forwarding=_READ,
    ),
    Api(
        key=ApiKey.ELECT_LEADERS,
        broker=_FORWARD,
        controller=Handler(
            method(Constructors.controller, lambda controller: controller.on_elect_leaders),
            is_loaded_at_start=True,
        ),
        forwarding=_TIMED_CHANGE,
    ),
    # A broker settles log levels and its own settings itself and forwards the rest.
    Api(
        key=ApiKey.ALTER_CONFIGS,
        broker=Handler(
            method(Constructors.config_changes, lambda handler: handler.on_alter_configs)
        ),
        controller=_decision(decisions.alter_configs, Lists("resources", "responses")),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        broker=Handler(
            method(
                Constructors.config_changes, lambda handler: handler.on_incremental_alter_configs
            )
        ),
        controller=Handler(
            method(
                Constructors.controller_config_changes,
                lambda handler: handler.on_incremental_alter_configs,
            ),
        ),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.ALTER_CLIENT_QUOTAS,
        broker=_FORWARD,
        controller=_decision(decisions.alter_client_quotas, Lists("entries", "entries")),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.UPDATE_FEATURES,
        broker=_FORWARD,
        controller=Handler(
            method(Constructors.controller, lambda controller: controller.on_update_features),
            is_loaded_at_start=True,
            items_max=_NODES_MAX,
        ),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.UNREGISTER_BROKER,
        broker=_FORWARD,
        controller=_decision(decisions.unregister_broker),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.UNREGISTER_CONTROLLER,
        broker=_FORWARD,
        controller=_decision(decisions.unregister_controller),
        forwarding=_CHANGE,
        newest_at=(0, KAFKA_4_4),
    ),
)

_ACCESS: Final = (
    Api(key=ApiKey.SASL_HANDSHAKE, broker=_SASL_HANDSHAKE, controller=_SASL_HANDSHAKE),
    Api(key=ApiKey.SASL_AUTHENTICATE, broker=_SASL_AUTHENTICATE, controller=_SASL_AUTHENTICATE),
    Api(key=ApiKey.DESCRIBE_ACLS, broker=_DESCRIBE_ACLS, controller=_DESCRIBE_ACLS),
    Api(
        key=ApiKey.CREATE_ACLS,
        broker=_FORWARD,
        controller=_decision(decisions.create_acls, Lists("creations", "results")),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.DELETE_ACLS,
        broker=_FORWARD,
        controller=_decision(decisions.delete_acls, Lists("filters", "filter_results")),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        broker=_DESCRIBE_SCRAM,
        controller=_DESCRIBE_SCRAM,
    ),
    Api(
        key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        broker=_FORWARD,
        controller=_decision(
            decisions.alter_user_scram_credentials,
            Lists("deletions", "results"),
            Lists("upsertions", "results"),
        ),
        forwarding=_CHANGE,
    ),
    # Forwarded only for authenticated clients; a broker refuses others itself.
    Api(
        key=ApiKey.CREATE_DELEGATION_TOKEN,
        broker=one_turn(Constructors.token_changes, lambda handler: handler.on_create),
        controller=_decision(decisions.create_delegation_token, items_max=ITEMS_MAX),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.RENEW_DELEGATION_TOKEN,
        broker=Handler(method(Constructors.token_changes, lambda handler: handler.on_renew)),
        controller=_decision(decisions.renew_delegation_token),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.EXPIRE_DELEGATION_TOKEN,
        broker=Handler(method(Constructors.token_changes, lambda handler: handler.on_expire)),
        controller=_decision(decisions.expire_delegation_token),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.DESCRIBE_DELEGATION_TOKEN,
        broker=_DESCRIBE_TOKENS,
        controller=_DESCRIBE_TOKENS,
    ),
)

# Requests between nodes.
_NODES: Final = (
    Api(
        key=ApiKey.BROKER_REGISTRATION,
        controller=_decision(decisions.register_broker),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.BROKER_HEARTBEAT,
        controller=_decision(decisions.heartbeat),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.CONTROLLER_REGISTRATION,
        controller=_decision(decisions.register_controller),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.ALLOCATE_PRODUCER_IDS,
        controller=_decision(decisions.allocate_producer_ids),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        controller=_decision(decisions.assign_replicas_to_dirs),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.ALTER_PARTITION,
        controller=_decision(decisions.alter_partition),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.ENVELOPE,
        controller=Handler(
            method(Constructors.envelope, lambda envelope: envelope.open),
            raw=True,  # the codec does not know the id of `IdentifiedEnvelope`
            is_loaded_at_start=True,
        ),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.WRITE_TXN_MARKERS,
        broker=Handler(
            method(Constructors.txn_markers, lambda handler: handler.on_write),
            lists=(Lists("markers", "markers", "topics", "topics"),),
        ),
        throttle=Throttle.EXEMPT,
    ),
)

# Requests between voters; the only voter of a quorum receives none of them.
_QUORUM: Final = (
    Api(
        key=ApiKey.VOTE,
        controller=Handler(method(Constructors.raft, lambda raft: raft.on_vote)),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.BEGIN_QUORUM_EPOCH,
        controller=Handler(method(Constructors.raft, lambda raft: raft.on_begin_epoch)),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.END_QUORUM_EPOCH,
        controller=Handler(method(Constructors.raft, lambda raft: raft.on_end_epoch)),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.FETCH_SNAPSHOT,
        controller=Handler(method(Constructors.raft, lambda raft: raft.on_fetch_snapshot)),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.UPDATE_RAFT_VOTER,
        controller=Handler(method(Constructors.raft, lambda raft: raft.on_update_voter)),
        throttle=Throttle.EXEMPT,
    ),
    Api(
        key=ApiKey.DESCRIBE_QUORUM,
        broker=Handler(method(Constructors.quorum, lambda quorum: quorum.on_describe), raw=True),
        controller=Handler(
            method(Constructors.raft, lambda raft: raft.on_describe), items_max=_NODES_MAX
        ),
        forwarding=_READ,
    ),
    Api(
        key=ApiKey.ADD_RAFT_VOTER,
        broker=_FORWARD,
        controller=Handler(
            method(Constructors.raft, lambda raft: raft.on_add_voter), items_max=_NODES_MAX
        ),
        forwarding=_CHANGE,
    ),
    Api(
        key=ApiKey.REMOVE_RAFT_VOTER,
        broker=_FORWARD,
        controller=Handler(method(Constructors.raft, lambda raft: raft.on_remove_voter)),
        forwarding=_CHANGE,
    ),
)

_FAMILIES: Final = (
    _RECORDS,
    _CLUSTER,
    _CHANGES,
    _ACCESS,
    _NODES,
    _QUORUM,
    GROUPS,
    TRANSACTIONS,
    SHARE_GROUPS,
)


def _with_rules(row: Api) -> Api:
    """Add the column ``authorization``, which has a module of its own."""
    return replace(
        row,
        authorization=RULES.get(row.key),
        controller_authorization=CONTROLLER_RULES.get(row.key),
    )


SURFACE: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {row.key: _with_rules(row) for rows in _FAMILIES for row in rows}
)
"""Every API that a listener serves, by key."""

UNSUPPORTED: Final[Mapping[ApiKey, str]] = MappingProxyType({})
"""The APIs of the protocol that no listener serves, each with the reason."""
