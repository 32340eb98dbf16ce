"""Functions that run when a connection closes, for state that must not outlive a connection."""

from collections.abc import Callable
from typing import TypeAlias

from ottla.runtime.ports import Address

OnConnectionClosed: TypeAlias = Callable[[str, Address], None]
"""Called with the listener and the peer of an admitted connection; must not raise."""


class ConnectionCloseHooks:
    """Runs each hook once per closed connection. The servers of a node share one instance."""

    def __init__(self) -> None:
        self._hooks: list[OnConnectionClosed] = []

    def add(self, hook: OnConnectionClosed) -> None:
        """Run ``hook`` for every connection that closes from now on."""
        self._hooks.append(hook)

    def run(self, listener: str, peer: Address) -> None:
        """Run all hooks for a connection that has closed."""
        for hook in self._hooks:
            hook(listener, peer)
