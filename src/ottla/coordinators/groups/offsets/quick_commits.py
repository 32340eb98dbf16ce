"""Commits of offsets that are decided, written and committed within one call.

The decision is that of `decide_offset_commit`, for a member that may commit whatever it names to a
group that is there; anything else is left to it.
"""

import msgspec

from ottla.coordinators.groups.kind import Committer
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.groups.offsets.commit_batch import CommitBatch
from ottla.coordinators.groups.offsets.rules import check_commit
from ottla.coordinators.groups.requests import commit_timers
from ottla.coordinators.groups.service import GroupCoordinator
from ottla.coordinators.shard import Shard
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.types import Millis


class QuickCommit(msgspec.Struct):
    """A commit that its group does not object to. ``batch`` is empty, and to be filled."""

    shard: Shard[GroupMachine]
    group_id: str
    member_id: str
    now: Millis
    batch: CommitBatch

    def write(self) -> bool:
        """Write it; False where it has to be decided as others are. Nothing is changed then."""
        batch, shard = self.batch, self.shard
        return shard.write_at_once(batch.seal(), batch.count, self.now, self._replay)

    def _replay(self) -> None:
        machine, group_id = self.shard.machine, self.group_id
        machine.offsets.put_all(group_id, self.batch.offsets)
        group = machine.groups[group_id]
        self.shard.change_timers(commit_timers(machine, group, self.member_id, self.now))


class QuickCommits(msgspec.Struct, frozen=True):
    """The quick way into a group coordinator."""

    groups: GroupCoordinator

    def begin(self, group_id: str, committer: Committer) -> QuickCommit | None:
        """Return a commit to fill; None where the long way has to be taken."""
        groups = self.groups
        try:
            shard = groups.runtime.shard(groups.runtime.index_of(group_id))
        except Fault:
            return None
        group = shard.machine.groups.get(group_id)
        if group is None or check_commit(group, committer) is not ErrorCode.NONE:
            return None
        now, metadata_max = shard.now(), groups.settings.offset_metadata_max_bytes
        batch = CommitBatch(group_id, now, shard.end, metadata_max)
        return QuickCommit(shard, group_id, committer.member_id, now, batch)
