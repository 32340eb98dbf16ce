"""A console on an event loop in its own thread, and a small HTTP client for it."""

import asyncio
import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.patience import SECONDS_MAX

from ottla.client.cluster import ClientOptions, ClientPorts
from ottla.console.service import ConsoleService, ConsoleSettings, bind_console
from ottla.console.sessions import Upstream
from ottla.formats.registry_client import RegistrySettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.runtime.randomness import SystemRandom


@dataclass(frozen=True)
class Answer:
    """A reply over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningConsole:
    """A console of the brokers at an address; `stop` ends it."""

    def __init__(
        self,
        bootstrap: str,
        *,
        needs_login: bool = False,
        registry: str | None = None,
        is_read_only: bool = False,
        advertised: str | None = None,
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        settings = ConsoleSettings("http://127.0.0.1:0", advertised, is_read_only)
        bound = bind_console(settings, needs_login=needs_login)
        self.port = bound.bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        upstream = Upstream(
            ClientPorts(TcpNetwork(), SystemClock(), SystemRandom()),
            [Address(host, int(port))],
            ClientOptions(client_id="console"),
            needs_login,
            None if registry is None else RegistrySettings((registry,)),
        )
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(bound, upstream), daemon=True)
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)

    def _run(self, bound: Any, upstream: Upstream) -> None:
        async def serve() -> None:
            service = ConsoleService(bound, upstream)
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(service.run(self._ready.set))
                await self._stop.wait()
                serving.cancel()

        try:
            self._loop.run_until_complete(serve())
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        form: bool = False,
        **headers: str,
    ) -> Answer:
        """Send a request; names of headers have underscores in place of dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None
        if body is not None:
            kind = "application/x-www-form-urlencoded" if form else "application/json"
            sent.setdefault("content-type", kind)
            data = (urlencode(body) if form else json.dumps(body)).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, data, sent)
            reply = connection.getresponse()
            return Answer(
                reply.status,
                {name.lower(): value for name, value in reply.getheaders()},
                reply.read(),
            )
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, **headers)

    def api(self, path: str, body: Mapping[str, object] | None = None, **headers: str) -> Any:
        """Return the JSON of a request that must succeed: GET, or POST with a body."""
        method = "GET" if body is None else "POST"
        answer = self.call(method, "/api/v1" + path, body, **headers)
        assert answer.status == 200, answer.text
        return answer.json
