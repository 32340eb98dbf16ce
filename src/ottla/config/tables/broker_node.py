"""Broker keys: the node itself, its place in the quorum, metadata and metrics.

Each row: name, type, default, rule, importance, when a change takes effect, what it means.
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
        "The id of this node; unique over brokers and controllers, and never changed."),
    Key("broker.id", INT, -1, None, HIGH, READ_ONLY,
        "The older name of node.id; when both are given they must agree."),
    Key("process.roles", LIST, REQUIRED, some_items("broker", "controller"), HIGH, READ_ONLY,
        "What this node does: broker, controller, or both."),
    Key("broker.rack", STRING, None, None, MEDIUM, READ_ONLY,
        "Where this broker stands; replicas are spread over racks and consumers may read nearby."),
    Key("broker.heartbeat.interval.ms", INT, 2000, None, MEDIUM, READ_ONLY,
        "How often a broker tells the controller that it is alive."),
    Key("broker.session.timeout.ms", INT, 9000, None, MEDIUM, READ_ONLY,
        "A broker silent for this long is fenced and loses its leaderships."),
    Key("initial.broker.registration.timeout.ms", INT, 60_000, None, MEDIUM, READ_ONLY,
        "How long a starting broker tries to register before it gives up and exits."),
    Key("controlled.shutdown.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY,
        "Hand leaderships over before stopping."),
    Key("server.max.startup.time.ms", LONG, LONG_MAX, at_least(0), MEDIUM, READ_ONLY,
        "Give up when the node is not up after this long.", internal=True),
    Key("background.threads", INT, 10, at_least(1), HIGH, CLUSTER_WIDE,
        "Size of Kafka's pool for background work."),
    Key("num.io.threads", INT, 8, at_least(1), HIGH, CLUSTER_WIDE,
        "Size of Kafka's pool for handling requests."),
    Key("num.recovery.threads.per.data.dir", INT, 2, at_least(1), HIGH, CLUSTER_WIDE,
        "How many logs of one directory are recovered or flushed side by side."),
    Key("auto.create.topics.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Make a topic when a client asks for one that does not exist."),
    Key("delete.topic.enable", BOOLEAN, True, None, HIGH, READ_ONLY,
        "Let clients delete topics; when false such requests are refused."),
    Key("create.topic.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "A class that may refuse the creation of a topic."),
    Key("alter.config.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "A class that may refuse a change of configuration."),
    Key("controller.listener.names", LIST, REQUIRED, some_items(), HIGH, READ_ONLY,
        "The listeners that controllers serve; brokers dial the first of them."),
    Key("controller.quorum.voters", LIST, (), Voters(), HIGH, READ_ONLY,
        "The fixed voters as id@host:port; leave empty where the quorum is managed at run time."),
    Key("controller.quorum.bootstrap.servers", LIST, (), HostPorts(), HIGH, READ_ONLY,
        "Controllers to ask first, as host:port."),
    Key("controller.quorum.auto.join.enable", BOOLEAN, False, None, LOW, READ_ONLY,
        "A controller adds itself to the voters once it has caught up."),
    Key("controller.quorum.election.timeout.ms", INT, 1000, at_least(0), HIGH, READ_ONLY,
        "A candidate that has not won after this long starts over."),
    Key("controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0), HIGH, READ_ONLY,
        "A voter that cannot fetch for this long stands for election; a leader not fetched "
        "from resigns."),
    Key("controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0), HIGH, READ_ONLY,
        "The longest random pause between lost elections."),
    Key("controller.quorum.append.linger.ms", INT, 25, at_least(0), MEDIUM, READ_ONLY,
        "How long the leader gathers metadata records before it writes them."),
    Key("controller.quorum.request.timeout.ms", INT, 2000, at_least(0), MEDIUM, READ_ONLY,
        "A request between members of the quorum fails after this long."),
    Key("controller.quorum.retry.backoff.ms", INT, 20, at_least(0), LOW, READ_ONLY,
        "The pause before a failed request to the quorum is sent again."),
    Key("controller.performance.sample.period.ms", LONG, 60_000, at_least(100), MEDIUM, READ_ONLY,
        "How often the controller reports how long its events take.", internal=True),
    Key("controller.performance.always.log.threshold.ms",
        LONG, 2000, at_least(0), MEDIUM, READ_ONLY,
        "Any single controller event slower than this is reported.", internal=True),
    Key("controller.socket.timeout.ms", INT, 30_000, None, MEDIUM, READ_ONLY,
        "A request from a broker to the controller fails after this long."),
    Key("metadata.log.dir", STRING, None, None, HIGH, READ_ONLY,
        "Where the metadata log lives; the first log directory when not set."),
    Key("metadata.log.segment.bytes", INT, 1_073_741_824, at_least(8_388_608), HIGH, READ_ONLY,
        "Roll a segment of the metadata log at this size."),
    Key("metadata.log.segment.ms", LONG, 604_800_000, None, HIGH, READ_ONLY,
        "Roll a segment of the metadata log at this age."),
    Key("metadata.max.retention.bytes", LONG, 104_857_600, None, HIGH, READ_ONLY,
        "Old metadata segments and snapshots are deleted above this total size."),
    Key("metadata.max.retention.ms", LONG, 604_800_000, None, HIGH, READ_ONLY,
        "Old metadata segments and snapshots are deleted at this age."),
    Key("metadata.log.max.record.bytes.between.snapshots",
        LONG, 20_971_520, at_least(1), HIGH, READ_ONLY,
        "Write a snapshot after this many bytes of committed records."),
    Key("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, at_least(0), HIGH, READ_ONLY,
        "Write a snapshot when the last is this old and records came since; 0 never by age."),
    Key("metadata.max.idle.interval.ms", INT, 500, at_least(0), LOW, READ_ONLY,
        "The active controller writes an empty record when nothing else was written for this "
        "long; 0 never."),
    Key("internal.metadata.log.segment.bytes", INT, None, None, LOW, READ_ONLY,
        "Segment size of the metadata log without its lower bound, for tests.", internal=True),
    Key("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, LOW, READ_ONLY,
        "The largest batch of the metadata log, for tests.", internal=True),
    Key("internal.metadata.max.fetch.size.in.bytes", INT, 8_388_608, None, LOW, READ_ONLY,
        "The most bytes read at once from the metadata log, for tests.", internal=True),
    Key("internal.metadata.delete.delay.millis", LONG, 60_000, None, LOW, READ_ONLY,
        "How long a deleted metadata file stays on disk, for tests.", internal=True),
    Key("unstable.api.versions.enable", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Also serve versions of APIs that are not final.", internal=True),
    Key("unstable.feature.versions.enable", BOOLEAN, False, None, HIGH, READ_ONLY,
        "Also allow feature levels that are not final.", internal=True),
    Key("config.providers", LIST, (), items(), LOW, CLUSTER_WIDE,
        "Names of classes that fetch values from elsewhere."),
    Key("kafka.metrics.reporters", LIST, (), items(), LOW, READ_ONLY,
        "Classes that receive broker metrics."),
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1), LOW, READ_ONLY,
        "How often those classes poll."),
    Key("metric.reporters",
        LIST, ("org.apache.kafka.common.metrics.JmxReporter",), items(), LOW, CLUSTER_WIDE,
        "Classes that receive client and server metrics."),
    Key("metrics.num.samples", INT, 2, at_least(1), LOW, READ_ONLY,
        "How many samples a windowed metric keeps."),
    Key("metrics.sample.window.ms", LONG, 30_000, at_least(1), LOW, READ_ONLY,
        "The length of one sample of a windowed metric."),
    Key("metrics.recording.level", STRING, "INFO", None, LOW, READ_ONLY,
        "The finest metrics that are recorded: INFO, DEBUG or TRACE."),
    Key("telemetry.max.bytes", INT, 1_048_576, at_least(1), LOW, READ_ONLY,
        "The largest metrics push taken from a client, after compression."),
)
# fmt: on
