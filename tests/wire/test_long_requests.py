"""Requests that list very many names do not keep other clients waiting, and write few log lines.

A process of its own pings the node meanwhile, and leaves out the time in which other processes had
the cores. The longest ping takes less than 100 ms: a promise that the nightly test checks for
every list of every API. On a busy machine a ping may count more than one turn of the event loop, so
the best of three tries counts.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from authorized_session import authorized_node, logged_in
from large_requests import large, lists_of
from ping_process import Pings
from secure_node import SecureNode
from secure_process import SecureProcess, secure_process
from tests.patience import SECONDS_MAX

from ottla.api.surface.table import SURFACE
from ottla.client.connection import Connection
from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.schema import Message
from ottla.protocol.types import Uuid

NAMES = 50_000
NAMES_NIGHTLY = 200_000
TOPIC_ID = Uuid(b"t" * 16)
STALL_MS_MAX = 1000
PING_MS_MAX = 100
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


class Pinged(NamedTuple):
    """A node in its own process, and the process that pings it."""

    node: SecureProcess
    pings: Pings


@contextlib.contextmanager
def pinged(secure: SecureNode) -> Iterator[Pinged]:
    """Run a node, and ping it."""
    frame = request_frame(RequestHeader(ApiKey.API_VERSIONS, 0, 1, "ping"), ApiVersionsRequest())
    with (
        secure_process(secure) as node,
        contextlib.closing(Pings(secure.ports["OPEN"], bytes(frame), node.pid)) as pings,
    ):
        yield Pinged(node, pings)


@pytest.fixture(scope="module")
def authorized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pinged]:
    with pinged(authorized_node(tmp_path_factory.mktemp("long"))) as running:
        yield running


@pytest.fixture(scope="module")
def unrestricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pinged]:
    """A node without an authorizer: everybody may do everything."""
    with pinged(SecureNode(tmp_path_factory.mktemp("open"))) as running:
        yield running


async def _send(connection: Connection, request: Any, version: int) -> None:
    """Send a request and wait for its end: a reply, or a closed connection."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(SECONDS_MAX):
            await connection.send(request, version=version)


@functools.lru_cache(maxsize=1)
def request_of(key: ApiKey, version: int, path: tuple[str, ...], names: int) -> Message:
    """Return a request with many names; the last one is kept for the next user."""
    request: Any = large(key, version, path, names, TOPIC_ID)
    if key is ApiKey.METADATA:
        request.allow_auto_topic_creation = False
    return request


def measure(
    running: Pinged, user: str, key: ApiKey, path: tuple[str, ...], names: int = NAMES
) -> list[float]:
    """Send a request with many names; return the latencies of pings meanwhile, sorted."""

    async def body() -> list[float]:
        async with logged_in(running.node.secure, user) as connection:
            connection.versions = {}  # attackers send versions that ApiVersions does not list
            version = APIS[key].versions[1]
            request = request_of(key, version, path, names)
            running.pings.take()
            await _send(connection, request, version)
            return running.pings.take()

    return asyncio.run(body())


def log_lines(running: Pinged) -> int:
    return running.node.log.read_bytes().count(b"\n")


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("key", "name"), _FIRST, ids=[key.name for key, _ in _FIRST])
def test_request_with_very_many_names_neither_stalls_a_node_nor_fills_its_log(
    authorized: Pinged, user: str, key: ApiKey, name: str
) -> None:
    before = log_lines(authorized)
    stalls = []
    for _ in range(TRIES):
        stalls.append(measure(authorized, user, key, (name,))[-1])
        if stalls[-1] < STALL_MS_MAX:
            break
    assert min(stalls) < STALL_MS_MAX
    assert log_lines(authorized) - before < LOG_LINES_MAX


@pytest.mark.parametrize("version", [12, 17], ids=["names", "ids"])
def test_small_fetch_of_a_session_with_very_many_partitions_does_not_stall_a_node(
    authorized: Pinged, version: int
) -> None:
    topics = [
        FetchTopic(
            topic=f"n{number}" if version < 13 else "",
            topic_id=Uuid((number + 1).to_bytes(16, "big")),
            partitions=[FetchPartition(partition=0)],
        )
        for number in range(NAMES)
    ]

    async def body() -> float:
        async with logged_in(authorized.node.secure, "alice") as connection:
            first = FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics)
            session_id = (await connection.send(first, version=version)).session_id
            assert session_id
            longest = []
            for epoch in range(1, TRIES + 1):
                authorized.pings.take()
                again = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch)
                reply = await connection.send(again, version=version)
                assert len(reply.responses) == NAMES
                longest.append(authorized.pings.take()[-1])
            return min(longest)

    assert asyncio.run(body()) < PING_MS_MAX


def every_list() -> Iterator[tuple[ApiKey, tuple[str, ...]]]:
    """Yield every list of every API that a client can send to a broker."""
    for row in SURFACE.values():
        if row.on(Listener.BROKER) is not None and row.is_advertised and row.key not in _LEFT_OUT:
            for path in lists_of(row.key, APIS[row.key].versions[1]):
                yield row.key, path


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("node", "user"),
    [("authorized", "alice"), ("authorized", "node"), ("unrestricted", "alice")],
    ids=["no_rights", "all_rights", "no_authorizer"],
)
@pytest.mark.parametrize(
    ("key", "path"),
    list(every_list()),
    ids=[f"{key.name}.{'.'.join(path)}" for key, path in every_list()],
)
def test_ping_is_answered_within_100_ms_beside_every_long_request(
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
    node: str,
    user: str,
    key: ApiKey,
    path: tuple[str, ...],
) -> None:
    running: Pinged = request.getfixturevalue(node)
    longest: list[float] = []
    for _ in range(TRIES):
        longest.append(measure(running, user, key, path, NAMES_NIGHTLY)[-1])
        if longest[-1] < PING_MS_MAX:
            break
    record_property("longest_ms", min(longest))
    assert min(longest) < PING_MS_MAX


ROWS = 10_000
"""As many as one change of the cluster may write records."""


def topics(prefix: str, count: int, partitions: int) -> Message:
    names = (f"{prefix}{number}" for number in range(count))
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1) for name in names])


def scram_users(prefix: str) -> Message:
    upsertions = [
        ScramCredentialUpsertion(f"{prefix}{number}", 1, 4096, b"s" * 16, b"p" * 32)
        for number in range(ROWS)
    ]
    return AlterUserScramCredentialsRequest([], upsertions)


def quotas(prefix: str) -> Message:
    entries = [
        RequestEntryData(
            [RequestEntityData("user", f"{prefix}{number}")], [OpData("consumer_byte_rate", 1e9)]
        )
        for number in range(ROWS)
    ]
    return AlterClientQuotasRequest(entries)


def entries_of_acls(prefix: str) -> Message:
    return CreateAclsRequest(
        [AclCreation(2, f"{prefix}{number}", 3, "User:bob", "*", 3, 3) for number in range(ROWS)]
    )


CHANGES: dict[str, Callable[[str], Message]] = {
    "users": scram_users,
    "quotas": quotas,
    "acls": entries_of_acls,
    "one_topic": lambda prefix: topics(prefix, 1, ROWS - 1000),
    "topics": lambda prefix: topics(prefix, ROWS - 1, 1),
}


@pytest.mark.nightly
@pytest.mark.parametrize("change", CHANGES)
def test_ping_is_answered_within_100_ms_beside_every_long_change(
    tmp_path: Path, record_property: Callable[[str, object], None], change: str
) -> None:
    """Each try adds its rows to those of the tries before."""

    async def body(running: Pinged) -> list[float]:
        longest: list[float] = []
        async with logged_in(running.node.secure, "node") as connection:
            for number in range(TRIES):
                request = CHANGES[change](f"{change}-{number}-")
                running.pings.take()
                async with asyncio.timeout(SECONDS_MAX):
                    reply = await connection.send(request)
                assert not any(getattr(row, "error_code", 0) for row in rows_of(reply))
                await asyncio.sleep(2)  # partitions are created after the reply
                longest.append(running.pings.take()[-1])
                if longest[-1] < PING_MS_MAX:
                    break
        return longest

    with pinged(authorized_node(tmp_path)) as running:
        longest = asyncio.run(body(running))
    record_property("longest_ms", longest)
    assert min(longest) < PING_MS_MAX, longest


def rows_of(reply: Message) -> list[Any]:
    """Return the rows of a reply to a change."""
    names = ("topics", "results", "entries")
    return next(getattr(reply, name) for name in names if hasattr(reply, name))
