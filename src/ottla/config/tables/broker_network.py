"""Broker keys: listeners, connections, requests and quota windows.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
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
        "What to listen on, as NAME://host:port; an empty host means every interface."),
    Key("advertised.listeners", LIST, None, some_items(), HIGH, READ_ONLY,
        "What clients are told to connect to; the listeners themselves when not set."),
    Key("listener.security.protocol.map",
        STRING, "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None, LOW, PER_BROKER,
        "Which security protocol each listener speaks, as NAME:PROTOCOL."),
    Key("inter.broker.listener.name", STRING, None, None, MEDIUM, READ_ONLY,
        "The listener brokers use among themselves; else the first that speaks "
        "security.inter.broker.protocol."),
    Key("security.inter.broker.protocol",
        STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM,
        READ_ONLY,
        "The protocol brokers use among themselves when no listener is named for it."),
    Key("early.start.listeners", LIST, None, items(), HIGH, READ_ONLY,
        "Listeners that open before the authorizer is ready; the controller listeners when "
        "not set."),
    Key("socket.send.buffer.bytes", INT, 102_400, None, HIGH, READ_ONLY,
        "SO_SNDBUF of accepted connections; -1 leaves it to the system."),
    Key("socket.receive.buffer.bytes", INT, 102_400, None, HIGH, READ_ONLY,
        "SO_RCVBUF of accepted connections; -1 leaves it to the system."),
    Key("socket.request.max.bytes", INT, 104_857_600, at_least(1), HIGH, READ_ONLY,
        "The largest request taken; a larger one closes its connection."),
    Key("socket.listen.backlog.size", INT, 50, at_least(1), MEDIUM, READ_ONLY,
        "How many connections may wait to be accepted."),
    Key("socket.connection.setup.timeout.ms", LONG, 10_000, None, MEDIUM, READ_ONLY,
        "How long a first attempt to connect may take."),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30_000, None, MEDIUM, READ_ONLY,
        "The bound to which that time grows after failures."),
    Key("num.network.threads", INT, 3, at_least(1), HIGH, CLUSTER_WIDE,
        "Size of Kafka's pool of network threads per listener."),
    Key("queued.max.requests", INT, 500, at_least(1), HIGH, READ_ONLY,
        "Stop reading from connections when this many requests wait."),
    Key("queued.max.request.bytes", LONG, -1, None, MEDIUM, READ_ONLY,
        "Stop reading from connections when this many bytes of requests wait; -1 for no bound."),
    Key("max.connections", INT, INT_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The most open connections of this broker; listeners may have their own bound."),
    Key("max.connections.per.ip", INT, INT_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The most open connections of one address; 0 only beside overrides."),
    Key("max.connections.per.ip.overrides", STRING, "", None, MEDIUM, CLUSTER_WIDE,
        "Other bounds for single hosts, as host:count."),
    Key("max.connection.creation.rate", INT, INT_MAX, at_least(0), MEDIUM, CLUSTER_WIDE,
        "The most new connections a second; listeners may have their own bound."),
    Key("connections.max.idle.ms", LONG, 600_000, None, MEDIUM, READ_ONLY,
        "Close a connection on which nothing happened for this long."),
    Key("connections.max.reauth.ms", LONG, 0, None, MEDIUM, READ_ONLY,
        "Clients must authenticate again within this time; 0 for never."),
    Key("connection.failed.authentication.delay.ms", INT, 100, at_least(0), LOW, READ_ONLY,
        "Wait this long before closing a connection that failed to authenticate."),
    Key("request.timeout.ms", INT, 30_000, None, HIGH, READ_ONLY,
        "How long this broker waits for an answer of another."),
    Key("fetch.max.bytes", INT, 57_671_680, at_least(1024), MEDIUM, READ_ONLY,
        "The most bytes one fetch may ask for."),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, READ_ONLY,
        "How often Kafka sweeps its waiting fetches."),
    Key("producer.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, READ_ONLY,
        "How often Kafka sweeps its waiting produce requests."),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, None, MEDIUM, READ_ONLY,
        "How often Kafka sweeps its waiting record deletions."),
    Key("share.fetch.purgatory.purge.interval.requests", INT, 1000, None, MEDIUM, READ_ONLY,
        "How often Kafka sweeps its waiting share fetches."),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0), MEDIUM, READ_ONLY,
        "How many incremental fetch sessions are kept."),
    Key("max.request.partition.size.limit", INT, 2000, at_least(1), MEDIUM, READ_ONLY,
        "The most partitions one request may name."),
    Key("quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "How many windows a client quota looks back over."),
    Key("quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The length of one window of a client quota."),
    Key("controller.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "How many windows the quota on metadata changes looks back over."),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The length of one window of the quota on metadata changes."),
    Key("replication.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "How many windows the replication throttle looks back over."),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The length of one window of the replication throttle."),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW, READ_ONLY,
        "How many windows the throttle on moves between directories looks back over."),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, READ_ONLY,
        "The length of one window of the throttle on moves between directories."),
    Key("client.quota.callback.class", CLASS, None, None, LOW, READ_ONLY,
        "A class that computes client quotas."),
)
# fmt: on
