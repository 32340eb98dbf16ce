"""Finds a broker that answers, among several addresses and in limited time.

Connections are opened one after the other; the next one begins when the one before has failed, or
has not answered for `STAGGER_S`. The first that is open is used and the others are given up, so
that a machine that is switched off costs a moment and not its whole timeout.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ottla.client.connection import Connection
from ottla.protocol.faults import RequestTimedOut
from ottla.runtime.ports import Address
from ottla.security.sasl.credentials import LoginFailed

STAGGER_S: Final = 0.2

Connect = Callable[[Address], Awaitable[Connection]]


class _Attempts:
    """What the attempts to connect have led to."""

    def __init__(self, connect: Connect, failures: dict[Address, str]) -> None:
        self._connect = connect
        self._failures = failures
        self.connection: Connection | None = None
        self.error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether the other addresses need not be tried."""
        return self.connection is not None or self.error is not None

    async def make(self, address: Address) -> None:
        """Try one address."""
        try:
            connection = await self._connect(address)
            self.connection = self.connection or connection
        except LoginFailed as error:
            self.error = error  # as Kafka's clients: another broker knows the same users
        except (OSError, RequestTimedOut) as error:
            self._failures[address] = reason_of(error)
        except Exception as error:  # noqa: BLE001 - raised to the caller, below
            self.error = error


async def open_first(
    addresses: Iterable[Address], connect: Connect, failures: dict[Address, str], limit_s: float
) -> Connection | None:
    """Return a connection to the first address that answers; None if none does within ``limit_s``.

    The reasons are added to ``failures``, by address.

    Raises:
        LoginFailed: a broker refused the credentials.
        UnsupportedVersion: as `Connection.open`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    waiting, attempts = deque(addresses), _Attempts(connect, failures)
    pending: dict[asyncio.Task[None], Address] = {}
    async with asyncio.TaskGroup() as tasks:
        while (waiting or pending) and not attempts.is_over:
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            if waiting:
                address = waiting.popleft()
                pending[tasks.create_task(attempts.make(address))] = address
            pause_s = min(left_s, STAGGER_S) if waiting else left_s
            done, _ = await asyncio.wait(
                pending, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                del pending[task]
        for task in pending:
            task.cancel()
    if attempts.connection is None and attempts.error is not None:
        raise attempts.error
    if attempts.connection is None:
        for address in (*pending.values(), *waiting):
            failures.setdefault(address, f"no answer within {limit_s:g} s")
    return attempts.connection


def reason_of(error: Exception) -> str:
    """Return the cause without error numbers and repeated addresses."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
