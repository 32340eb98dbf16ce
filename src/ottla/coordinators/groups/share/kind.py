"""Share groups as a kind of group: what a shard's machine needs of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.coordinators.decision import NOTHING, Decision, SetTimer, TimerChange, TimerKey
from ottla.coordinators.groups.machine import GroupMachine, ReplayKind
from ottla.coordinators.groups.share.context import ShareContext
from ottla.coordinators.groups.share.group import ShareGroup, replayed
from ottla.coordinators.groups.share.heartbeat import SESSION, remove_member
from ottla.protocol.internal.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis

_KEYS: Final = (
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
# What a timer asked for and the log refused is tried again after this.
_RETRY_MS: Final = 500


class ShareKind:
    """The share groups of one shard."""

    def __init__(self, context: ShareContext) -> None:
        self.context = context

    @property
    def replays(self) -> Mapping[type[Message], ReplayKind]:
        """By the type of key: how a record changes the machine."""
        return dict.fromkeys(_KEYS, self._replay)

    def _replay(self, machine: GroupMachine, key: Message, value: Message | None) -> None:
        """Take a record. One that sets something begins a group that is not there yet."""
        assert isinstance(key, _KEYS)
        group = machine.groups.get(key.group_id)
        if not isinstance(group, ShareGroup):
            if value is None:
                return
            group = ShareGroup(key.group_id)
        changed = replayed(group, key, value)
        if changed is None:
            machine.forget(key.group_id)
        else:
            machine.put(changed)

    @property
    def timers(self) -> Mapping[str, Callable[[GroupMachine, TimerKey, Millis], Decision]]:
        """By the first part of the key: what to do when a timer rings."""
        return {SESSION: self._on_silence}

    def on_loaded(self, machine: GroupMachine, now: Millis) -> Sequence[TimerChange]:
        """Give every member its whole session."""
        return [
            SetTimer((SESSION, group_id, member_id), self.context.session_timeout_ms(group_id))
            for group_id, group in sorted(machine.groups.items())
            if isinstance(group, ShareGroup)
            for member_id in sorted(group.members)
        ]

    def _on_silence(self, machine: GroupMachine, key: TimerKey, now: Millis) -> Decision:
        """Let a member go that was not heard of for its session."""
        group = machine.groups.get(key[1])
        if not isinstance(group, ShareGroup) or key[2] not in group.members:
            return NOTHING
        records, _ = remove_member(self.context, group, key[2])
        again = Decision(timers=[SetTimer(key, _RETRY_MS)])
        return Decision(records, refused=lambda fault: again)


def share_kind(machine: GroupMachine) -> ShareKind:
    """Return the kind of a machine that has share groups."""
    return next(kind for kind in machine.kinds if isinstance(kind, ShareKind))
