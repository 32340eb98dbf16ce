"""Broker keys: listeners, connections, requests and quota windows.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import at_least, items, one_of, some_items
from ottla.config.values import Type

STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
LIST = Type.LIST
CLASS = Type.CLASS
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY
PER_BROKER = Update.PER_BROKER
CLUSTER_WIDE = Update.CLUSTER_WIDE
INT_MAX = 2**31 - 1

# fmt: off
BROKER_NETWORK: tuple[Key, ...] = (
    Key("listeners", LIST, ("PLAINTEXT://:9092",), some_items(), HIGH, PER_BROKER,
        "The addresses to listen on, as NAME://host:port; an empty host means all interfaces."),
    Key("advertised.listeners", LIST, None, some_items(), HIGH, READ_ONLY,
        "The addresses that clients are given; defaults to listeners."),
    Key("listener.security.protocol.map",
        STRING, "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None, LOW, PER_BROKER,
        "The security protocol of each listener, as NAME:PROTOCOL."),
    Key("inter.broker.listener.name", STRING, None, None, MEDIUM, READ_ONLY,
        "The listener for communication between brokers; defaults to the first with "
        "security.inter.broker.protocol."),
    Key("security.inter.broker.protocol",
        STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM,
        READ_ONLY,
        "The security protocol between brokers if inter.broker.listener.name is not set."),
    Key("early.start.listeners", LIST, None, items(), HIGH, READ_ONLY,
        "Listeners that open before the authorizer is ready; the controller listeners if "
        "not set."),
    Key("socket.send.buffer.bytes", INT, 102_400, None, HIGH, READ_ONLY,
        "The SO_SNDBUF buffer size of accepted connections; -1 for the system default."),
    Key("socket.receive.buffer.bytes", INT, 102_400, None, HIGH, READ_ONLY,
        "The SO_RCVBUF buffer size of accepted connections; -1 for the system default."),
    Key("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The maximum size of a request; a larger one closes its connection."),
    Key("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, READ_ONLY,
        "The maximum number of pending connections on a listening socket."),
    Key("socket.connection.setup.timeout.ms", LONG, 10_000, None, MEDIUM, READ_ONLY,
        "The initial timeout for establishing a connection."),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30_000, None, MEDIUM, READ_ONLY,
        "The maximum to which the connection timeout grows after failures."),
    Key("num.network.threads", INT, 3, at_least(1), HIGH, CLUSTER_WIDE,
        "The number of network threads per listener in Kafka."),
    Key("queued.max.requests", INT, 500, at_least(1), HIGH, READ_ONLY,
        "The number of queued requests at which the broker stops reading from connections."),
    Key("queued.max.request.bytes", LONG, -1, None, MEDIUM, READ_ONLY,
        "The bytes of queued requests at which the broker stops reading; -1 for no limit."),
    Key("max.connections", INT, INT_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of connections of this broker; can also be set per listener."),
    Key("max.connections.per.ip", INT, INT_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum number of connections per IP address; 0 only together with overrides."),
    Key("max.connections.per.ip.overrides", STRING, "", None, MEDIUM, CLUSTER_WIDE,
        "Limits for single hosts that override the default, as host:count."),
    Key("max.connection.creation.rate", INT, INT_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The maximum rate of new connections per second; can also be set per listener."),
    Key("connections.max.idle.ms", LONG, 600_000, None, MEDIUM, READ_ONLY,
        "Close a connection that was idle for this long."),
    Key("connections.max.reauth.ms", LONG, 0, None, MEDIUM, READ_ONLY,
        "Clients must reauthenticate within this time; 0 disables reauthentication."),
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW, READ_ONLY,
        "The delay before a connection that failed to authenticate is closed."),
    Key("request.timeout.ms", INT, 30_000, None, HIGH, READ_ONLY,
        "How long this broker waits for a response of another node."),
    Key("fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM, READ_ONLY,
        "The maximum bytes returned for a fetch request."),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, READ_ONLY,
        "The purge interval of the fetch purgatory in Kafka."),
    Key("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, READ_ONLY,
        "The purge interval of the produce purgatory in Kafka."),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM, READ_ONLY,
        "The purge interval of the delete records purgatory in Kafka."),
    Key("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, READ_ONLY,
        "The purge interval of the share fetch purgatory in Kafka."),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The maximum number of incremental fetch sessions."),
    Key("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, READ_ONLY,
        "The maximum number of partitions in a response to one request."),
    Key("quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "The number of samples of client quotas; an idle client may use all but one at once."),
    Key("quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The time span of one sample for client quotas."),
    Key("controller.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "The number of samples kept for controller mutation quotas."),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The time span of one sample for controller mutation quotas."),
    Key("replication.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "The number of samples kept for replication quotas."),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The time span of one sample for replication quotas."),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "The number of samples kept for alter log dirs replication quotas."),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The time span of one sample for alter log dirs replication quotas."),
    Key("client.quota.callback.class", CLASS, None, None, LOW, READ_ONLY,
        "The class that computes client quotas."),
)
# fmt: on
