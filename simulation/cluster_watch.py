"""The invariants of a simulated cluster, checked from outside; the watch survives every crash.

* an acknowledged record stays at its acknowledged offset, forever, and occurs nowhere else;
* what one replica holds below its high watermark, every replica holds there, byte for byte;
* a reader receives all committed records, in order;
* the end offset reported to a client never decreases, nor is it below what the client has read or
  had acknowledged;
* in each partition the values of a producer are in order, without duplicates or gaps;
* one leader per partition and epoch.

The outcome of a batch without a reply is open until the producer sends it again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from ottla.metadata.image import Image
from ottla.protocol.records.batch import batches
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import Offset
from ottla.replication.partition import Partition
from simulation.ledger import InvariantBroken

TOPIC = "t"
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Value:
    """A record's value: its producer, and its number among those written to the partition."""

    producer: str
    number: int

    def encode(self) -> bytes:
        """Return the value as stored in a record."""
        return f"{self.producer} {self.number}".encode()


def decode_value(data: bytes | None) -> Value:
    """Decode a record's value."""
    producer, number = (data or b"").decode().split()
    return Value(producer, int(number))


@dataclass(slots=True)
class Committed:
    """The committed part of one partition: batches by offset, and their values."""

    end: int = 0
    batches: dict[int, tuple[int, str]] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)
    places: dict[Value, int] = field(default_factory=dict)
    acknowledged: dict[int, Value] = field(default_factory=dict)


class ClusterWatch:
    """The history of one cluster as reported to clients, and as its logs show it."""

    def __init__(self, partitions: int) -> None:
        self.partitions = [Committed() for _ in range(partitions)]
        self.acknowledged = 0
        self.read = 0
        self.retried = 0
        self.refused = 0
        self.forgotten = 0
        self.is_calm = False  # no faults and no reassignments any more
        self.is_over = False  # clients stop once the outcome of their last records is known
        self._leaders: dict[tuple[int, int], int] = {}
        self._looked: dict[tuple[str, int, int], int] = {}

    # -- replies to clients ----------------------------------------------------

    def acked(self, index: int, offset: int, values: Iterable[Value]) -> None:
        """Record that a producer's values were acknowledged from ``offset`` on."""
        reply = self.partitions[index].acknowledged
        for at, value in enumerate(values, offset):
            if reply.setdefault(at, value) != value:
                raise InvariantBroken(f"{index}: {reply[at]} and {value} acknowledged at {at}")
            self._settle(index, at, value)
            self.acknowledged += 1

    def _settle(self, index: int, offset: int, value: Value) -> None:
        known = self.partitions[index]
        if known.values.setdefault(offset, value) != value:
            raise InvariantBroken(f"{index}: {known.values[offset]} at {offset}, now {value}")
        if known.places.setdefault(value, offset) != offset:
            raise InvariantBroken(f"{index}: {value} at {known.places[value]} and {offset}")

    def was_read(self, index: int, offset: int, value: Value) -> None:
        """Record that a reader received a record."""
        self._settle(index, offset, value)
        self.read += 1

    # -- what nodes show -------------------------------------------------------

    def look_at_image(self, image: Image) -> None:
        """Check that a partition has one leader per epoch."""
        topic = image.topics.named(TOPIC)
        for index, partition in () if topic is None else topic.partitions.items():
            if partition.leader < 0:
                continue
            key = (index, partition.leader_epoch)
            if self._leaders.setdefault(key, partition.leader) != partition.leader:
                raise InvariantBroken(f"two leaders of {key}: {self._leaders[key]}, {partition}")

    @property
    def elections(self) -> int:
        """The number of leaderships seen."""
        return len(self._leaders)

    def look_at_log(self, node: str, start: int, partition: Partition) -> None:
        """Compare what a replica considers committed with the other replicas."""
        if partition.offline is not None or partition.is_closed or partition.log.is_failed:
            return
        key = (node, start, partition.index)
        upto = int(partition.log.high_watermark)
        self._compare(node, partition, self._looked.get(key, 0), upto)
        self._looked[key] = upto

    def _compare(self, node: str, partition: Partition, start: int, upto: int) -> None:
        known = self.partitions[partition.index]
        for base, end, data in batches_of(partition, start, upto):
            digest = (end, blake2b(data, digest_size=8).hexdigest())
            before = known.batches.get(base)
            if before is None and base != known.end:
                raise InvariantBroken(
                    f"{node} {partition}: committed at {base}, others are at {known.end}"
                )
            if before is None:
                known.batches[base] = digest
                known.end = end
                for record in read_records(data):
                    self._settle(partition.index, record.offset, decode_value(record.value))
            elif before != digest:
                raise InvariantBroken(f"{node} {partition}: another batch at {base} than others")

    # -- the end ---------------------------------------------------------------

    def audit(self, node: str, partition: Partition) -> None:
        """Check that a complete replica holds all that was ever committed or acknowledged."""
        known = self.partitions[partition.index]
        upto = int(partition.log.high_watermark)
        self._compare(node, partition, 0, upto)
        if upto < known.end:
            raise InvariantBroken(f"{node} {partition} ends at {upto}, committed is {known.end}")
        lost = sorted(at for at in known.acknowledged if at >= known.end)
        if lost:
            raise InvariantBroken(f"{partition}: acknowledged and lost {lost}")

    def check_order(self) -> None:
        """Check that each producer's values are in order, without duplicates or gaps."""
        for index, known in enumerate(self.partitions):
            last: dict[str, int] = {}
            for _, value in sorted(known.values.items()):
                if value.number != last.get(value.producer, -1) + 1:
                    raise InvariantBroken(f"{index}: {value} behind {last.get(value.producer)}")
                last[value.producer] = value.number


def batches_of(partition: Partition, start: int, upto: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield a log's batches as (first offset, next offset, bytes)."""
    log = partition.log
    while start < upto:
        found = log.read(Offset(start), READ_BYTES, upto=Offset(upto), minimum_one=True)
        data = bytes(found.file.pread(found.length, found.position)) if found.length else b""
        at = start
        for position, header in batches(data):
            if header.base_offset >= start:
                at = int(header.next_offset)
                yield int(header.base_offset), at, data[position : position + header.size]
        if at == start:
            raise InvariantBroken(f"{partition}: nothing to read at {start}, committed is {upto}")
        start = at
