"""Which of a step's writes of the election state have to reach the disk.

A step may pass through several states before anybody hears of one: the only voter of a quorum
becomes prospective, candidate and leader in one. Each asks to be written; what is written again
before an effect that others see, or that the log keeps, need not be there at any moment.
"""

from collections.abc import Sequence
from typing import Final

from ottla.raft.core.effects import (
    Effect,
    PersistElection,
    RoleChanged,
    SetTimer,
    VotersChanged,
)

# Seen within this process alone, which ends with whatever it would forget.
_UNSEEN: Final = (RoleChanged, SetTimer, VotersChanged)


def without_superseded(effects: Sequence[Effect]) -> list[Effect]:
    """Return a step's effects without elections that the step itself writes over unseen."""
    kept: list[Effect] = []
    is_written_over = False
    for effect in reversed(effects):
        if isinstance(effect, PersistElection):
            if is_written_over:
                continue
            is_written_over = True
        elif not isinstance(effect, _UNSEEN):
            is_written_over = False
        kept.append(effect)
    kept.reverse()
    return kept
