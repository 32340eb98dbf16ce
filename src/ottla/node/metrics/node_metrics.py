"""The metrics of one node: counters, gauges and the pages that show them.

/metrics   everything, as Prometheus reads it
/healthz   200 while the node runs and its metadata directory is online
/readyz    200 once the node serves its roles; before that 503 and what is missing
/groups/NAME/explain   why a group coordinated here rebalanced, and what it waits for (JSON)
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.config.addresses import parse_host_port
from ottla.config.generated import BrokerConfig
from ottla.controller.probe_loop import ProbeCounts
from ottla.metadata.image import Image
from ottla.node.context import NodeContext
from ottla.node.metrics.gauges import (
    Hosted,
    HostedLog,
    ScrubCounts,
    broker_families,
    cluster_families,
    controller_families,
    disk_families,
    isr_families,
    partition_families,
    probe_families,
    quorum_families,
    recovery_families,
    scrub_families,
    walk_hosted,
)
from ottla.node.metrics.meters import Meters
from ottla.node.metrics.otlp_endpoints import CLIENT_PREFIX, forwards_client_metrics
from ottla.observability.exposition import CONTENT_TYPE, Family, Registry, Source, counter, gauge
from ottla.observability.http import Page, SlicedPage, plain
from ottla.observability.http_service import Credentials, HttpService
from ottla.observability.process_metrics import ProcessMetrics
from ottla.protocol.types import NodeId, TopicPartition
from ottla.raft.core.view import QuorumView
from ottla.runtime.ports import Address

if TYPE_CHECKING:
    from ottla.observability.otlp_exporter import OtlpExporter

# The values of Kafka's BrokerState that are used here.
_STARTING: Final = 1
_RUNNING: Final = 3


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The functions that the gauges of a node call. None for a role that it does not have."""

    node_id: NodeId
    image: Callable[[], Image]
    quorum: Callable[[], QuorumView]
    has_failed_disk: Callable[[], bool]
    is_active_controller: Callable[[], bool] | None = None
    hosted: Callable[[], Iterable[tuple[Hosted, HostedLog]]] | None = None
    is_unfenced: Callable[[], bool] | None = None
    isr_changes: Callable[[], tuple[int, int]] = lambda: (0, 0)
    disk_sizes: Callable[[], Mapping[TopicPartition, int]] = dict
    scrubbed: Callable[[], ScrubCounts] = ScrubCounts
    unclean_elections: Callable[[], int] = lambda: 0
    probe_counts: Callable[[], ProbeCounts] = ProbeCounts
    refusals: Callable[[], int] = lambda: 0
    recovery_cuts: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0)
    sources: tuple[Source, ...] = ()
    """Parts of the node that have metrics of their own."""


class NodeMetrics(msgspec.Struct, frozen=True):
    """The sources of metrics of a node, and their pages."""

    meters: Meters
    view: NodeView

    def registry(self) -> Registry:
        """Return all sources."""
        sources: list[Source] = [
            self.meters.requests.collect,
            self.meters.topics.collect,
            self.meters.loop.collect,
            self.meters.quorum.collect,
            self.meters.channel.collect,
            ProcessMetrics().collect,
            self._quorum,
            *self.view.sources,
        ]
        if self.view.is_active_controller is not None:
            sources.append(self._controller)
        if self.view.hosted is not None:
            sources.append(self._broker)
        return Registry(sources)

    def pages(self) -> Mapping[str, Callable[[], Page | SlicedPage]]:
        """Return the pages by path."""
        registry = self.registry()
        return {
            "/metrics": lambda: SlicedPage(CONTENT_TYPE, registry.pieces()),
            "/healthz": self._health,
            "/readyz": self._readiness,
        }

    def _quorum(self) -> Iterable[Family]:
        yield from quorum_families(self.view.quorum(), self.meters.leader_changes)
        yield counter(
            "ottla_quorum_connections_refused_total",
            "Connections to other replicas of the quorum that were refused.",
            self.view.refusals(),
        )
        image = self.view.image()
        name = "kafka_server_brokermetadatametrics_last_applied_record_"
        yield gauge(f"{name}offset", "The metadata read.", int(image.provenance.offset))
        time = int(image.provenance.timestamp)
        yield gauge(f"{name}timestamp", "When it was written, in ms since the epoch.", time)

    def _controller(self) -> Iterable[Family | None]:
        assert self.view.is_active_controller is not None
        is_active = self.view.is_active_controller()
        unclean = self.view.unclean_elections()
        yield from controller_families(
            self.view.image(), is_active=is_active, unclean_elections=unclean
        )
        yield from probe_families(self.view.probe_counts())

    def _broker(self) -> Iterable[Family | None]:
        assert self.view.hosted is not None
        image, node_id = self.view.image(), self.view.node_id
        counts, rows = yield from walk_hosted(image, node_id, self.view.hosted())
        yield from broker_families(counts)
        yield from partition_families(rows)
        yield from cluster_families(image, node_id, rows)
        yield from isr_families(*self.view.isr_changes())
        yield from disk_families(self.view.disk_sizes())
        yield from scrub_families(self.view.scrubbed())
        yield from recovery_families(*self.view.recovery_cuts())
        is_running = self.view.is_unfenced is not None and self.view.is_unfenced()
        yield gauge(
            "kafka_server_kafkaserver_brokerstate",
            "1 starting or fenced, 3 running.",
            _RUNNING if is_running else _STARTING,
        )

    # -- health ----------------------------------------------------------------

    def _health(self) -> Page:
        if self.view.has_failed_disk():
            return plain(503, "the metadata log's directory has failed")
        return plain(200, "ok")

    def _readiness(self) -> Page:
        missing = list(self._missing())
        return plain(503, "; ".join(missing)) if missing else plain(200, "ready")

    def _missing(self) -> Iterable[str]:
        if self.view.has_failed_disk():
            yield "the metadata log's directory has failed"
        if self.view.quorum().leader_id is None:
            yield "no leader of the metadata quorum is known"
        if self.view.is_unfenced is not None and not self.view.is_unfenced():
            yield "the broker is fenced"


def build_metrics(
    context: NodeContext,
    view: NodeView,
    otlp: "OtlpExporter | None",
    group_page: Callable[[str], Page] | None,
) -> HttpService | None:
    """Return the service of the pages; None where ``ottla.metrics.listener`` is not set.

    ``otlp`` exports the same metrics, if it is given. ``group_page`` serves the pages below
    /groups/; None on a node that is no broker.
    """
    if otlp is not None:
        view = msgspec.structs.replace(view, sources=(*view.sources, otlp.collect))
        if context.loaded.broker.ottla_otlp_metrics_enable:
            # Metrics of clients are forwarded as they are.
            is_forwarded = forwards_client_metrics(context.loaded.broker)
            left_out = (CLIENT_PREFIX,) if is_forwarded else ()
            otlp.export_registry(NodeMetrics(context.meters, view).registry(), left_out)
    text = context.loaded.broker.ottla_metrics_listener
    if text is None:
        return None
    at = parse_host_port(text)
    pages = NodeMetrics(context.meters, view).pages()
    trees = {} if group_page is None else {"/groups/": group_page}
    return HttpService(
        context.ports.network,
        Address(at.host, at.port),
        pages,
        trees=trees,
        tls=context.security.metrics_tls,
        credentials=_credentials(context.loaded.broker),
    )


def _credentials(config: BrokerConfig) -> Credentials | None:
    user, password = config.ottla_metrics_user, config.ottla_metrics_password
    token = config.ottla_metrics_bearer_token
    if user is None and password is None and token is None:
        return None
    return Credentials(
        user,
        None if password is None else password.reveal(),
        None if token is None else token.reveal(),
    )
