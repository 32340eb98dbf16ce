"""Services of a node that look at something again and again: they do, and go on after a failure."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from tests.patience import SECONDS_MAX

from ottla.metadata.image import EMPTY
from ottla.node.broker import telemetry
from ottla.node.broker.telemetry import Telemetry
from ottla.node.context import NodeContext
from ottla.node.security.tls_reload import TlsReload
from ottla.observability.client_metrics import ClientMetrics
from ottla.observability.client_telemetry import ClientTelemetry
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.supervisor import Service
from ottla.security.tls import TlsContexts
from ottla.security.tls_settings import BadTls


def run_until(service: Service, is_done: Callable[[], bool]) -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(service.run(lambda: None))
        async with asyncio.timeout(SECONDS_MAX):
            while not is_done() and not task.done():  # noqa: ASYNC110 - no one event
                await asyncio.sleep(0.005)
        assert not task.done(), "it runs until it is cancelled"
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(scenario())


def test_silent_telemetry_clients_are_evicted_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert telemetry.EVICT_S == 60
    monkeypatch.setattr(telemetry, "EVICT_S", 0.005)
    monkeypatch.setattr(telemetry, "forwards_client_metrics", lambda config: False)
    evicted: list[str] = []
    monkeypatch.setattr(ClientTelemetry, "evict", lambda self, now: evicted.append("clients"))
    monkeypatch.setattr(ClientMetrics, "evict", lambda self, now: evicted.append("series"))
    config = SimpleNamespace(telemetry_max_bytes=1 << 20, ottla_metrics_listener=None)
    context = SimpleNamespace(
        loaded=SimpleNamespace(broker=config),
        ports=SimpleNamespace(clock=SystemClock(), random=SystemRandom()),
        close_hooks=set(),
    )
    service = Telemetry(cast(NodeContext, context), lambda: EMPTY)
    assert service.handlers is not None  # a client has asked
    run_until(service, lambda: len(evicted) >= 4)
    assert evicted[:4] == ["clients", "series"] * 2


class Files:
    """TLS contexts whose files change, and cannot be used at first."""

    settings = SimpleNamespace(files=("key.pem",))

    def __init__(self, *, is_changed: bool) -> None:
        self.is_changed = is_changed
        self.reloads = 0

    def has_changed_files(self) -> bool:
        return self.is_changed

    def reload(self) -> None:
        self.reloads += 1
        if self.reloads == 1:
            raise BadTls("half a file")


def test_tls_watcher_reloads_changed_files_and_survives_bad_ones() -> None:
    changed, unchanged = Files(is_changed=True), Files(is_changed=False)
    contexts = [cast(TlsContexts, changed), cast(TlsContexts, unchanged)]
    run_until(TlsReload(contexts, interval_ms=5), lambda: changed.reloads >= 3)
    assert unchanged.reloads == 0
