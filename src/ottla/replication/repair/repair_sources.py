"""Which replicas a damaged one is repaired from, and whether their batches are usable. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from ottla.metadata.topics import PartitionRegistration
from ottla.protocol.faults import CorruptBatch
from ottla.protocol.records.batch import batches, is_crc_valid
from ottla.protocol.types import NO_LEADER, Buffer, Offset


def order_sources(
    own: int,
    leader: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    is_alive: Callable[[int], bool],
) -> list[int]:
    """Return the other live replicas: the leader, then the ISR, then the rest."""
    ranked = dict.fromkeys((leader, *isr, *replicas))
    return [each for each in ranked if each >= 0 and each != own and is_alive(each)]


def should_leave_isr(
    own: int, leader: int, isr: tuple[int, ...], is_alive: Callable[[int], bool]
) -> bool:
    """Whether a damaged replica can leave the ISR without taking the partition offline.

    A follower can while there is a leader; a leader can while another in-sync replica is alive.
    """
    if leader == own:
        return any(each != own and is_alive(each) for each in isr)
    return leader >= 0


def may_be_elected(own: int, registration: PartitionRegistration) -> bool:
    """Whether a replica leads, or the controller may elect it without asking how complete it is."""
    at = registration
    candidates = (*at.isr, *at.elr, *at.last_known_elr)
    return at.leader in (own, NO_LEADER) or own in candidates


class Piece(NamedTuple):
    """Sound batches of a damaged range. ``expected`` is the next offset to fetch.

    ``is_last``: the source has no more batches of the range.
    """

    batches: list[memoryview]
    expected: Offset
    is_last: bool


def sound_batches(
    records: Buffer, expected: Offset, end: Offset, *, base_min: Offset | None = None
) -> Piece:
    """Take the whole batches of ``[expected, end)`` from a fetch response.

    The batch that holds ``expected`` may begin before it, from ``base_min`` on, where that is
    given: a log may start within a batch.

    Raises:
        CorruptBatch, UnsupportedMagic: the source's copy is damaged, or its batch boundaries
            differ.
    """
    view, found, is_last = memoryview(records), list[memoryview](), False
    for position, header in batches(view):
        if header.last_offset < expected:
            continue
        if header.base_offset >= end:
            is_last = True
            break
        lowest = expected if found or base_min is None else base_min
        if header.base_offset < lowest or header.last_offset >= end:
            raise CorruptBatch(f"batch {header.base_offset} to {header.last_offset} overlaps")
        if header.last_offset_delta < 0 or not is_crc_valid(view, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} has a wrong CRC")
        found.append(view[position : position + header.size])
        expected = header.next_offset
    return Piece(found, expected, is_last or expected >= end)
