"""The broker that clients are tried against, behind a tap, and the clients themselves."""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from client_aiokafka import AiokafkaClient
from client_confluent import ConfluentClient
from client_contract import Client
from client_drivers import JavaClient, KafkaJsClient, PlatformaticClient
from client_kafka_python import KafkaPythonClient
from client_kcat import KcatClient
from tap import Tap
from tests.patience import SECONDS_MAX

from ottla.client.connection import Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.schema import Message
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.testing import run_node
from ottla.testing.loop_thread import LoopThread

# Where to write which versions were seen, for docs/compatibility.md.
RESULTS = "OTTLA_COMPATIBILITY_DIR"
BOOTSTRAP = "OTTLA_CLIENTS_BOOTSTRAP"
WAIT_MS_MAX = int(SECONDS_MAX * 1000)


@dataclass(frozen=True, slots=True)
class Made:
    """A client to be made when first needed; ``marks`` say what it needs beyond PyPI."""

    make: Callable[[str], Client]
    name: str
    can: frozenset[str]
    codecs: tuple[str, ...]
    marks: tuple[pytest.MarkDecorator, ...] = ()
    reads_in_groups: bool = False

    def param(self, *more: object) -> Any:
        label = "-".join([self.name, *map(str, more)])
        return pytest.param(self, *more, marks=self.marks, id=label)


def _made(kind: Any, *marks: pytest.MarkDecorator) -> Made:
    in_groups = getattr(kind, "reads_in_groups", False)
    return Made(kind, kind.name, kind.can, kind.codecs, marks, in_groups)


ALL = (
    _made(ConfluentClient),
    _made(AiokafkaClient),
    _made(KafkaPythonClient),
    _made(KcatClient, pytest.mark.external),
    _made(KafkaJsClient, pytest.mark.external),
    _made(PlatformaticClient, pytest.mark.external),
    _made(JavaClient, pytest.mark.jvm),
)


@dataclass
class Broker:
    """Whatever the clients talk to. ``direct`` leads past the tap."""

    bootstrap: str
    direct: str
    tap: Tap | None = None
    clients: dict[str, Client] = field(default_factory=dict)

    def ask(self, *requests: Message) -> Any:
        """Return the response to the last of some requests."""
        host, _, port = self.direct.rpartition(":")

        async def talk() -> Any:
            connection = await Connection.open(
                TcpNetwork(), Address(host, int(port)), client_id="test"
            )
            try:
                for request in requests:
                    response = await connection.send(request, timeout_ms=WAIT_MS_MAX)
                return response
            finally:
                await connection.close()

        return asyncio.run(talk())

    def create(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Make a topic without the client under test; return when all of it is served."""
        configs = [CreatableTopicConfig(key, value) for key, value in (config or {}).items()]
        asked = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], configs)], WAIT_MS_MAX)
        created = self.ask(asked).topics[0]
        assert created.error_code == 0, created
        wanted = ListOffsetsRequest(
            -1,
            0,
            [ListOffsetsTopic(name, [ListOffsetsPartition(i, -1, -1) for i in range(partitions)])],
        )
        deadline = time.monotonic() + WAIT_MS_MAX / 1000
        while any(each.error_code for each in self.ask(wanted).topics[0].partitions):
            assert time.monotonic() < deadline

    def demand_groups(self) -> None:
        """Skip where the broker does not say that it has groups."""
        from ottla.protocol.messages.api_versions import ApiVersionsRequest

        reply = self.ask(ApiVersionsRequest("test", "1"))
        if ApiKey.JOIN_GROUP not in {each.api_key for each in reply.api_keys}:
            pytest.skip("the broker does not advertise JoinGroup")


@contextmanager
def _tapped() -> Iterator[Broker]:
    thread, tap = LoopThread("tap"), Tap()
    try:
        port = thread.run(tap.listen(), 10)
        config = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        with run_node(processes=True, config=config) as node:
            host, _, own = node.bootstrap.rpartition(":")
            tap.target = (host, int(own))
            yield Broker(f"127.0.0.1:{port}", node.bootstrap, tap)
    finally:
        thread.run(tap.close(), 10)
        thread.close()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    elsewhere = os.environ.get(BOOTSTRAP)
    if elsewhere:
        outside = Broker(elsewhere, elsewhere)
        yield outside
        _close(outside)
        return
    with _tapped() as tapped:
        yield tapped
        _close(tapped)
        assert tapped.tap is not None
        _write_versions(tapped.tap.seen)


def _close(broker: Broker) -> None:
    for client in broker.clients.values():
        client.close()


def _write_versions(seen: Counter[tuple[str, int, int]]) -> None:
    directory = os.environ.get(RESULTS)
    if directory:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        rows = [[*key, times] for key, times in sorted(seen.items())]
        Path(directory, f"versions-{worker}.json").write_text(json.dumps(rows))


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    made: Made = request.param
    if broker.tap is not None:
        broker.tap.label = made.name
    if made.reads_in_groups:
        broker.demand_groups()
    if made.name not in broker.clients:
        broker.clients[made.name] = made.make(broker.bootstrap)
    return broker.clients[made.name]


_numbers = count()


@pytest.fixture
def topic() -> str:
    """A name that no other test has, in this run or an earlier one."""
    return f"t-{os.getpid()}-{os.urandom(3).hex()}-{next(_numbers)}"
