"""Who wants to know that a connection is gone: what lives as long as one, and is kept elsewhere."""

from collections.abc import Callable
from typing import TypeAlias

from ottla.runtime.ports import Address

OnGone: TypeAlias = Callable[[str, Address], None]
"""Called with the listener and the peer of a connection that was admitted; must not raise."""


class Departures:
    """Passes on that a connection ended, once for each. The servers of a node share one."""

    def __init__(self) -> None:
        self._told: list[OnGone] = []

    def tell(self, on_gone: OnGone) -> None:
        """Call ``on_gone`` for every connection that ends from now on."""
        self._told.append(on_gone)

    def gone(self, listener: str, peer: Address) -> None:
        """A connection has ended."""
        for on_gone in self._told:
            on_gone(listener, peer)
