"""Progress of a pipeline's flows: batches, rates and lag."""

from collections.abc import Iterable, Mapping

from ottla.cli.connection_settings import client_properties
from ottla.cli.rendering import Row
from ottla.client.client_security import BadClientSecurity
from ottla.client.cluster import NoBroker, Refused
from ottla.pipeline.broker import LATEST, client_for
from ottla.pipeline.options import ClientSettings
from ottla.pipeline.project import FlowProgress, Project
from ottla.protocol.types import TopicPartition
from ottla.runtime.ports import Clock
from ottla.security.sasl.credentials import LoginFailed

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

    def __init__(self, project: Project, bootstrap: str, clock: Clock) -> None:
        self._project = project
        self._bootstrap = bootstrap
        self._clock = clock
        self._seen = {flow.name: flow for flow in project.flows()}
        self._at = clock.monotonic()

    def lines(self) -> list[str]:
        """Return a line for each flow that has finished a batch."""
        flows = self._project.flows()
        now = self._clock.monotonic()
        seconds = max(now - self._at, 1) / 1000
        moved = [flow for flow in flows if self._is_new(flow)]
        ends = latest(moved, self._bootstrap)
        lines = [self._line(flow, seconds, lag_of(flow, ends)) for flow in moved]
        self._seen = {flow.name: flow for flow in flows}
        self._at = now
        return lines

    def _is_new(self, flow: FlowProgress) -> bool:
        before = self._seen.get(flow.name)
        return before is None or before.batch != flow.batch

    def _line(self, flow: FlowProgress, seconds: float, lag: int | None) -> str:
        line = f"{flow.name}: batch {flow.batch}"
        if flow.ends:
            before = self._seen.get(flow.name)
            began = sum(before.ends.values()) if before is not None else 0
            line += f", {(sum(flow.ends.values()) - began) / seconds:,.0f} records/s"
        return line if lag is None else f"{line}, {lag:,} behind"
