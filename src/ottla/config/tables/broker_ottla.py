"""Broker keys that Kafka has no name for.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
"""

from ottla.config.key_definition import Importance, Key, Update
from ottla.config.value_rules import HostPorts, NonEmpty, at_least, between
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
)
# fmt: on
