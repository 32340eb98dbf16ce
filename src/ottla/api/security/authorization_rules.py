"""The column ``authorization`` of the API surface: what each API needs, by Apache Kafka's rules.

A rule is a list of checks, all of which must pass. A check passes with one of its permissions, and
says how a refusal is reported:

    WHOLE_REQUEST   one error for the whole request; on the cluster alone and without a condition,
                    `ottla.api.surface.binding` makes the check before the handler is called
    PER_RESOURCE    an error on each refused resource, by the handler
    LEFT_OUT        refused resources are left out of the reply, by the handler

A handler that checks resources asks `ottla.api.security.access.Access`. An API that needs no
permission has the rule `NOT_NEEDED`; a node does not start if an API has no rule.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla.api.surface.row import AuthorizationRule, Check, Permission, Refusal
from ottla.protocol.api_keys import ApiKey
from ottla.security.acl import AclOperation, ResourceType

_WHOLE: Final = Refusal.WHOLE_REQUEST
_EACH: Final = Refusal.PER_RESOURCE
_LEFT_OUT: Final = Refusal.LEFT_OUT


def _on(resource_type: ResourceType, operation: AclOperation) -> Permission:
    return Permission(resource_type, operation)


def _cluster(operation: AclOperation) -> Permission:
    return Permission(ResourceType.CLUSTER, operation)


def _topic(operation: AclOperation) -> Permission:
    return Permission(ResourceType.TOPIC, operation)


def _group(operation: AclOperation) -> Permission:
    return Permission(ResourceType.GROUP, operation)


def _transactional_id(operation: AclOperation) -> Permission:
    return Permission(ResourceType.TRANSACTIONAL_ID, operation)


def _check(refusal: Refusal, *permissions: Permission, when: str = "") -> Check:
    return Check(permissions, refusal, when)


def _rule(*checks: Check) -> AuthorizationRule:
    return AuthorizationRule(checks)


NOT_NEEDED: Final = AuthorizationRule(())
"""No permission is needed, or the handler answers only about the caller itself."""

_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

_NODES_ONLY: Final = _rule(_check(_WHOLE, _cluster(AclOperation.CLUSTER_ACTION)))
_ALTER_CLUSTER: Final = _rule(_check(_WHOLE, _cluster(_ALTER)))
_DESCRIBE_CLUSTER: Final = _rule(_check(_WHOLE, _cluster(_DESCRIBE)))
_READ_GROUP: Final = _rule(_check(_WHOLE, _group(_READ)))
_WRITE_TRANSACTIONAL_ID: Final = _check(_WHOLE, _transactional_id(_WRITE))
_MEMBER: Final = _rule(_check(_WHOLE, _group(_READ)), _check(_WHOLE, _topic(_DESCRIBE)))
_DESCRIBE_MEMBERS: Final = _rule(_check(_EACH, _group(_DESCRIBE)), _check(_EACH, _topic(_DESCRIBE)))
_SHARE_READER: Final = _rule(_check(_WHOLE, _group(_READ)), _check(_EACH, _topic(_READ)))
_USER_TOKENS: Final = "for the token of another user"


def _configs(operation: AclOperation) -> AuthorizationRule:
    return _rule(
        _check(_EACH, _topic(operation), when="for a topic"),
        _check(_EACH, _group(operation), when="for a group"),
        _check(_EACH, _cluster(operation), when="for a broker, its loggers or client metrics"),
    )


RULES: Final[Mapping[ApiKey, AuthorizationRule]] = MappingProxyType(
    {
        # Records.
        ApiKey.PRODUCE: _rule(
            _check(_WHOLE, _transactional_id(_WRITE), when="in a transaction"),
            _check(_EACH, _topic(_WRITE)),
        ),
        ApiKey.FETCH: _rule(
            _check(_EACH, _topic(_READ), when="as a consumer"),
            _check(_EACH, _cluster(AclOperation.CLUSTER_ACTION), when="as a replica"),
        ),
        ApiKey.LIST_OFFSETS: _rule(_check(_EACH, _topic(_DESCRIBE))),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _rule(
            _check(_EACH, _cluster(AclOperation.CLUSTER_ACTION), _topic(_DESCRIBE))
        ),
        ApiKey.DELETE_RECORDS: _rule(_check(_EACH, _topic(_DELETE))),
        ApiKey.DESCRIBE_PRODUCERS: _rule(_check(_EACH, _topic(_READ))),
        # Old versions have no error for the whole request: the handler lists no directory then.
        ApiKey.DESCRIBE_LOG_DIRS: _rule(_check(_LEFT_OUT, _cluster(_DESCRIBE))),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
        # The cluster.
        ApiKey.API_VERSIONS: NOT_NEEDED,
        ApiKey.METADATA: _rule(
            _check(_EACH, _topic(_DESCRIBE)),
            _check(_EACH, _cluster(_CREATE), _topic(_CREATE), when="to create a missing topic"),
        ),
        ApiKey.DESCRIBE_CLUSTER: NOT_NEEDED,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _rule(_check(_EACH, _topic(_DESCRIBE))),
        ApiKey.DESCRIBE_CONFIGS: _configs(_DESCRIBE_CONFIGS),
        ApiKey.LIST_CONFIG_RESOURCES: _rule(_check(_WHOLE, _cluster(_DESCRIBE_CONFIGS))),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _rule(_check(_WHOLE, _cluster(_DESCRIBE_CONFIGS))),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: NOT_NEEDED,
        ApiKey.PUSH_TELEMETRY: NOT_NEEDED,
        # Changes of the cluster, decided by the controller.
        ApiKey.CREATE_TOPICS: _rule(
            _check(_EACH, _cluster(_CREATE), _topic(_CREATE)),
            _check(_LEFT_OUT, _topic(_DESCRIBE_CONFIGS), when="to see the new configuration"),
        ),
        ApiKey.DELETE_TOPICS: _rule(
            _check(_EACH, _cluster(_DELETE), _topic(_DELETE)),
            _check(_LEFT_OUT, _topic(_DESCRIBE), when="to see the name of a topic given by id"),
        ),
        ApiKey.CREATE_PARTITIONS: _rule(_check(_EACH, _topic(_ALTER))),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
        ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
        ApiKey.ALTER_CONFIGS: _configs(_ALTER_CONFIGS),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(_ALTER_CONFIGS),
        ApiKey.ALTER_CLIENT_QUOTAS: _rule(_check(_WHOLE, _cluster(_ALTER_CONFIGS))),
        ApiKey.UPDATE_FEATURES: _ALTER_CLUSTER,
        ApiKey.UNREGISTER_BROKER: _ALTER_CLUSTER,
        ApiKey.UNREGISTER_CONTROLLER: _ALTER_CLUSTER,
        # Access.
        ApiKey.SASL_HANDSHAKE: NOT_NEEDED,
        ApiKey.SASL_AUTHENTICATE: NOT_NEEDED,
        ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
        ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
        ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
        ApiKey.CREATE_DELEGATION_TOKEN: _rule(
            _check(_WHOLE, _on(ResourceType.USER, AclOperation.CREATE_TOKENS), when=_USER_TOKENS)
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: NOT_NEEDED,
        ApiKey.EXPIRE_DELEGATION_TOKEN: NOT_NEEDED,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: _rule(
            _check(
                _LEFT_OUT,
                _on(ResourceType.DELEGATION_TOKEN, _DESCRIBE),
                _on(ResourceType.USER, AclOperation.DESCRIBE_TOKENS),
                when=_USER_TOKENS,
            )
        ),
        # Nodes.
        ApiKey.BROKER_REGISTRATION: _NODES_ONLY,
        ApiKey.BROKER_HEARTBEAT: _NODES_ONLY,
        ApiKey.CONTROLLER_REGISTRATION: _NODES_ONLY,
        ApiKey.ALLOCATE_PRODUCER_IDS: _NODES_ONLY,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: _NODES_ONLY,
        ApiKey.ALTER_PARTITION: _NODES_ONLY,
        ApiKey.ENVELOPE: _NODES_ONLY,
        ApiKey.WRITE_TXN_MARKERS: _rule(
            _check(_WHOLE, _cluster(_ALTER), _cluster(AclOperation.CLUSTER_ACTION))
        ),
        ApiKey.VOTE: _NODES_ONLY,
        ApiKey.BEGIN_QUORUM_EPOCH: _NODES_ONLY,
        ApiKey.END_QUORUM_EPOCH: _NODES_ONLY,
        ApiKey.FETCH_SNAPSHOT: _NODES_ONLY,
        ApiKey.UPDATE_RAFT_VOTER: _NODES_ONLY,
        ApiKey.DESCRIBE_QUORUM: _DESCRIBE_CLUSTER,
        ApiKey.ADD_RAFT_VOTER: _ALTER_CLUSTER,
        ApiKey.REMOVE_RAFT_VOTER: _ALTER_CLUSTER,
        # Groups.
        ApiKey.FIND_COORDINATOR: _rule(
            _check(_EACH, _group(_DESCRIBE), when="of a group"),
            _check(_EACH, _transactional_id(_DESCRIBE), when="of a transactional id"),
            _check(_EACH, _cluster(AclOperation.CLUSTER_ACTION), when="of a share partition"),
        ),
        ApiKey.JOIN_GROUP: _READ_GROUP,
        ApiKey.HEARTBEAT: _READ_GROUP,
        ApiKey.LEAVE_GROUP: _READ_GROUP,
        ApiKey.SYNC_GROUP: _READ_GROUP,
        ApiKey.DESCRIBE_GROUPS: _rule(_check(_EACH, _group(_DESCRIBE))),
        ApiKey.LIST_GROUPS: _rule(_check(_LEFT_OUT, _cluster(_DESCRIBE), _group(_DESCRIBE))),
        ApiKey.DELETE_GROUPS: _rule(_check(_EACH, _group(_DELETE))),
        ApiKey.OFFSET_COMMIT: _rule(_check(_WHOLE, _group(_READ)), _check(_EACH, _topic(_READ))),
        ApiKey.OFFSET_FETCH: _rule(
            _check(_EACH, _group(_DESCRIBE)), _check(_EACH, _topic(_DESCRIBE))
        ),
        ApiKey.OFFSET_DELETE: _rule(_check(_WHOLE, _group(_DELETE)), _check(_EACH, _topic(_READ))),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _MEMBER,
        ApiKey.CONSUMER_GROUP_DESCRIBE: _DESCRIBE_MEMBERS,
        ApiKey.STREAMS_GROUP_HEARTBEAT: _rule(
            *_MEMBER.checks,
            _check(_LEFT_OUT, _cluster(_CREATE), _topic(_CREATE), when="to create internal topics"),
        ),
        ApiKey.STREAMS_GROUP_DESCRIBE: _DESCRIBE_MEMBERS,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _rule(_check(_WHOLE, _group(_READ))),
        # Transactions.
        ApiKey.INIT_PRODUCER_ID: _rule(
            _check(_WHOLE, _transactional_id(_WRITE), when="with a transactional id"),
            _check(
                _WHOLE,
                _cluster(AclOperation.IDEMPOTENT_WRITE),
                _topic(_WRITE),
                when="without a transactional id; any topic counts",
            ),
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: _rule(
            _check(_EACH, _transactional_id(_WRITE), when="of a client, up to version 3"),
            _check(_EACH, _topic(_WRITE), when="of a client, up to version 3"),
            _check(_WHOLE, _cluster(AclOperation.CLUSTER_ACTION), when="from version 4 on"),
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: _rule(_WRITE_TRANSACTIONAL_ID, _check(_WHOLE, _group(_READ))),
        ApiKey.END_TXN: _rule(_WRITE_TRANSACTIONAL_ID),
        ApiKey.TXN_OFFSET_COMMIT: _rule(
            _WRITE_TRANSACTIONAL_ID, _check(_WHOLE, _group(_READ)), _check(_EACH, _topic(_READ))
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: _rule(
            _check(_EACH, _transactional_id(_DESCRIBE)), _check(_LEFT_OUT, _topic(_DESCRIBE))
        ),
        ApiKey.LIST_TRANSACTIONS: _rule(_check(_LEFT_OUT, _transactional_id(_DESCRIBE))),
        # Share groups.
        ApiKey.SHARE_FETCH: _SHARE_READER,
        ApiKey.SHARE_ACKNOWLEDGE: _SHARE_READER,
        ApiKey.SHARE_GROUP_HEARTBEAT: _MEMBER,
        ApiKey.SHARE_GROUP_DESCRIBE: _DESCRIBE_MEMBERS,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _DESCRIBE_MEMBERS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: _SHARE_READER,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: _rule(
            _check(_WHOLE, _group(_DELETE)), _check(_EACH, _topic(_READ))
        ),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: _NODES_ONLY,
        ApiKey.READ_SHARE_GROUP_STATE: _NODES_ONLY,
        ApiKey.WRITE_SHARE_GROUP_STATE: _NODES_ONLY,
        ApiKey.DELETE_SHARE_GROUP_STATE: _NODES_ONLY,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _NODES_ONLY,
    }
)
"""The rule of every API on broker listeners, and on controller listeners unless listed below."""

CONTROLLER_RULES: Final[Mapping[ApiKey, AuthorizationRule]] = MappingProxyType(
    {
        ApiKey.FETCH: _NODES_ONLY,
        ApiKey.DESCRIBE_CLUSTER: _ALTER_CLUSTER,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _rule(
            *_configs(_ALTER_CONFIGS).checks,
            _check(
                _EACH, _cluster(AclOperation.CLUSTER_ACTION), when="for loggers of a controller"
            ),
        ),
    }
)
"""The rules that differ on controller listeners. Fetch there is for the metadata log."""
