"""The state of a simulated disk: contents and names, each as cached and as durable.

A file keeps two byte strings. ``cached`` is what every reader sees; ``durable`` is what is on the
disk. Between them is the list of changes since the last sync, in order. Names work the same way:
each directory has cached and durable entries, and the platter has one ordered list of name changes
that no directory sync has covered yet.

Power loss settles both lists at random, within what POSIX leaves open:

* a write is kept, lost, or torn: each 512-byte sector of it is kept or lost by itself;
* the new length may arrive without the data, which then reads as zeros;
* unsynced writes need not reach the disk in the order they were made;
* a name change is kept or lost whole. One that is kept brings along the earlier ones on the same
  names, so a rename never loses a file.

Harsher than any one file system: syncing a file does not make its name durable.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from simulation.random import SimRandom

SECTOR_BYTES = 512


class Keep(enum.Enum):
    """What power loss leaves of unsynced changes."""

    SEEDED = "seeded"  # a seed decides change by change
    NOTHING = "nothing"  # the worst: only what was synced
    EVERYTHING = "everything"  # the best: as if only the process had ended


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes put at a position."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """The length set to exactly this."""

    length: int


Change = Write | Resize


class FileNode:
    """One file's contents, independent of its names."""

    __slots__ = ("cached", "durable", "modified", "pending")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []
        self.modified = 0

    def change(self, change: Change) -> None:
        """Apply a change to the cache and record it as unsynced."""
        _apply(self.cached, change)
        self.pending.append(change)

    def sync(self) -> None:
        """Make the cached contents durable."""
        self.settle(Keep.EVERYTHING, None)

    def settle(self, keep: Keep, rng: SimRandom | None) -> None:
        """Decide which unsynced changes became durable; none stays unsynced.

        The cache does not change: after a failed sync readers still see what is lost.
        """
        if keep is Keep.EVERYTHING:
            kept: Sequence[Change] = self.pending
        elif keep is Keep.NOTHING or rng is None:
            kept = ()
        else:
            kept = list(_survivors(self.pending, rng))
        for change in kept:
            _apply(self.durable, change)
        self.pending.clear()

    def reload(self) -> None:
        """Drop the cache: reads return the durable contents from now on."""
        self.cached = bytearray(self.durable)


class DirNode:
    """One directory's entries."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirNode


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a name."""

    directory: DirNode
    name: str


@dataclass(frozen=True, slots=True)
class NameChange:
    """``node`` leaves one slot, takes another, or both at once (a rename)."""

    node: Node
    leaves: Slot | None
    takes: Slot | None

    def slots(self) -> Iterator[Slot]:
        """Yield the slots it changes."""
        if self.leaves is not None:
            yield self.leaves
        if self.takes is not None:
            yield self.takes


@dataclass(slots=True)
class Platter:
    """The tree of names, with the name changes that are not durable yet."""

    root: DirNode = field(default_factory=DirNode)
    pending: list[NameChange] = field(default_factory=list)

    def change(self, change: NameChange) -> None:
        """Apply a name change to the cache and record it as unsynced."""
        _apply_name(change, durable=False)
        self.pending.append(change)

    def sync_dir(self, directory: DirNode) -> None:
        """Make every change that concerns ``directory`` durable."""
        self._commit([any(slot.directory is directory for slot in c.slots()) for c in self.pending])

    def lose_power(self, keep: Keep, rng: SimRandom) -> None:
        """Settle every unsynced change, then drop the cache."""
        nodes = list(dict.fromkeys(self._nodes()))
        self._commit(_kept_names(len(self.pending), keep, rng))
        self.pending.clear()
        for node in nodes:
            if isinstance(node, FileNode):
                node.settle(keep, rng)
                node.reload()
            else:
                node.cached = dict(node.durable)

    def used_bytes(self) -> int:
        """Return the size of all files."""
        return sum(len(n.cached) for n in set(self._nodes()) if isinstance(n, FileNode))

    def _commit(self, wanted: list[bool]) -> None:
        """Make the ``wanted`` changes durable, with the earlier ones on the same slots."""
        covered: set[tuple[int, str]] = set()
        for index in range(len(self.pending) - 1, -1, -1):
            slots = {(id(slot.directory), slot.name) for slot in self.pending[index].slots()}
            if wanted[index] or slots & covered:
                wanted[index] = True
                covered |= slots
        for change, is_wanted in zip(self.pending, wanted, strict=True):
            if is_wanted:
                _apply_name(change, durable=True)
        self.pending = [c for c, gone in zip(self.pending, wanted, strict=True) if not gone]

    def _nodes(self) -> Iterator[Node]:
        """Yield every node that has a name, cached or durable; some twice."""
        stack: list[Node] = [self.root]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, DirNode) and id(node) not in seen:
                seen.add(id(node))
                stack.extend(node.cached.values())
                stack.extend(node.durable.values())


def _apply(contents: bytearray, change: Change) -> None:
    match change:
        case Write(position, data):
            if position > len(contents):
                contents.extend(bytes(position - len(contents)))
            contents[position : position + len(data)] = data
        case Resize(length):
            if length < len(contents):
                del contents[length:]
            else:
                contents.extend(bytes(length - len(contents)))


def _apply_name(change: NameChange, *, durable: bool) -> None:
    for slot in change.slots():
        entries = slot.directory.durable if durable else slot.directory.cached
        if slot is change.takes:
            entries[slot.name] = change.node
        elif entries.get(slot.name) is change.node:
            del entries[slot.name]


def _survivors(pending: Sequence[Change], rng: SimRandom) -> Iterator[Change]:
    """Yield the changes that became durable: all, none, a prefix with a torn end, or any part."""
    mood = rng.below(4)
    if mood == 0:
        yield from pending
    elif mood == 2 and pending:
        cut = rng.below(len(pending))
        yield from pending[:cut]
        yield from _torn(pending[cut], rng, prefix=True)
    elif mood == 3:
        for change in pending:
            match rng.below(3):
                case 0:
                    yield change
                case 1:
                    yield from _torn(change, rng, prefix=False)


def _torn(change: Change, rng: SimRandom, *, prefix: bool) -> Iterator[Change]:
    """Yield the sectors of a write that arrived; a change of length arrives or does not."""
    if isinstance(change, Resize):
        if rng.chance(0.5):
            yield change
        return
    sectors = list(_sectors(change))
    if prefix:
        yield from sectors[: rng.below(len(sectors) + 1)]
    else:
        yield from (sector for sector in sectors if rng.chance(0.5))
    if rng.chance(0.5):  # the length arrived without the data: an empty write extends
        yield Write(change.position + len(change.data), b"")


def _sectors(write: Write) -> Iterator[Write]:
    start, end = write.position, write.position + len(write.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield Write(start, write.data[start - write.position : stop - write.position])
        start = stop


def _kept_names(count: int, keep: Keep, rng: SimRandom) -> list[bool]:
    if keep is not Keep.SEEDED:
        return [keep is Keep.EVERYTHING] * count
    match rng.below(4):
        case 0:
            return [True] * count
        case 1:
            return [False] * count
        case 2:
            cut = rng.below(count + 1)
            return [index < cut for index in range(count)]
        case _:
            return [rng.chance(0.5) for _ in range(count)]
