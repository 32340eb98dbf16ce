"""The ``uniform`` assignor: all members get equally many partitions and keep what they can.

With equal subscriptions no member has more than one partition above any other, and a partition
moves only if the balance requires it. With different subscriptions a member may be unable to read
what another has too many of: partitions move from the busiest to the idlest reader of each topic
until no move helps, or `_ROUNDS_MAX` is reached.
"""

from typing import Final

from ottla.coordinators.groups.consumer.assignors.spec import GroupSpec, Targets, gathered
from ottla.protocol.types import Uuid

# Each round about halves the imbalance; more rounds would cost much and move little.
_ROUNDS_MAX: Final = 16


def assign_uniform(group: GroupSpec) -> Targets:
    """Return the target of every member."""
    if not group.members:
        return {}
    if group.is_homogeneous():
        return _share_equally(group)
    return _Balance(group).targets()


# -- all members subscribe to the same ---------------------------------------------------


def _share_equally(group: GroupSpec) -> Targets:
    kept = _still_valid(group)
    least, extra = divmod(sum(group.partition_counts.values()), len(group.members))
    # Members that have more than the minimum keep it if any member may: then nothing else moves.
    order = sorted(group.members, key=lambda member_id: (len(kept[member_id]) <= least, member_id))
    quota = {each: least + (place < extra) for place, each in enumerate(order)}
    owned: set[tuple[Uuid, int]] = set()
    for member_id in order:
        del kept[member_id][quota[member_id] :]
        owned.update(kept[member_id])
    free = [place for place in _all_partitions(group) if place not in owned]
    position = 0
    for member_id in order:
        missing = quota[member_id] - len(kept[member_id])
        kept[member_id].extend(free[position : position + missing])
        position += missing
    return {member_id: gathered(kept[member_id]) for member_id in sorted(kept)}


def _all_partitions(group: GroupSpec) -> list[tuple[Uuid, int]]:
    counts = group.partition_counts
    return [(topic_id, each) for topic_id in sorted(counts) for each in range(counts[topic_id])]


def _still_valid(group: GroupSpec) -> dict[str, list[tuple[Uuid, int]]]:
    """Return the partitions that members had and may keep, each partition once, in order."""
    taken: set[tuple[Uuid, int]] = set()
    kept: dict[str, list[tuple[Uuid, int]]] = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        kept[member_id] = []
        for topic_id in sorted(member.target):
            if topic_id not in member.topics:
                continue
            count = group.partition_counts.get(topic_id, 0)
            for partition in sorted(member.target[topic_id]):
                place = (topic_id, partition)
                if partition < count and place not in taken:
                    taken.add(place)
                    kept[member_id].append(place)
    return kept


# -- members subscribe to different topics -------------------------------------------------


class _Balance:
    """Targets in progress: the owner of each partition, and the number per member."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._readers: dict[Uuid, list[str]] = {}
        for member_id in sorted(group.members):
            for topic_id in group.members[member_id].topics:
                self._readers.setdefault(topic_id, []).append(member_id)
        self._owner: dict[tuple[Uuid, int], str] = {}
        self._sizes = dict.fromkeys(sorted(group.members), 0)
        for member_id, places in _still_valid(group).items():
            for place in places:
                self._give(place, member_id)

    def targets(self) -> Targets:
        """Assign the unowned partitions, then balance."""
        topics = sorted(self._readers, key=self._pressure)
        for topic_id in topics:
            for partition in range(self._group.partition_counts[topic_id]):
                if (topic_id, partition) not in self._owner:
                    self._give((topic_id, partition), self._idlest(topic_id))
        for _ in range(_ROUNDS_MAX):
            if not any([self._even_out(topic_id) for topic_id in topics]):
                break
        places: dict[str, list[tuple[Uuid, int]]] = {each: [] for each in self._sizes}
        for place, member_id in self._owner.items():
            places[member_id].append(place)
        return {member_id: gathered(found) for member_id, found in places.items()}

    def _pressure(self, topic_id: Uuid) -> tuple[float, int, Uuid]:
        """Order topics: those with few readers for many partitions have the least choice."""
        readers = len(self._readers[topic_id])
        return (-self._group.partition_counts[topic_id] / readers, readers, topic_id)

    def _give(self, place: tuple[Uuid, int], member_id: str) -> None:
        previous = self._owner.get(place)
        if previous is not None:
            self._sizes[previous] -= 1
        self._owner[place] = member_id
        self._sizes[member_id] += 1

    def _idlest(self, topic_id: Uuid) -> str:
        return min(self._readers[topic_id], key=lambda each: (self._sizes[each], each))

    def _even_out(self, topic_id: Uuid) -> bool:
        """Move partitions of one topic to its idlest readers; return whether any moved."""
        has_moved = False
        for partition in range(self._group.partition_counts[topic_id]):
            place = (topic_id, partition)
            idlest = self._idlest(topic_id)
            if self._sizes[self._owner[place]] > self._sizes[idlest] + 1:
                self._give(place, idlest)
                has_moved = True
        return has_moved
