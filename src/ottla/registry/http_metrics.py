"""Counts the replies of the registry by status, and measures how long they take."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.observability.exposition import Family, Kind, Sample
from ottla.observability.latency import Latency

WINDOW_S: Final = 60.0
QUANTILES: Final = (0.5, 0.99)


class MeasuredApp:
    """An application around another one. Statuses are those that the registry has: a few dozen."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._by_status: dict[int, int] = {}
        self._latency = Latency()
        self._window_began = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def send_counted(message: Any) -> None:  # noqa: ANN401 - ASGI
            if message["type"] == "http.response.start":
                self._add(message["status"], began, loop.time())
            await send(message)

        await self._app(scope, receive, send_counted)

    def _add(self, status: int, began: float, now: float) -> None:
        self._by_status[status] = self._by_status.get(status, 0) + 1
        if now - self._window_began > WINDOW_S:
            self._latency.slide()
            self._window_began = now
        self._latency.add(int((now - began) * 1_000_000))

    def collect(self, prefix: str) -> Iterable[Family]:
        """Yield the metrics."""
        codes = [
            Sample((("code", str(status)),), count)
            for status, count in sorted(self._by_status.items())
        ]
        yield Family(f"{prefix}requests_total", Kind.COUNTER, "Requests by status.", codes)
        quantiles = zip(QUANTILES, self._latency.quantiles(QUANTILES), strict=True)
        samples = [Sample((("quantile", str(q)),), micros / 1e6) for q, micros in quantiles]
        samples.append(Sample((), self._latency.total / 1e6, "_sum"))
        samples.append(Sample((), self._latency.count, "_count"))
        text = "Time to answer a request; quantiles of the last one to two minutes."
        yield Family(f"{prefix}request_duration_seconds", Kind.SUMMARY, text, samples)
