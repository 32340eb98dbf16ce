"""Broker keys: the node itself, its place in the quorum, metadata and metrics.

Each row: name, type, default, rule, importance, update mode, description.
"""

from ottla.config.key_definition import REQUIRED, Importance, Key, Update
from ottla.config.value_rules import HostPorts, Voters, at_least, items, some_items
from ottla.config.values import Type

BOOLEAN = Type.BOOLEAN
STRING = Type.STRING
INT = Type.INT
LONG = Type.LONG
LIST = Type.LIST
CLASS = Type.CLASS
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Update.READ_ONLY
CLUSTER_WIDE = Update.CLUSTER_WIDE
LONG_MAX = 2**63 - 1

# fmt: off
BROKER_NODE: tuple[Key, ...] = (
    Key("node.id", INT, REQUIRED, at_least(0), HIGH, READ_ONLY,
        "The id of this node; unique among brokers and controllers, and never changed."),
    Key("broker.id", INT, -1, None, HIGH, READ_ONLY,
        "The older name of node.id; if both are set they must be equal."),
    Key("process.roles", LIST, REQUIRED, some_items("broker", "controller"), HIGH, READ_ONLY,
        "The roles of this node: broker, controller, or both."),
    Key("broker.rack", STRING, None, None, MEDIUM, READ_ONLY,
        "The rack of this broker, used for replica placement and for fetching from a nearby "
        "replica."),
    Key("broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM, READ_ONLY,
        "The interval of a broker's heartbeats to the controller."),
    Key("broker.session.timeout.ms", INT, 9000, None, MEDIUM, READ_ONLY,
        "A broker without a heartbeat for this long is fenced."),
    Key("initial.broker.registration.timeout.ms", INT, 60_000, None, MEDIUM, READ_ONLY,
        "How long a starting broker tries to register before it exits."),
    Key("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Move partition leadership to other brokers before stopping."),
    Key("server.max.startup.time.ms", LONG, LONG_MAX, at_least(0), MEDIUM, READ_ONLY,
        "The startup timeout of the node.", internal=True),
    Key("background.threads", INT, 10, at_least(1), HIGH, CLUSTER_WIDE,
        "The number of background threads in Kafka."),
    Key("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE,
        "The number of request handler threads in Kafka."),
    Key("num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH, CLUSTER_WIDE,
        "The number of logs per directory that are recovered or flushed in parallel."),
    Key("auto.create.topics.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Create a topic when a client requests metadata of one that does not exist."),
    Key("delete.topic.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Enable topic deletion; if false, such requests are rejected."),
    Key("create.topic.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "The class that validates the creation of topics."),
    Key("alter.config.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "The class that validates configuration changes."),
    Key("controller.listener.names", LIST, REQUIRED, some_items(), HIGH, READ_ONLY,
        "The names of the controller listeners; brokers connect to the first one."),
    Key("controller.quorum.voters", LIST, (), Voters(), HIGH, READ_ONLY,
        "The voters of a static quorum, as id@host:port; empty for a dynamic quorum."),
    Key("controller.quorum.bootstrap.servers", LIST, (), HostPorts(), HIGH, READ_ONLY,
        "The controllers used to discover the quorum, as host:port."),
    Key("controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW, READ_ONLY,
        "Whether a controller adds itself to the voters once it has caught up."),
    Key("controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH, READ_ONLY,
        "A candidate that has not won after this long starts a new election."),
    Key("controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH, READ_ONLY,
        "A voter that cannot fetch for this long starts an election; a leader not fetched "
        "from resigns."),
    Key("controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH, READ_ONLY,
        "The maximum random backoff between elections."),
    Key("controller.quorum.append.linger.ms", INT, 25, at_least(0), MEDIUM, READ_ONLY,
        "How long the leader collects metadata records before it writes them."),
    Key("controller.quorum.request.timeout.ms", INT, 2000, at_least(0), MEDIUM, READ_ONLY,
        "The timeout of requests between quorum members."),
    Key("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW, READ_ONLY,
        "The backoff before a failed request to the quorum is retried."),
    Key("controller.performance.sample.period.ms", LONG, 60_000, at_least(100), MEDIUM, READ_ONLY,
        "How often the controller logs the performance of its events.", internal=True),
    Key("controller.performance.always.log.threshold.ms",
        LONG, 2000, at_least(0), MEDIUM, READ_ONLY,
        "A controller event slower than this is logged.", internal=True),
    Key("controller.socket.timeout.ms", INT, 30_000, None, MEDIUM, READ_ONLY,
        "The timeout of requests from a broker to the controller."),
    Key("metadata.log.dir", STRING, None, None, HIGH, READ_ONLY,
        "The directory of the metadata log; defaults to the first log directory."),
    Key("metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH, READ_ONLY,
        "Roll a segment of the metadata log at this size."),
    Key("metadata.log.segment.ms", LONG, 604_800_000, None, HIGH, READ_ONLY,
        "Roll a segment of the metadata log at this age."),
    Key("metadata.max.retention.bytes", LONG, 104_857_600, None, HIGH, READ_ONLY,
        "The maximum total size of the metadata log and its snapshots before old ones are "
        "deleted."),
    Key("metadata.max.retention.ms", LONG, 604_800_000, None, HIGH, READ_ONLY,
        "The age at which old metadata segments and snapshots are deleted."),
    Key("metadata.log.max.record.bytes.between.snapshots",
        LONG, 20_971_520, at_least(1), HIGH, READ_ONLY,
        "Write a snapshot after this many bytes of committed records."),
    Key("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH, READ_ONLY,
        "Write a snapshot if the last is this old and there are newer records; 0 disables it."),
    Key("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW, READ_ONLY,
        "The active controller writes a no-op record if nothing else was written for this "
        "long; 0 disables it."),
    Key("internal.metadata.log.segment.bytes", INT, None, None, LOW, READ_ONLY,
        "Segment size of the metadata log without its lower bound, for tests.", internal=True),
    Key("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW, READ_ONLY,
        "The maximum batch size of the metadata log, for tests.", internal=True),
    Key("internal.metadata.max.fetch.size.in.bytes", INT, 8_388_608, None, LOW, READ_ONLY,
        "The maximum bytes read at once from the metadata log, for tests.", internal=True),
    Key("internal.metadata.delete.delay.millis", LONG, 60_000, None, LOW, READ_ONLY,
        "How long a deleted metadata file remains on disk, for tests.", internal=True),
    Key("unstable.api.versions.enable", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Enable unstable API versions.", internal=True),
    Key("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Enable unstable feature levels.", internal=True),
    Key("config.providers", LIST, (), items(), LOW, CLUSTER_WIDE,
        "Sources of values written as ${name:path:key}; only in a node's own settings."),
    Key("kafka.metrics.reporters", LIST, (), items(), LOW, READ_ONLY,
        "Classes that receive broker metrics."),
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW, READ_ONLY,
        "How often the metric reporters poll."),
    Key("metric.reporters",
        LIST, ("org.apache.kafka.common.metrics.JmxReporter",), items(), LOW, CLUSTER_WIDE,
        "Classes that receive client and server metrics."),
    Key("metrics.num.samples", INT, 2, at_least(1), LOW, READ_ONLY,
        "The number of samples kept for a windowed metric."),
    Key("metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY,
        "The time span of one sample of a windowed metric."),
    Key("metrics.recording.level", STRING, "INFO", None, LOW, READ_ONLY,
        "The highest recording level of metrics: INFO, DEBUG or TRACE."),
    Key("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW, READ_ONLY,
        "The maximum size of a client's metrics push, after compression."),
)
# fmt: on
