"""One authorization decision for both paths of a request: made by the general path, kept for the
fast path.

    general path    ask()         asks the authorizer, which writes its audit line
    fast path       is_allowed()  True only for a caller that `ask` has allowed since the last
                                  change of the ACLs; the fast path declines all others

So the fast path never decides by itself, a denial is decided, worded and audited once, and a small
request costs one dictionary lookup. A change of the ACLs, which changes ``version``, drops
everything kept.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.groups.group_access import May, everybody
from ottla.api.surface.routes import Caller

ALLOWED_MAX: Final = 10_000
"""Callers and resources kept; a full table is dropped whole."""
NAME_LENGTH_KEPT_MAX: Final = 256
"""Longer names, such as of groups, are not kept: their requests take the general path."""


def unchanging() -> int:
    """Return the version of rules that never change."""
    return 0


class ProduceAccess(msgspec.Struct, frozen=True):
    """The decisions of Produce by Kafka's operations and resources.

    ``version`` changes with the decisions. Without an authorizer everything is allowed.
    """

    write_topic: May = everybody
    write_transactional_id: May = everybody
    version: Callable[[], int] = unchanging


ALLOW_ALL: Final = ProduceAccess()


class AccessDecisions:
    """The decisions of ``may`` about one kind of resource, such as writing to a topic."""

    __slots__ = ("_allowed", "_known_version", "_may", "_version", "is_open")

    def __init__(self, may: May = everybody, version: Callable[[], int] = unchanging) -> None:
        self._may = may
        self.is_open = may is everybody
        """Whether every caller may use every resource."""
        self._version = version
        self._known_version = version()
        self._allowed: set[tuple[str, str, str]] = set()

    def ask(self, caller: Caller, name: str) -> bool:
        """Return whether ``caller`` may use the resource ``name``."""
        if self.is_open:
            return True
        self._forget_if_changed()
        if not self._may(caller, name):
            return False
        if len(name) <= NAME_LENGTH_KEPT_MAX:
            if len(self._allowed) >= ALLOWED_MAX:
                self._allowed.clear()
            self._allowed.add((caller.principal, caller.peer.host, name))
        return True

    def is_allowed(self, caller: Caller, name: str) -> bool:
        """Return whether `ask` has allowed it under the rules in force."""
        if self.is_open:
            return True
        self._forget_if_changed()
        return (caller.principal, caller.peer.host, name) in self._allowed

    def _forget_if_changed(self) -> None:
        version = self._version()
        if version != self._known_version:
            self._allowed.clear()
            self._known_version = version
