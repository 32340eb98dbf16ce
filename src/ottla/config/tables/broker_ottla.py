"""Broker keys that Kafka has no name for.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import HostPorts, NonEmpty, at_least, between, one_of
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
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
    Key("ottla.cluster.id", STRING, None, NonEmpty(), HIGH, READ_ONLY,
        "The id of the cluster that a node without meta.properties joins or founds."),
    Key("ottla.bootstrap.mode", STRING, "auto", one_of("auto", "bootstrap", "join", "rejoin"),
        HIGH, READ_ONLY,
        "Whether this node founds a cluster, joins one or comes back; auto looks at the disk."),
    Key("ottla.allow.insecure.controller.listener", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Let a controller listener on a routable address speak without encryption and login."),
    Key("ottla.controller.heartbeat.interval.ms", INT, 300, at_least(1), MEDIUM, READ_ONLY,
        "How often the leader of the quorum makes itself heard; "
        "at most a third of the election timeout."),
    Key("ottla.observer.lag.bound", LONG, 1000, at_least(0), MEDIUM, READ_ONLY,
        "How many records an observer may lag and still become a voter."),
    Key("ottla.metadata.snapshot.interval.records", LONG, 0, at_least(0), LOW, READ_ONLY,
        "Also write a metadata snapshot after this many records; 0 never by count."),
    Key("ottla.leader.imbalance.per.broker.percentage", INT, 10, between(0, 100), LOW, READ_ONLY,
        "Move leadership back when more than this percentage of a broker's has drifted."),
    Key("ottla.request.receive.timeout.ms", INT, 30_000, at_least(1), LOW, READ_ONLY,
        "Close a connection that sends nothing for this long in the middle of a request."),
    Key("ottla.request.receive.min.bytes.per.second", INT, 131_072, at_least(1), LOW, READ_ONLY,
        "A request may take ottla.request.receive.timeout.ms plus its size at this rate."),
    Key("ottla.metrics.listener", STRING, None, HostPorts(), MEDIUM, READ_ONLY,
        "Serve /metrics on this host:port; not at all when not set."),
    Key("ottla.otlp.endpoint", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "Send metrics and traces to this OpenTelemetry endpoint."),
    Key("ottla.partition.disk.scan.interval.seconds", INT, 0, at_least(0), LOW, READ_ONLY,
        "How often the disk use of each partition is measured; 0 for never."),
    Key("ottla.cleaner.interval.ms", LONG, None, at_least(1), LOW, READ_ONLY,
        "Run retention and compaction this often, whatever the other intervals say; for tests.",
        internal=True),
    Key("ottla.tls.reload.interval.ms", LONG, 60_000, at_least(0), MEDIUM, READ_ONLY,
        "How often key and trust files are checked for change; 0 for never."),
    Key("ottla.oauthbearer.jwks.on.demand.min.pause.ms", LONG, 10_000, at_least(0), LOW, READ_ONLY,
        "The least pause between reads of the provider's keys that unknown key ids cause."),
    Key("ottla.oauthbearer.jwks.ignore.key.use", BOOLEAN, False, None, LOW, READ_ONLY,
        "Also verify with published keys that are not marked for signatures."),
    Key("ottla.oauthbearer.idp.truststore.location", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "PEM file of certificates trusted for the identity provider; the system's when not set."),
    Key("ottla.errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", None, MEDIUM, READ_ONLY,
        "What the name of a topic for records that cannot be delivered has to begin with."),
    Key("ottla.group.share.max.groups", INT, 10, at_least(1), MEDIUM, READ_ONLY,
        "The most share groups of this cluster."),
    Key("ottla.remote.storage.backend", STRING, "none", one_of("none", "local", "s3"),
        MEDIUM, READ_ONLY,
        "Where tiered segments go: a directory or an object store that speaks S3."),
    Key("ottla.remote.storage.local.dir", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The directory of the local backend."),
    Key("ottla.remote.storage.s3.bucket", STRING, None, NonEmpty(), MEDIUM, READ_ONLY,
        "The bucket of the S3 backend."),
    Key("ottla.remote.storage.s3.prefix", STRING, "", None, LOW, READ_ONLY,
        "What the names of all objects start with."),
    Key("ottla.remote.storage.s3.region", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The region of the bucket."),
    Key("ottla.remote.storage.s3.endpoint", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "The address of the object store where it is not the region's own."),
    Key("ottla.remote.storage.s3.access.key.id", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "Who this node is to the object store; the environment's identity when not set."),
    Key("ottla.remote.storage.s3.secret.access.key", PASSWORD, None, None, LOW, READ_ONLY,
        "The secret that goes with the access key id."),
    Key("ottla.remote.log.metadata.store", STRING, "topic", one_of("topic", "memory"),
        LOW, READ_ONLY,
        "Where remote segments are tracked: the topic __remote_log_metadata, or memory for tests."),
    Key("ottla.remote.log.metadata.bootstrap.servers", STRING, None, HostPorts(), LOW, READ_ONLY,
        "The broker by which that topic is reached; this one when not set."),
    Key("ottla.remote.log.metadata.topic.num.partitions", INT, 50, at_least(1), LOW, READ_ONLY,
        "How many partitions __remote_log_metadata gets; not to be changed later."),
    Key("ottla.remote.log.metadata.topic.replication.factor", INT, 3, at_least(1), LOW, READ_ONLY,
        "How many replicas __remote_log_metadata gets."),
    Key("ottla.remote.log.metadata.snapshot.interval.ms", LONG, 60_000, at_least(1), LOW, READ_ONLY,
        "How often what was read from that topic is written down."),
    Key("ottla.remote.log.metadata.snapshot.dir", STRING, None, NonEmpty(), LOW, READ_ONLY,
        "Where it is written; remote-log-metadata in the first log directory when not set."),
)
# fmt: on
