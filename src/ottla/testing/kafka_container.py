"""A replacement for ``testcontainers.kafka.KafkaContainer`` without a container.

    from ottla.testing import KafkaContainer

    with KafkaContainer() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})

It has the methods of testcontainers that concern a broker; those about images and networks are
accepted and have no effect. ``KAFKA_*`` variables are settings, as in Apache Kafka's image.
"""

from contextlib import ExitStack
from types import TracebackType

from ottla.config.properties import key_of_variable
from ottla.testing.cluster import Cluster, run_node

PORT = 9093
"""The port that testcontainers exposes; here a free one stands for it."""
_PLANNED = (
    "listener",
    "advertised.",
    "controller.",
    "process.roles",
    "node.id",
    "broker.id",
    "log.dirs",
    "zookeeper.",
    "inter.broker.listener.name",
    "cluster.id",
)
"""Settings of addresses and roles, which a container needs and this node has already."""
_OF_THE_JVM = ("KAFKA_HEAP", "KAFKA_JVM", "KAFKA_LOG4J")


class KafkaContainer:
    """One node, started by `start` or a ``with`` statement. Options of the image are ignored."""

    def __init__(self, image: str = "", port: int = PORT, **_options: object) -> None:
        self.image = image
        self.port = port
        self._config: dict[str, str] = {}
        self._stack = ExitStack()
        self._cluster: Cluster | None = None

    # -- before the start --------------------------------------------------------

    def with_env(self, key: str, value: str) -> "KafkaContainer":
        """Set a variable; ``KAFKA_*`` ones are settings of the broker, others have no effect."""
        if key.startswith("KAFKA_") and not key.startswith(_OF_THE_JVM):
            self._config[key_of_variable(key)] = value
        return self

    def with_envs(self, **variables: str) -> "KafkaContainer":
        """Set several variables."""
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_kraft(self) -> "KafkaContainer":
        """Return self: there is always a KRaft quorum."""
        return self

    def with_cluster_id(self, cluster_id: str) -> "KafkaContainer":
        """Return self: every node has a new cluster id."""
        return self

    def with_exposed_ports(self, *ports: object) -> "KafkaContainer":
        """Return self: the listener has a free port."""
        return self

    def with_name(self, name: str) -> "KafkaContainer":
        """Return self."""
        return self

    # -- life ----------------------------------------------------------------------

    def start(self, timeout: float = 30) -> "KafkaContainer":
        """Start the node and return self; it serves then."""
        config = {key: value for key, value in self._config.items() if not key.startswith(_PLANNED)}
        self._cluster = self._stack.enter_context(run_node(config=config))
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop the node and delete its data."""
        self._cluster = None
        self._stack.close()

    def __enter__(self) -> "KafkaContainer":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- where it is ---------------------------------------------------------------

    def get_bootstrap_server(self) -> str:
        """Return the address for ``bootstrap.servers``."""
        return self._running().bootstrap

    def get_container_host_ip(self) -> str:
        """Return the host."""
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int = PORT) -> int:
        """Return the port."""
        return int(self.get_bootstrap_server().rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return what the node printed: nothing, its log goes to Python's logging."""
        return b"", b""

    def _running(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("KafkaContainer is not started: call start(), or use it in `with`")
        return self._cluster
