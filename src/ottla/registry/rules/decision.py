"""What a decision about a change results in."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ottla.registry.rules.records import RegistryRecord


class Decision(msgspec.Struct, frozen=True):
    """Records to append in one batch, and the reply once they are committed.

    ``reply`` becomes JSON. ``change`` describes the change in the audit log; empty without one.
    """

    reply: Any
    records: Sequence[RegistryRecord] = ()
    change: str = ""
