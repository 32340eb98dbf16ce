"""Progress of a pipeline's flows: batches, rates and lag."""

from collections.abc import Iterable, Mapping

from ottla.cli.connecting.connection_settings import client_properties
from ottla.cli.terminal.progress import duration
from ottla.cli.terminal.rendering import Row
from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.client.client_security import BadClientSecurity
from ottla.client.cluster import NoBroker, Refused
from ottla.client.offset_spec import LATEST
from ottla.protocol.types import TopicPartition
from ottla.security.sasl.credentials import LoginFailed
from ottla.spark.history import Sample, rates, seconds_to_catch_up
from ottla.spark.project import FlowProgress, Project

_PATIENCE_MS = "3000"


def flow_rows(project: Project, bootstrap: str) -> list[Row]:
    """Return a row for each flow; ``lag`` is None if it reads no topic or no broker answers."""
    flows = project.flows()
    ends = latest(flows, bootstrap)
    return [
        {
            "flow": flow.name,
            "batch": flow.batch,
            "records": sum(flow.ends.values()) if flow.ends else None,
            "lag": lag_of(flow, ends),
        }
        for flow in flows
    ]


def latest(flows: Iterable[FlowProgress], bootstrap: str) -> dict[TopicPartition, int]:
    """Return the end offsets of the flows' topics; nothing if brokers do not answer or deny access.

    Progress is only displayed: it must not fail a run.
    """
    asked = {partition: LATEST for flow in flows for partition in flow.ends}
    if not asked:
        return {}
    settings = ClientSettings(
        tuple(bootstrap.split(",")),
        "ottla-pipeline",
        {**client_properties(), "default.api.timeout.ms": _PATIENCE_MS},
    )
    try:
        return client_for(settings).list_offsets(asked, committed=True)
    except (NoBroker, Refused, BadClientSecurity, LoginFailed):
        return {}


def lag_of(flow: FlowProgress, ends: Mapping[TopicPartition, int]) -> int | None:
    """Return the lag of a flow; None if unknown."""
    if not flow.ends or not flow.ends.keys() <= ends.keys():
        return None
    return sum(max(ends[each] - end, 0) for each, end in flow.ends.items())


class Lags:
    """Reports what changed in each flow since the last report."""

    def __init__(self, project: Project, bootstrap: str) -> None:
        self._project = project
        self._bootstrap = bootstrap
        self._seen = {flow.name: flow for flow in project.flows()}
        self._before: dict[str, Sample] = {}

    def samples(self) -> list[Sample]:
        """Return a sample for each flow that has finished a batch since the last call."""
        flows = self._project.flows()
        moved = [flow for flow in flows if self._is_new(flow)]
        ends = latest(moved, self._bootstrap)
        self._seen = {flow.name: flow for flow in flows}
        return [
            Sample(
                flow.finished,
                flow.name,
                flow.batch,
                sum(flow.ends.values()) if flow.ends else None,
                max(flow.finished - flow.started, 0.0) if flow.started else None,
                lag_of(flow, ends),
            )
            for flow in moved
        ]

    def lines(self, samples: Iterable[Sample]) -> list[str]:
        """Return a line for each sample: batch, rate, lag, and the time to catch up."""
        return [self._line(each) for each in samples]

    def _is_new(self, flow: FlowProgress) -> bool:
        before = self._seen.get(flow.name)
        return before is None or before.batch != flow.batch

    def _line(self, sample: Sample) -> str:
        line = f"{sample.flow}: batch {sample.batch}"
        before, self._before[sample.flow] = self._before.get(sample.flow), sample
        speeds = rates([before, sample]) if before is not None else []
        if speeds:
            line += f", {speeds[0][1]:,.0f} records/s"
        if sample.lag is None:
            return line
        line += f", {sample.lag:,} behind"
        if before is None:
            return line
        left = seconds_to_catch_up(sample.lag, before.lag, sample.at - before.at)
        return line if not left else f"{line}, caught up in {duration(left)}"
