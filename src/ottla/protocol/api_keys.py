"""The APIs of Kafka: their keys, versions and the listeners that serve them, as one table.

The table says what the codec can speak. What a listener advertises may be less (features that
are off, versions that are not stable yet) and, for Produce, its minimum is lower: see the
handler of ApiVersions. Keys 4-7 belonged to ZooKeeper's time and exist no more.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.protocol.schema import Versions, covers


class Listener(enum.Flag):
    """Which kind of listener serves an API."""

    BROKER = enum.auto()
    CONTROLLER = enum.auto()


class ApiKey(enum.IntEnum):
    """The number in the first two bytes of every request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94

    @property
    def title(self) -> str:
        """Kafka's name of the API, as in ``FetchRequest`` without ``Request``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Api(NamedTuple):
    """What is fixed about an API. ``flexible`` is the first flexible version, None for never."""

    versions: Versions
    flexible: int | None
    listeners: Listener

    def is_flexible(self, version: int) -> bool:
        """Say whether a version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible is not None and version >= self.flexible

    def has(self, version: int) -> bool:
        """Say whether the codec speaks a version."""
        return covers(self.versions, version)


_BROKER = Listener.BROKER
_CONTROLLER = Listener.CONTROLLER
_BOTH = Listener.BROKER | Listener.CONTROLLER

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {
        ApiKey.PRODUCE: Api((3, 13), 9, _BROKER),
        ApiKey.FETCH: Api((4, 18), 12, _BOTH),
        ApiKey.LIST_OFFSETS: Api((1, 11), 6, _BROKER),
        ApiKey.METADATA: Api((0, 13), 9, _BROKER),
        ApiKey.OFFSET_COMMIT: Api((2, 10), 8, _BROKER),
        ApiKey.OFFSET_FETCH: Api((1, 10), 6, _BROKER),
        ApiKey.FIND_COORDINATOR: Api((0, 6), 3, _BROKER),
        ApiKey.JOIN_GROUP: Api((0, 9), 6, _BROKER),
        ApiKey.HEARTBEAT: Api((0, 4), 4, _BROKER),
        ApiKey.LEAVE_GROUP: Api((0, 5), 4, _BROKER),
        ApiKey.SYNC_GROUP: Api((0, 5), 4, _BROKER),
        ApiKey.DESCRIBE_GROUPS: Api((0, 6), 5, _BROKER),
        ApiKey.LIST_GROUPS: Api((0, 5), 3, _BROKER),
        ApiKey.SASL_HANDSHAKE: Api((0, 1), None, _BOTH),
        ApiKey.API_VERSIONS: Api((0, 5), 3, _BOTH),
        ApiKey.CREATE_TOPICS: Api((2, 7), 5, _BOTH),
        ApiKey.DELETE_TOPICS: Api((1, 6), 4, _BOTH),
        ApiKey.DELETE_RECORDS: Api((0, 2), 2, _BROKER),
        ApiKey.INIT_PRODUCER_ID: Api((0, 6), 2, _BROKER),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Api((2, 4), 4, _BROKER),
        ApiKey.ADD_PARTITIONS_TO_TXN: Api((0, 5), 3, _BROKER),
        ApiKey.ADD_OFFSETS_TO_TXN: Api((0, 4), 3, _BROKER),
        ApiKey.END_TXN: Api((0, 5), 3, _BROKER),
        ApiKey.WRITE_TXN_MARKERS: Api((1, 2), 1, _BROKER),
        ApiKey.TXN_OFFSET_COMMIT: Api((0, 6), 3, _BROKER),
        ApiKey.DESCRIBE_ACLS: Api((1, 3), 2, _BOTH),
        ApiKey.CREATE_ACLS: Api((1, 3), 2, _BOTH),
        ApiKey.DELETE_ACLS: Api((1, 3), 2, _BOTH),
        ApiKey.DESCRIBE_CONFIGS: Api((1, 4), 4, _BOTH),
        ApiKey.ALTER_CONFIGS: Api((0, 2), 2, _BOTH),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Api((1, 2), 2, _BROKER),
        ApiKey.DESCRIBE_LOG_DIRS: Api((1, 5), 2, _BROKER),
        ApiKey.SASL_AUTHENTICATE: Api((0, 2), 2, _BOTH),
        ApiKey.CREATE_PARTITIONS: Api((0, 3), 2, _BOTH),
        ApiKey.CREATE_DELEGATION_TOKEN: Api((1, 3), 2, _BOTH),
        ApiKey.RENEW_DELEGATION_TOKEN: Api((1, 2), 2, _BOTH),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Api((1, 2), 2, _BOTH),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: Api((1, 3), 2, _BOTH),
        ApiKey.DELETE_GROUPS: Api((0, 3), 2, _BROKER),
        ApiKey.ELECT_LEADERS: Api((0, 2), 2, _BOTH),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Api((0, 1), 1, _BOTH),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api((0, 1), 0, _BOTH),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Api((0, 0), 0, _BOTH),
        ApiKey.OFFSET_DELETE: Api((0, 0), None, _BROKER),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Api((0, 1), 1, _BROKER),
        ApiKey.ALTER_CLIENT_QUOTAS: Api((0, 1), 1, _BOTH),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api((0, 0), 0, _BOTH),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api((0, 0), 0, _BOTH),
        ApiKey.VOTE: Api((0, 2), 0, _CONTROLLER),
        ApiKey.BEGIN_QUORUM_EPOCH: Api((0, 1), 1, _CONTROLLER),
        ApiKey.END_QUORUM_EPOCH: Api((0, 1), 1, _CONTROLLER),
        ApiKey.DESCRIBE_QUORUM: Api((0, 2), 0, _BOTH),
        ApiKey.ALTER_PARTITION: Api((2, 3), 2, _CONTROLLER),
        ApiKey.UPDATE_FEATURES: Api((0, 2), 0, _BOTH),
        ApiKey.ENVELOPE: Api((0, 0), 0, _CONTROLLER),
        ApiKey.FETCH_SNAPSHOT: Api((0, 1), 0, _CONTROLLER),
        ApiKey.DESCRIBE_CLUSTER: Api((0, 2), 0, _BOTH),
        ApiKey.DESCRIBE_PRODUCERS: Api((0, 0), 0, _BROKER),
        ApiKey.BROKER_REGISTRATION: Api((0, 4), 0, _CONTROLLER),
        ApiKey.BROKER_HEARTBEAT: Api((0, 2), 0, _CONTROLLER),
        ApiKey.UNREGISTER_BROKER: Api((0, 0), 0, _BOTH),
        ApiKey.DESCRIBE_TRANSACTIONS: Api((0, 0), 0, _BROKER),
        ApiKey.LIST_TRANSACTIONS: Api((0, 2), 0, _BROKER),
        ApiKey.ALLOCATE_PRODUCER_IDS: Api((0, 0), 0, _CONTROLLER),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: Api((0, 1), 0, _BROKER),
        ApiKey.CONSUMER_GROUP_DESCRIBE: Api((0, 1), 0, _BROKER),
        ApiKey.CONTROLLER_REGISTRATION: Api((0, 0), 0, _CONTROLLER),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api((0, 0), 0, _BROKER),
        ApiKey.PUSH_TELEMETRY: Api((0, 0), 0, _BROKER),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: Api((0, 0), 0, _CONTROLLER),
        ApiKey.LIST_CONFIG_RESOURCES: Api((0, 1), 0, _BROKER),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api((0, 0), 0, _BROKER),
        ApiKey.SHARE_GROUP_HEARTBEAT: Api((1, 1), 1, _BROKER),
        ApiKey.SHARE_GROUP_DESCRIBE: Api((1, 1), 1, _BROKER),
        ApiKey.SHARE_FETCH: Api((1, 2), 1, _BROKER),
        ApiKey.SHARE_ACKNOWLEDGE: Api((1, 2), 1, _BROKER),
        ApiKey.ADD_RAFT_VOTER: Api((0, 1), 0, _BOTH),
        ApiKey.REMOVE_RAFT_VOTER: Api((0, 0), 0, _BOTH),
        ApiKey.UPDATE_RAFT_VOTER: Api((0, 0), 0, _CONTROLLER),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api((0, 0), 0, _BROKER),
        ApiKey.READ_SHARE_GROUP_STATE: Api((0, 0), 0, _BROKER),
        ApiKey.WRITE_SHARE_GROUP_STATE: Api((0, 1), 0, _BROKER),
        ApiKey.DELETE_SHARE_GROUP_STATE: Api((0, 0), 0, _BROKER),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api((0, 1), 0, _BROKER),
        ApiKey.STREAMS_GROUP_HEARTBEAT: Api((0, 1), 0, _BROKER),
        ApiKey.STREAMS_GROUP_DESCRIBE: Api((0, 1), 0, _BROKER),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api((0, 1), 0, _BROKER),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api((0, 0), 0, _BROKER),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api((0, 0), 0, _BROKER),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: Api((0, 0), 0, _BROKER),
        ApiKey.UNREGISTER_CONTROLLER: Api((0, 0), 0, _BOTH),
    }
)
