"""Nodes and clusters for tests: real connections, temporary directories, and faults on demand.

Contents: a pytest plugin (`plugin.py`, active once ``ottla`` is installed) and the context managers
under it, for use without pytest. Not here: simulated time or disks; those are in the repository's
`simulation`.

    from ottla.testing import run_cluster

    with run_cluster(3, processes=True) as cluster:
        cluster.kill(1)

Start reading at `cluster.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.apache_kafka import ApacheKafka as ApacheKafka
    from ottla.testing.apache_kafka import NoApacheKafka as NoApacheKafka
    from ottla.testing.apache_kafka import run_apache_kafka as run_apache_kafka
    from ottla.testing.cluster import Cluster as Cluster
    from ottla.testing.cluster import run_cluster as run_cluster
    from ottla.testing.cluster import run_node as run_node
    from ottla.testing.hosts import NeedsProcesses as NeedsProcesses
    from ottla.testing.hosts import NodeFailed as NodeFailed
    from ottla.testing.kafka_container import KafkaContainer as KafkaContainer

_HOMES = {
    "ApacheKafka": "ottla.testing.apache_kafka",
    "NoApacheKafka": "ottla.testing.apache_kafka",
    "run_apache_kafka": "ottla.testing.apache_kafka",
    "KafkaContainer": "ottla.testing.kafka_container",
    "Cluster": "ottla.testing.cluster",
    "run_cluster": "ottla.testing.cluster",
    "run_node": "ottla.testing.cluster",
    "NeedsProcesses": "ottla.testing.hosts",
    "NodeFailed": "ottla.testing.hosts",
}


def __getattr__(name: str) -> object:
    # pytest imports this package in every run of a project that has ottla installed: a node's
    # modules are loaded when a test first uses one, not before.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
