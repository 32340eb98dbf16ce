"""Runs a console: its listener, its searches, and the end of sessions."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.config.addresses import BadAddress, HttpAddress, parse_http_url
from ottla.console.app import AppSettings, ConsoleApp
from ottla.console.endpoints import Context
from ottla.console.guards import LOOPBACK_NAMES, is_loopback
from ottla.console.search import SearchJobs
from ottla.console.sessions import Sessions, Upstream
from ottla.runtime.asgi_service import AsgiService
from ottla.runtime.worker import ThreadWorker

log = logging.getLogger(__name__)

EXPIRY_S: Final = 60.0
"""How often expired sessions are looked for."""
THREADS: Final = 4
"""Threads that decode records and ask the schema registry."""


class BadConsole(ValueError):
    """A console that cannot be served; the message says why and what to do."""


class ConsoleSettings(msgspec.Struct, frozen=True):
    """The address to listen on, that for browsers, and whether changes are refused."""

    listener: str
    advertised: str | None = None
    is_read_only: bool = False


class BoundConsole(msgspec.Struct, frozen=True):
    """A console whose listener is bound. ``url`` is for browsers."""

    settings: ConsoleSettings
    bound: socket.socket
    url: str
    hosts: frozenset[str]

    @property
    def is_https(self) -> bool:
        """Whether browsers use TLS, by a proxy."""
        return self.url.startswith("https://")


def check_settings(settings: ConsoleSettings, *, needs_login: bool) -> HttpAddress:
    """Return the address to bind. Pure.

    Raises:
        BadConsole: it cannot be parsed, uses TLS, or would show the cluster to the network without
            a login.
    """
    try:
        address = parse_http_url(settings.listener)
    except BadAddress as error:
        raise BadConsole(f"console.listeners: {error}") from error
    if address.is_tls:
        raise BadConsole(
            "console.listeners: https is not served; put a proxy with TLS in front, and set "
            "console.advertised.listeners to its address"
        )
    if not needs_login and not is_loopback(address.address.host):
        raise BadConsole(
            f"console.listeners: {settings.listener} is reachable from other machines, and the "
            "brokers' listener has no login: use 127.0.0.1, or a listener with SASL"
        )
    return address


def bind_console(settings: ConsoleSettings, *, needs_login: bool) -> BoundConsole:
    """Bind the listener. Raises `BadConsole`, OSError."""
    address = check_settings(settings, needs_login=needs_login)
    host = address.address.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, address.address.port), family=family)
    bound.setblocking(False)
    port = bound.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host or socket.gethostname()
    url = settings.advertised or f"http://{shown}:{port}"
    hosts = {host, socket.gethostname().lower(), *LOOPBACK_NAMES}
    if settings.advertised is not None:
        hosts.add(parse_http_url(settings.advertised).address.host.lower())
    return BoundConsole(settings, bound, url.rstrip("/"), frozenset(hosts - {""}))


class ConsoleService:
    """`Service`: a console."""

    name = "console"

    def __init__(self, console: BoundConsole, upstream: Upstream) -> None:
        self._console = console
        worker = ThreadWorker("console", THREADS)
        ports = upstream.ports
        self._jobs = SearchJobs(ports.random, worker)
        self._sessions = Sessions(upstream)
        context = Context(
            ports.clock, ports.random, worker, self._jobs, console.settings.is_read_only
        )
        app = ConsoleApp(self._sessions, context, AppSettings(console.hosts, console.is_https))
        self._http = AsgiService("console", app, console.bound)

    @property
    def url(self) -> str:
        """The address for browsers."""
        return self._console.url

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled."""
        if not self._sessions.needs_login:
            log.info(
                "console without login: the brokers' listener has none, so it serves this machine "
                "only url=%s",
                self.url,
            )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._jobs.run(lambda: None))
                tasks.create_task(self._expire())
                await self._http.run(ready)
        finally:
            await self._sessions.close()
            self._console.bound.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_S)
            await self._sessions.drop_expired()
