"""Requests that list very many names do not keep other clients waiting, and write few log lines.

A process of its own pings the node meanwhile. That the 99th percentile stays below 100 ms is a
promise for a quiet machine, which the nightly test keeps for every list of every API.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from authorized_session import authorized_node, logged_in
from large_requests import large, lists_of
from ping_process import Pings, p99
from secure_process import SecureProcess, secure_process
from tests.patience import SECONDS_MAX

from ottla.api.surface import SURFACE
from ottla.client.connection import Connection
from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.types import Uuid

NAMES = 50_000
NAMES_NIGHTLY = 200_000
TOPIC_ID = Uuid(b"t" * 16)
STALL_MS_MAX = 1000
P99_MS_MAX = 100
TRIES = 3
LOG_LINES_MAX = 100
USERS = ("alice", "node")
"""A user without any right, and one with all."""

# Served before or outside of the general path, or for nodes alone.
_LEFT_OUT = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
_FIRST = (
    (ApiKey.METADATA, "topics"),
    (ApiKey.PRODUCE, "topic_data"),
    (ApiKey.FETCH, "topics"),
    (ApiKey.OFFSET_FETCH, "groups"),
    (ApiKey.LIST_OFFSETS, "topics"),
    (ApiKey.OFFSET_COMMIT, "topics"),
    (ApiKey.CREATE_TOPICS, "topics"),
    (ApiKey.DELETE_TOPICS, "topics"),
    (ApiKey.CREATE_ACLS, "creations"),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics"),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureProcess]:
    with secure_process(authorized_node(tmp_path_factory.mktemp("long"))) as process:
        yield process


@pytest.fixture(scope="module")
def pings(running: SecureProcess) -> Iterator[Pings]:
    with contextlib.closing(ping(running)) as found:
        yield found


def ping(running: SecureProcess) -> Pings:
    frame = request_frame(RequestHeader(ApiKey.API_VERSIONS, 0, 1, "ping"), ApiVersionsRequest())
    return Pings(running.secure.ports["OPEN"], bytes(frame))


async def _send(connection: Connection, request: Any, version: int) -> None:
    """Send a request and wait for its end: a reply, or a closed connection."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(SECONDS_MAX):
            await connection.send(request, version=version)


def measure(
    running: SecureProcess,
    pings: Pings,
    user: str,
    key: ApiKey,
    path: tuple[str, ...],
    names: int = NAMES,
) -> list[float]:
    """Send a request with many names; return the latencies of pings meanwhile, sorted."""

    async def body() -> list[float]:
        async with logged_in(running.secure, user) as connection:
            version = connection.version_for(key)
            request: Any = large(key, version, path, names, TOPIC_ID)
            if key is ApiKey.METADATA:
                request.allow_auto_topic_creation = False
            pings.take()
            await _send(connection, request, version)
            return pings.take()

    return asyncio.run(body())


def log_lines(running: SecureProcess) -> int:
    return running.log.read_bytes().count(b"\n")


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("key", "name"), _FIRST, ids=[key.name for key, _ in _FIRST])
def test_request_with_very_many_names_neither_stalls_a_node_nor_fills_its_log(
    running: SecureProcess, pings: Pings, user: str, key: ApiKey, name: str
) -> None:
    before = log_lines(running)
    stalls = []
    for _ in range(TRIES):
        stalls.append(measure(running, pings, user, key, (name,))[-1])
        if stalls[-1] < STALL_MS_MAX:
            break
    assert min(stalls) < STALL_MS_MAX
    assert log_lines(running) - before < LOG_LINES_MAX


def every_list() -> Iterator[tuple[ApiKey, tuple[str, ...]]]:
    """Yield every list of every API that a client can send to a broker."""
    for row in SURFACE.values():
        if row.on(Listener.BROKER) is not None and row.is_advertised and row.key not in _LEFT_OUT:
            for path in lists_of(row.key, APIS[row.key].versions[1]):
                yield row.key, path


@pytest.mark.nightly
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("key", "path"),
    list(every_list()),
    ids=[f"{key.name}.{'.'.join(path)}" for key, path in every_list()],
)
def test_ping_is_answered_within_100_ms_beside_every_long_request(
    running: SecureProcess, pings: Pings, user: str, key: ApiKey, path: tuple[str, ...]
) -> None:
    """For a quiet machine."""
    latencies: list[float] = []
    for _ in range(TRIES):
        latencies = measure(running, pings, user, key, path, NAMES_NIGHTLY)
        if p99(latencies) < P99_MS_MAX:
            break
    assert p99(latencies) < P99_MS_MAX
