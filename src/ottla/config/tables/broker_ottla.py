"""Broker keys that Kafka has no name for.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import (
    HostPorts,
    HttpUrl,
    LoggerLevels,
    NonEmpty,
    any_case_of,
    at_least,
    between,
    items,
    one_of,
)
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
LIST = Type.LIST
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
PASSWORD = Type.PASSWORD
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY

# fmt: off
BROKER_OTTLA: tuple[Key, ...] = (
    Key("ottla.allow.insecure.controller.listener", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Allow a controller listener on a routable address without encryption and authentication."),
    Key("ottla.controller.heartbeat.interval.ms", INT, 300, at_least(1), MEDIUM, READ_ONLY,
        "How often the quorum leader contacts the voters; "
        "at most a third of the election timeout."),
    Key("ottla.liveness.probe.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Whether a broker or quorum leader whose port refuses connections is replaced before its "
        "timeout."),
    Key("ottla.liveness.probe.interval.ms", INT, 50, at_least(1), LOW, READ_ONLY,
        "The pause between the two refused connections after which the active controller fences "
        "a broker."),
    Key("ottla.liveness.probe.timeout.ms", INT, 1_000, at_least(1), LOW, READ_ONLY,
        "How long the active controller waits for a connection to a suspected broker; a time-out "
        "is no evidence."),
    Key("ottla.observer.lag.bound", LONG, 1000, at_least(0), MEDIUM, READ_ONLY,
        "The maximum lag, in records, of an observer that becomes a voter."),
    Key("ottla.metadata.snapshot.interval.records", LONG, 0, at_least(0), LOW, READ_ONLY,
        "Also write a metadata snapshot after this many records; 0 disables it."),
    Key("ottla.leader.imbalance.per.broker.percentage", INT, 10, between(0, 100), LOW, READ_ONLY,
        "The percentage of a broker's preferred partitions led elsewhere above which they are "
        "moved back."),
    Key("ottla.request.receive.timeout.ms", INT, 30_000, at_least(1), LOW, READ_ONLY,
        "Close a connection that pauses for this long in the middle of a request."),
    Key("ottla.request.receive.min.bytes.per.second", INT, 131_072, at_least(1), LOW, READ_ONLY,
        "Receiving a request may take ottla.request.receive.timeout.ms plus its size at this "
        "rate."),
    Key("log.format", STRING, "text", one_of("text", "json"), LOW, READ_ONLY,
        "The form of the node's own log lines."),
    Key("log.level", STRING, "INFO", one_of("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"),
        LOW, READ_ONLY, "The level of all loggers at start."),
    Key("log.levels", LIST, (), LoggerLevels(), LOW, READ_ONLY,
        "The levels of single loggers at start, as logger=LEVEL."),
    Key("ottla.login.timeout.ms", INT, 30_000, at_least(1), LOW, READ_ONLY,
        "Close a connection to a SASL listener that has not logged in for this long."),
    Key("ottla.oauthbearer.introspection.endpoint.url", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The https URL that verifies opaque tokens of OAUTHBEARER (RFC 7662)."),
    Key("ottla.oauthbearer.introspection.client.id", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The client that this node is to the introspection endpoint."),
    Key("ottla.oauthbearer.introspection.client.secret", PASSWORD, None, None, LOW, READ_ONLY,
        "The secret of ottla.oauthbearer.introspection.client.id."),
    Key("ottla.oauthbearer.introspection.timeout.ms", INT, 5_000, at_least(1), LOW, READ_ONLY,
        "How long the introspection endpoint may take to answer."),
    Key("ottla.oauthbearer.introspection.cache.ms", INT, 30_000, at_least(0), LOW, READ_ONLY,
        "How long a verified token is accepted without asking again; 0 asks at every login."),
    Key("ottla.oauthbearer.required.scopes", LIST, (), items(), LOW, READ_ONLY,
        "Scopes that a token of OAUTHBEARER must have, all of them."),
    Key("ottla.oauthbearer.allowed.urls", LIST, (), items(), LOW, READ_ONLY,
        "The URLs that OAUTHBEARER of this node may fetch from; any if empty."),
    Key("ottla.metrics.listener", STRING, None, HostPorts(), MEDIUM, READ_ONLY,
        "The host:port that serves /metrics; disabled if not set."),
    Key("ottla.consumer.lag.interval.ms", INT, 15_000, at_least(0), LOW, READ_ONLY,
        "How often the lag of groups coordinated here is measured for /metrics; 0 disables it."),
    Key("ottla.metrics.ssl.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Serve /metrics over TLS, with ssl.* or listener.name.metrics.ssl.* of the node."),
    Key("ottla.metrics.user", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The user of HTTP basic authentication at ottla.metrics.listener."),
    Key("ottla.metrics.password", PASSWORD, None, None, LOW, READ_ONLY,
        "The password of ottla.metrics.user."),
    Key("ottla.metrics.bearer.token", PASSWORD, None, None, LOW, READ_ONLY,
        "The bearer token that clients of ottla.metrics.listener may send instead."),
    Key("ottla.partition.disk.scan.interval.seconds", INT, 0, at_least(0), LOW, READ_ONLY,
        "How often the disk usage of each partition is measured; 0 disables it."),
    Key("ottla.replica.unexplained.deletion.delay.ms", LONG, 3_600_000, at_least(0), LOW, READ_ONLY,
        "How long a follower keeps segments that its new leader lacks for no known reason; "
        "0 deletes them at once."),
    Key("ottla.cleaner.interval.ms", LONG, None, at_least(1), LOW, READ_ONLY,
        "Run retention and compaction this often, whatever the other intervals say; for tests.",
        internal=True),
    Key("ottla.tls.reload.interval.ms", LONG, 60_000, at_least(0), MEDIUM, READ_ONLY,
        "How often key and trust store files are checked for changes; 0 disables it."),
    Key("ottla.oauthbearer.jwks.on.demand.min.pause.ms", LONG, 10_000, at_least(0), LOW, READ_ONLY,
        "The minimum time between refreshes of the provider's keys caused by unknown key ids."),
    Key("ottla.oauthbearer.jwks.ignore.key.use", BOOLEAN, False, None, LOW, READ_ONLY,
        "Also verify with published keys that are not marked for signatures."),
    Key("ottla.oauthbearer.idp.truststore.location", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The PEM file of trusted certificates of the identity provider; defaults to the system's."),
    Key("ottla.errors.deadletterqueue.topic.name.prefix", STRING, None, None, MEDIUM, READ_ONLY,
        "The earlier name of errors.deadletterqueue.topic.name.prefix, which it replaces if set."),
    # The console.
    Key("console.listeners", STRING, None, HttpUrl(), MEDIUM, READ_ONLY,
        "The http:// address that serves the web console; disabled if not set."),
    Key("console.advertised.listeners", STRING, None, HttpUrl(), LOW, READ_ONLY,
        "The address of the console for browsers, such as that of a proxy with TLS; defaults to "
        "console.listeners."),
    Key("console.read.only", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Whether the console only shows the cluster, and changes nothing."),
    # The schema registry; after the prefix the names are Confluent's.
    Key("schema.registry.listeners", STRING, None, HttpUrl(), MEDIUM, READ_ONLY,
        "The http:// or https:// address that serves the schema registry; disabled if not set."),
    Key("schema.registry.advertised.listeners", STRING, None, HttpUrl(), LOW, READ_ONLY,
        "The address at which other nodes reach the registry of this one; by default that of "
        "schema.registry.listeners."),
    Key("schema.registry.authentication.required", BOOLEAN, False, None, MEDIUM, READ_ONLY,
        "Whether clients of the registry must log in, by HTTP basic or bearer authentication."),
    Key("schema.registry.schema.compatibility.level", STRING, "backward",
        any_case_of("none", "backward", "backward_transitive", "forward", "forward_transitive",
                    "full", "full_transitive"), LOW, READ_ONLY,
        "The compatibility level of the registry while none is set by its API."),
    Key("schema.registry.kafkastore.topic.replication.factor", INT, 3, at_least(1), LOW, READ_ONLY,
        "The replication factor of the topic _schemas; fewer where the cluster has fewer brokers."),
    Key("schema.registry.kafkastore.timeout.ms", INT, 10_000, at_least(1), LOW, READ_ONLY,
        "How long a write of the registry may take to be replicated, or to be forwarded."),
    Key("schema.registry.request.max.bytes", INT, 10_485_760, at_least(1024), LOW, READ_ONLY,
        "The largest body of a request to the registry."),
)
# fmt: on
