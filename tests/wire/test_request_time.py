"""Request time of a user without rights: requests between nodes count against its quota, too."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from authorized_session import authorized_node, logged_in
from secure_node import SecureNode

from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

REQUESTS = 5
WINDOW_S = 1


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    secure = authorized_node(tmp_path_factory.mktemp("time"))
    running = secure.start()
    try:
        asyncio.run(_limit(secure, "alice"))
        yield secure
    finally:
        running.stop()


async def _limit(secure: SecureNode, *users: str) -> None:
    entries = [
        RequestEntryData(
            [RequestEntityData("user", user)], [OpData("request_percentage", 0.0001, False)]
        )
        for user in users
    ]
    async with logged_in(secure, "node") as connection:
        reply: Any = await connection.send(AlterClientQuotasRequest(entries))
        assert [row.error_code for row in reply.entries] == [0] * len(users)


def seconds_of_markers(secure: SecureNode, user: str) -> float:
    """Return how long requests between nodes take that a user sends one after the other."""

    async def body() -> float:
        async with logged_in(secure, user) as connection:
            began = time.monotonic()
            for _ in range(REQUESTS):
                await connection.send(WriteTxnMarkersRequest())
            return time.monotonic() - began

    return asyncio.run(body())


def test_request_between_nodes_throttles_a_user_that_may_not_send_it(secure: SecureNode) -> None:
    assert seconds_of_markers(secure, "alice") > (REQUESTS - 2) * WINDOW_S
