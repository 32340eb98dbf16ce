"""The rules and the application of the schema registry in memory: no sockets, topic or threads."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from ottla.protocol.types import Offset
from ottla.registry.access import Decides
from ottla.registry.http_app import RegistryApp
from ottla.registry.http_call import Identity, RawRequest, Reply
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.entities import RegisterRequest
from ottla.registry.rules.errors import Rejection
from ottla.registry.rules.records import decode_record, encode_record
from ottla.registry.rules.registration import Registration, decide_registration
from ottla.registry.rules.schema_work import Results, WorkNeeded, parse_schema, perform
from ottla.registry.rules.settings import Defaults
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.used_ids import with_used_ids
from ottla.registry.service import LeaderUnreachable, RegistrySettings, SchemaRegistry
from ottla.registry.store import SchemaStore
from ottla.registry.work import SchemaWorker


class MemoryStore(SchemaStore):
    """A store whose log is a list."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.applied = Offset(0)
        self.is_leader = True
        self.is_loaded = True
        self.log: list[tuple[bytes, bytes | None]] = []

    def leads(self) -> bool:
        return self.is_leader

    async def wait_loaded(self, timeout_s: float) -> bool:
        return self.is_loaded

    async def wait_applied(self, offset: Offset, timeout_s: float) -> bool:
        return True

    async def write(self, decide: Callable[[RegistryState], Decision]) -> Decision:
        decision = decide(self.state)
        for record in with_used_ids(self.state, decision.records):
            self.log.append(encode_record(record))
            decoded = decode_record(*self.log[-1])
            assert decoded is not None
            self.state.replay(decoded)
            self.applied = Offset(self.applied + 1)
        return decision


class InlineWorker:
    """Does the work at once."""

    async def run(self, work: Callable[[], Any]) -> Any:
        return work()


class NoLeader:
    """No other node: collects what would be forwarded."""

    def __init__(self) -> None:
        self.requests: list[RawRequest] = []

    async def prepare(self) -> None:
        return

    async def send(self, request: RawRequest) -> Reply:
        self.requests.append(request)
        raise LeaderUnreachable("there is none", is_certain=False)


class Anonymous:
    """Takes the principal from a header, for tests of ACLs."""

    async def identify(
        self, headers: Mapping[str, str], certificate: bytes | None, host: str
    ) -> Identity:
        return Identity(headers.get("x-test-user", "User:ANONYMOUS"), host)


class TestNodes:
    """The addresses of brokers."""

    __test__ = False

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts

    async def has(self, host: str) -> bool:
        return host in self.hosts


class Application:
    """The application and what it is made of."""

    def __init__(
        self,
        access: Decides | None = None,
        settings: RegistrySettings | None = None,
        nodes: TestNodes | None = None,
    ) -> None:
        self.store = MemoryStore()
        self.leader = NoLeader()
        settings = settings or RegistrySettings(Defaults(), timeout_ms=100, cluster_id="c")
        self.registry = SchemaRegistry(
            self.store, SchemaWorker(InlineWorker()), self.leader, access or Decides(), settings
        )
        self.app = RegistryApp(self.registry, Anonymous(), nodes or TestNodes())

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
    ) -> tuple[int, Any]:
        """Send a request; return status and parsed body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        pieces = [b"" if body is None else data]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": pieces.pop(), "more_body": False}

        status, text, _ = await self.exchange(method, path, receive, headers, host)
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, text.decode()

    async def exchange(
        self,
        method: str,
        path: str,
        receive: Callable[[], Awaitable[dict[str, Any]]],
        headers: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
    ) -> tuple[int, bytes, dict[str, str]]:
        """Send a request whose body ``receive`` returns; return status, body and headers."""
        raw_path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": raw_path,
            "raw_path": quote(raw_path, safe="/%:").encode(),
            "query_string": query.encode(),
            "client": (host, 50_000),
            "headers": [
                (name.lower().encode(), value.encode("latin-1"))
                for name, value in (headers or {}).items()
            ],
        }
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        names = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]), names


def record_of(*names: str) -> str:
    """Return a record schema with string fields of these names."""
    fields = [{"name": name, "type": "string", "default": ""} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


class Registry:
    """A state whose decisions are replayed through the bytes of their records."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.log: list[tuple[bytes, bytes | None]] = []

    def apply(self, decision: Decision) -> object:
        for record in with_used_ids(self.state, decision.records):
            self.log.append(encode_record(record))
            decoded = decode_record(*self.log[-1])
            assert decoded is not None
            self.state.replay(decoded)
        return decision.reply

    def register(self, subject: str, text: str = "", **members: object) -> dict:
        normalize = bool(members.pop("normalize", False))
        body = RegisterRequest(schema=text, **members)  # type: ignore[arg-type]
        request = Registration(subject, body, normalize)
        results = Results()
        while True:
            try:
                decision = decide_registration(self.state, request, results)
            except WorkNeeded as needed:
                for item in needed.items:
                    results.add(item, perform(item, parse_schema))
            else:
                return self.apply(decision)  # type: ignore[return-value]

    def reloaded(self, *, is_compacted: bool = False) -> "Registry":
        """Return the registry after a restart, of all records or the last of each key."""
        fresh = Registry()
        log = list(dict(self.log).items()) if is_compacted else self.log
        if is_compacted:
            log = [(key, value) for key, value in log if value is not None]
        for key, value in log:
            record = decode_record(key, value)
            if record is not None:
                fresh.state.replay(record)
        fresh.log = list(log)
        return fresh


def rejected(code: int) -> "pytest.RaisesContext[Rejection]":
    return pytest.raises(Rejection, check=lambda error: error.code == code)
