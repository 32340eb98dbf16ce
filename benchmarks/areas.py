"""The areas of the benchmarks, in the order in which a run measures them.

Areas that compare rates with Apache Kafka come first and share two warm brokers; `minutes` is what
one takes alone on two quiet cores.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Area:
    """A module of this package whose ``run`` yields rows; ``how`` is printed above its table."""

    name: str
    title: str
    minutes: int
    how: str
    is_compared: bool = False
    """It takes the brokers of `benchmarks.warm`."""


AREAS = (
    Area(
        "throughput",
        "Throughput with librdkafka",
        14,
        "One partition, one producer or consumer, uncompressed records of 100 B and 1 KiB. Broker"
        " CPU is the time of the broker's process; client CPU tells which of the two was the"
        " limit: the client has one core, so 1 GB/s at 1 s/GB is all that it can do.",
        is_compared=True,
    ),
    Area(
        "requests",
        "Small requests",
        6,
        "Produce requests of one record of 100 B, acks=1, prepared frames sent by a program in C."
        " The bare server is a C program that appends a request to a file and sends a reply.",
        is_compared=True,
    ),
    Area(
        "java",
        "Apache Kafka's Java client",
        35,
        "The producer and the consumer performance tools of Apache Kafka with the client's"
        " defaults (acks=all, idempotent, batches of 16 KiB), records of 1 KiB of JSON, 12"
        " partitions. Both tools run in one JVM that stays, so that the client is warm, too. MB"
        " and GB are those of the records before compression. Compression happens in the client,"
        " which has one core: with a codec that keeps it busy (client CPU times rate near 1) the"
        " ratio says little about the broker, and the CPU of the broker says it all.",
        is_compared=True,
    ),
    Area(
        "latency",
        "Latency from producer to consumer",
        24,
        "A librdkafka producer sends records at a fixed rate, a consumer in the same process"
        " receives them; the time is from the call of the producer to the hands of the consumer. A"
        " broker that does not keep up with the rate has the rate it reached in its row: its"
        " latencies are those of a growing queue. The bare C server only appends and passes on:"
        " what it takes is the time of the client and of the machine.",
        is_compared=True,
    ),
    Area(
        "tls",
        "TLS",
        6,
        "librdkafka from Python, records of 10 KiB, so that the bytes count and not the client's"
        " calls.",
        is_compared=True,
    ),
    Area(
        "coordinators",
        "Groups, commits, transactions",
        18,
        "Prepared frames, sent by a program in C or by one thread. Each load first runs on both"
        " brokers without being counted. Commits include what compaction costs: both brokers clean"
        " what the commits before left behind. A group from nothing to stable takes the"
        " `group.initial.rebalance.delay.ms` of both, twice.",
        is_compared=True,
    ),
    Area(
        "cluster",
        "Three nodes",
        15,
        "Three combined nodes on two cores, one partition with three replicas,"
        " min.insync.replicas=2, acks=all. The follower that catches up has just been started: its"
        " JVM is cold, as after every restart.",
        is_compared=True,
    ),
    Area(
        "latency_replicated",
        "Latency with three replicas",
        11,
        "As with one node; three combined nodes and the clients share two cores.",
        is_compared=True,
    ),
    Area(
        "java_replicated",
        "Apache Kafka's Java client and three replicas",
        25,
        "As with one node; three combined nodes and the client share two cores, so the rates"
        " compare what the whole costs. Broker CPU is that of all three nodes.",
        is_compared=True,
    ),
    Area(
        "start",
        "Start and memory at rest",
        3,
        "A node with one empty directory, from the start of its process to its first reply. Both"
        " brokers run their defaults, Kafka with the heap of its start script (1 GiB).",
    ),
    Area(
        "failover",
        "Fail-over",
        25,
        "`kill -9` of nodes of a cluster of three with default settings, under load.",
    ),
    Area(
        "two_nodes",
        "Two nodes on two cores",
        6,
        "`ottla server --nodes 2` against one node. The generator shares the cores with them; the"
        " row on processes that only compute is the most that the machine gives.",
    ),
    Area(
        "tiering",
        "Tiered storage",
        15,
        "The log and the store are on one disk. Bare uploads and GETs are those of obstore; a"
        " bare upload to a directory is synced, too. The producer's rows are taken while a broker"
        " copies segments, and while another process uploads the same bytes.",
    ),
    Area("idle", "At rest", 3, "The CPU time of a node whose clients do nothing."),
    Area("scrape", "A scrape of the metrics", 3, "GET /metrics of a large node."),
    Area("acls", "ACLs", 2, "Decisions of the authorizer, and requests with and without it."),
    Area(
        "registry",
        "The schema registry",
        1,
        "Look-ups per second of the node's CPU time, the load of its topic, and its memory.",
    ),
    Area("quorum", "The metadata quorum", 4, "Voters are processes of their own on one machine."),
    Area("storage", "The log", 3, "Appends and starts, without a broker around them."),
    Area("compaction", "Compaction", 2, "The cleaner's rewrite, against the same in plain Python."),
    Area("metadata", "The metadata image", 2, "Applying records to an image, in one process."),
    Area(
        "image_changes",
        "Large changes of the metadata image",
        3,
        "The longest time for which the event loop is blocked.",
    ),
    Area("produce", "Produce in one process", 1, "A request from its bytes to its reply."),
    Area("fetch", "Fetch in one process", 1, "A request from its bytes to its reply."),
    Area("codec", "The codec", 1, "Against kio, a pure Python codec with a native reader."),
    Area("records", "Records", 1, "The walk over the records of a batch, compiled and plain."),
    Area(
        "pipeline",
        "The Spark pipeline",
        30,
        "Against Spark's own Kafka connector, parquet files, kcat and DuckDB, in alternation on"
        " the same records. Topics to tables: the same rows written from a topic and from parquet"
        " files. An upsert job includes its start, the parsing of JSON, the choice of the newest"
        " record of each key and its bookkeeping; the reference is a MERGE alone.",
    ),
)
BY_NAME = {area.name: area for area in AREAS}
