"""The queries about brokers of three dashboards: Strimzi's Kafka, KRaft and kafka-exporter ones.

Written down by what they compute: the metric, the labels that they select by, and the functions
around it. Queries about containers, volumes and the JVM are left out.
"""

NAMESPACE, CLUSTER = "kafka", "ottla"
_CLUSTER = f'namespace="{NAMESPACE}",strimzi_io_cluster="{CLUSTER}"'
_POD = f'kubernetes_pod_name=~"{CLUSTER}-.*"'
_NODE = f"{_CLUSTER},{_POD}"
_NAMED = f'namespace="{NAMESPACE}",{_POD},strimzi_io_name="{CLUSTER}-kafka"'
_TOPIC = f'{_CLUSTER},topic=~".+",topic!="",{_POD}'
_EXPORTED = f'topic=~".*", namespace=~"{NAMESPACE}"'
_GROUP = f'consumergroup=~".*",{_EXPORTED}'


def labels_of(node_id: int) -> dict[str, str]:
    """Return the labels that the dashboards expect of a target, as Strimzi's scrape adds them."""
    return {
        "namespace": NAMESPACE,
        "strimzi_io_cluster": CLUSTER,
        "strimzi_io_name": f"{CLUSTER}-kafka",
        "kubernetes_pod_name": f"{CLUSTER}-kafka-{node_id}",
        "container": "kafka",
    }


def _sum(metric: str, labels: str = _CLUSTER) -> str:
    return f"sum({metric}{{{labels}}})"


def _rate(metric: str, labels: str) -> str:
    return f"sum(irate({metric}{{{labels}}}[5m]))"


def _by_node(inner: str) -> str:
    return f"sum({inner}) by (kubernetes_pod_name)"


_TOPIC_COUNTERS = (
    "bytesin",
    "bytesout",
    "messagesin",
    "totalproducerequests",
    "failedproducerequests",
    "totalfetchrequests",
    "failedfetchrequests",
)
_IDLE = (
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
)
_DISK = "kafka_server_kafkaserver_linux_disk"

KAFKA = [
    f"count(kafka_server_replicamanager_leadercount{{{_CLUSTER}}})",
    _sum("kafka_controller_kafkacontroller_activecontrollercount"),
    _rate("kafka_controller_controllerstats_uncleanleaderelections_total", _CLUSTER),
    _sum("kafka_server_replicamanager_partitioncount"),
    _sum("kafka_server_replicamanager_underreplicatedpartitions"),
    _sum("kafka_cluster_partition_atminisr"),
    _sum("kafka_cluster_partition_underminisr"),
    _sum("kafka_controller_kafkacontroller_offlinepartitionscount"),
    f"kafka_cluster_partition_replicascount{{{_NODE}}}",
    _by_node(f'process_open_fds{{namespace="{NAMESPACE}",{_POD},container="kafka"}}'),
    *(_rate(f"kafka_server_brokertopicmetrics_{name}_total", _TOPIC) for name in _TOPIC_COUNTERS),
    *(_by_node(f"{name}{{{_NODE}}}*100") for name in _IDLE),
    *(_by_node(f"irate({_DISK}_{name}_bytes{{{_NODE}}}[5m])") for name in ("write", "read")),
    f"sum(kafka_server_socket_server_metrics_connection_count{{{_NODE}}})"
    " by (kubernetes_pod_name, listener)",
    f'kafka_log_log_size{{{_NODE},topic=~".+",partition=~".*"}}',
]

_RAFT = "kafka_server_raftmetrics"
_CHANNEL = "kafka_server_raftchannelmetrics"

KRAFT = [
    *(
        _by_node(f"{_RAFT}_{name}{{{_NODE}}}")
        for name in (
            "append_records_rate",
            "commit_latency_avg",
            "current_leader",
            "current_vote",
            "current_epoch",
        )
    ),
    *(
        _by_node(f"{_RAFT}_{name}{{{_NAMED}}}")
        for name in ("fetch_records_rate", "high_watermark", "log_end_offset")
    ),
    f"max({_RAFT}_current_state) by (kubernetes_pod_name, current_state)",
    *(
        _by_node(f"irate({_CHANNEL}_{name}_total{{{_NODE}}}[5m])")
        for name in ("incoming_byte", "outgoing_byte", "request", "response")
    ),
]

EXPORTER = [
    f"kafka_broker_info{{{_CLUSTER}}}",
    f"count(kafka_topic_partitions{{{_EXPORTED}}})",
    _sum("kafka_topic_partitions", _EXPORTED),
    _sum("kafka_topic_partition_replicas", _EXPORTED),
    _sum("kafka_topic_partition_in_sync_replica", _EXPORTED),
    _sum("kafka_topic_partition_under_replicated_partition", _EXPORTED),
    _sum("kafka_cluster_partition_atminisr", _EXPORTED),
    _sum("kafka_cluster_partition_underminisr", _EXPORTED),
    f"sum(kafka_topic_partition_leader_is_preferred{{{_EXPORTED}}} < bool 1)",
    f"sum(rate(kafka_topic_partition_current_offset{{{_EXPORTED}}}[5m])) by (topic)",
    f"sum(delta(kafka_consumergroup_current_offset{{{_GROUP}}}[5m])/300) by (consumergroup, topic)",
    f"sum(kafka_consumergroup_lag{{{_GROUP}}}) by (consumergroup, topic)",
    f"sum(kafka_consumergroup_current_offset{{{_GROUP}}}) by (consumergroup,partition,topic)",
    f"sum(kafka_consumergroup_lag{{{_GROUP}}}) by (consumergroup,partition,topic)",
    f"sum(kafka_topic_partitions{{{_EXPORTED}}}) by (topic)",
    f"sum(kafka_topic_partition_current_offset{{{_EXPORTED}}}) by (partition,topic)",
    f"sum(kafka_topic_partition_oldest_offset{{{_EXPORTED}}}) by (partition,topic)",
]
