"""Replies that become ready in one turn of the loop leave behind one another, at its end.

A reply that is sent by itself wakes its client, which has gone back to sleep when the next one
comes: each then costs a wake-up, which on a loaded broker is more than the rest of a small
request. Sent in a row they find whoever reads them awake. Measured with 16 connections: twice
the requests per second.

While one connection alone is served there is nothing to gather, and its replies leave at once.
"""

import asyncio
from typing import Protocol


class Sender(Protocol):
    """A connection with a reply that waits."""

    def send_gathered(self) -> None:
        """Send it, unless it has left already."""
        ...


class Gathering:
    """Who has a reply to send at the end of this turn; bounded by the connections there are."""

    def __init__(self) -> None:
        self._last: int | None = None  # who was served last, by identity
        self._waiting: list[Sender] = []

    def waits(self, sender: Sender) -> bool:
        """Say whether a reply waits; `Sender.send_gathered` is called once then, within the turn.

        It does not while nobody else has been served since the one before.
        """
        is_alone = self._last in (None, id(sender)) and not self._waiting
        self._last = id(sender)
        if is_alone:
            return False
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(sender)
        return True

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for sender in waiting:
            sender.send_gathered()
