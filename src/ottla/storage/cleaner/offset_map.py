# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Maps each key of a log's dirty part to its newest offset, in memory of a fixed size.

A slot is three 64-bit words; a free slot has 0 in the third:

    low half of the key's hash | high half | offset + 1

Collisions probe the following slots; no slot is ever freed. Keys themselves are not stored: two
keys with the same 128-bit hash would count as one, and the older record would be lost. So the hash
is keyed with a secret of this map, which makes such a pair impossible to construct: SipHash-2-4
with 128 bits where this module is compiled, BLAKE2b in plain Python.

The table starts small and doubles up to its memory limit: most rounds have few keys, and memory
that was never touched costs nothing.
"""

import mmap
from array import array
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.protocol.types import Buffer, Offset

if TYPE_CHECKING:
    from ottla.protocol import cython_stub as cython
else:
    try:
        import cython
    except ImportError:
        from ottla.protocol import cython_stub as cython

IS_COMPILED: Final[bool] = cython.compiled

SLOT_BYTES: Final = 24
SECRET_BYTES: Final = 16
SLOTS_MAX: Final = 2**32 - 1  # the slot of a hash is found from 32 of its bits

_SLOTS_AT_FIRST: Final = 1 << 15
_HALVES: Final = Struct("<QQ")


class KeySpans(Protocol):
    """Where the keys of some records are in a buffer, one column per field.

    ``offset_deltas`` are relative to a base offset; a length of -1 is null. `Spans` are those of
    one batch, a `BatchRun` has those of many. Columns may be longer than ``count``.
    """

    count: int
    key_starts: "array[int]"
    key_lengths: "array[int]"
    value_lengths: "array[int]"
    offset_deltas: "array[int]"


class Marked(NamedTuple):
    """The result of `OffsetMap.mark`: how many records of each kind."""

    kept: int
    tombstones_kept: int
    without_key: int


@cython.final
@cython.cclass
class _Probe:
    """Looks up keys of ``data`` in ``table``; holds the last key's hash in two halves."""

    data: cython.const[cython.uchar][::1]  # type: ignore[valid-type]
    table: cython.const[cython.ulonglong][::1]  # type: ignore[valid-type]
    slots: cython.ulonglong
    secret: bytes
    # The initial SipHash state for this secret. Computed once: C has no literal of this size.
    begin0: cython.ulonglong
    begin1: cython.ulonglong
    begin2: cython.ulonglong
    begin3: cython.ulonglong
    low: cython.ulonglong
    high: cython.ulonglong
    touched: cython.ulonglong

    def __init__(self, secret: bytes, data: Buffer, table: memoryview) -> None:
        self.secret = secret
        self.data = memoryview(data)
        self.table = table
        self.slots = len(table) // 3
        key_low, key_high = _HALVES.unpack(secret)
        self.begin0 = key_low ^ 0x736F6D6570736575
        self.begin1 = key_high ^ 0x646F72616E646F6D ^ 0xEE
        self.begin2 = key_low ^ 0x6C7967656E657261
        self.begin3 = key_high ^ 0x7465646279746573

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def find(self) -> cython.longlong:
        """Return where in the table the slot of the hash begins: its own, or the free one it gets.

        There is always a free slot: the map is never filled completely.
        """
        slot: cython.ulonglong
        slot = ((self.low >> 32) * self.slots) >> 32
        while self.table[slot * 3 + 2] != 0:
            if self.table[slot * 3] == self.low and self.table[slot * 3 + 1] == self.high:
                break
            slot += 1
            if slot == self.slots:
                slot = 0
        return slot * 3

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=True)
    def hash(self, start: cython.int, length: cython.int) -> cython.int:
        """Hash ``length`` bytes from ``start``; the caller has checked the range. Returns 0."""
        if cython.compiled:
            self.sip_hash(start, length)
        else:
            digest = blake2b(self.data[start : start + length], digest_size=16, key=self.secret)
            self.low, self.high = _HALVES.unpack(digest.digest())
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def word(self, at: cython.Py_ssize_t) -> cython.ulonglong:
        """Return eight bytes as a little-endian number: C compilers make one load of it."""
        b0: cython.ulonglong = self.data[at]
        b1: cython.ulonglong = self.data[at + 1]
        b2: cython.ulonglong = self.data[at + 2]
        b3: cython.ulonglong = self.data[at + 3]
        b4: cython.ulonglong = self.data[at + 4]
        b5: cython.ulonglong = self.data[at + 5]
        b6: cython.ulonglong = self.data[at + 6]
        b7: cython.ulonglong = self.data[at + 7]
        low: cython.ulonglong = b0 | b1 << 8 | b2 << 16 | b3 << 24
        return low | b4 << 32 | b5 << 40 | b6 << 48 | b7 << 56

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def last_word(self, at: cython.Py_ssize_t, length: cython.int) -> cython.ulonglong:
        """Return what is left of a key of ``length`` bytes, up to 7, with the length above."""
        byte: cython.ulonglong = length & 0xFF
        word: cython.ulonglong = byte << 56
        shift: cython.int = 0
        while shift < 8 * (length & 7):
            byte = self.data[at]
            word |= byte << shift
            shift += 8
            at += 1
        return word

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def sip_hash(self, start: cython.int, length: cython.int) -> cython.int:
        """Compute SipHash-2-4-128; relies on C's unsigned wrap-around. Returns 0."""
        v0: cython.ulonglong = self.begin0
        v1: cython.ulonglong = self.begin1
        v2: cython.ulonglong = self.begin2
        v3: cython.ulonglong = self.begin3
        word: cython.ulonglong = 0
        words: cython.int = length >> 3
        step: cython.int
        _turn: cython.int
        turns: cython.int
        position: cython.int = start
        # One step per whole word, one for the rest with the length, two to finish.
        for step in range(words + 3):
            turns = 4
            if step <= words:
                turns = 2
                if step < words:
                    word = self.word(position)
                    position += 8
                else:
                    word = self.last_word(position, length)
                v3 ^= word
            elif step == words + 1:
                v2 ^= 0xEE
            else:
                self.low = v0 ^ v1 ^ v2 ^ v3
                v1 ^= 0xDD
            for _turn in range(turns):
                v0 += v1
                v2 += v3
                v1 = (v1 << 13) | (v1 >> 51)
                v3 = (v3 << 16) | (v3 >> 48)
                v1 ^= v0
                v3 ^= v2
                v0 = (v0 << 32) | (v0 >> 32)
                v2 += v1
                v0 += v3
                v1 = (v1 << 17) | (v1 >> 47)
                v3 = (v3 << 21) | (v3 >> 43)
                v1 ^= v2
                v3 ^= v0
                v2 = (v2 << 32) | (v2 >> 32)
            if step <= words:
                v0 ^= word
        self.high = v0 ^ v1 ^ v2 ^ v3
        return 0


@cython.locals(
    table="unsigned long long[::1]",
    hashes="unsigned long long[::1]",
    key_starts="int[::1]",
    key_lengths="int[::1]",
    index=cython.int,
    count=cython.int,
    slots=cython.ulonglong,
    touched=cython.ulonglong,
)
def _hash_keys(probe: _Probe, spans: KeySpans, where: memoryview) -> "array[int]":
    """Return the hashes of a batch's keys, two halves per record.

    When compiled, it also touches the slot of each. Slots are spread over a large memory; reading
    them one after the other without using the value lets the processor fetch many at once.
    """
    result = array("Q", bytes(16 * spans.count))
    hashes, table = result, where
    key_starts, key_lengths = spans.key_starts, spans.key_lengths
    count, slots, touched = spans.count, len(where) // 3, 0
    for index in range(count):
        if key_lengths[index] >= 0:
            probe.hash(key_starts[index], key_lengths[index])
            hashes[2 * index] = probe.low
            hashes[2 * index + 1] = probe.high
    if cython.compiled:
        for index in range(count):
            touched ^= table[(((hashes[2 * index] >> 32) * slots) >> 32) * 3 + 2]
        probe.touched = touched
    return result


@cython.locals(
    old="unsigned long long[::1]",
    fresh="unsigned long long[::1]",
    slots=cython.ulonglong,
    slot=cython.ulonglong,
    at=cython.longlong,
    end=cython.longlong,
)
def _move(source: memoryview, target: memoryview) -> None:
    """Copy every key of one table into a larger, empty one."""
    old, fresh = source, target
    slots, end = len(target) // 3, len(source)
    at = 0
    while at < end:
        if old[at + 2] != 0:
            slot = ((old[at] >> 32) * slots) >> 32
            while fresh[slot * 3 + 2] != 0:
                slot += 1
                if slot == slots:
                    slot = 0
            fresh[slot * 3] = old[at]
            fresh[slot * 3 + 1] = old[at + 1]
            fresh[slot * 3 + 2] = old[at + 2]
        at += 3


class OffsetMap:
    """Key to newest offset. Holds ``capacity`` keys, a fraction of its maximum of slots.

    ``latest_offset`` is the last offset up to which every key is known; the caller sets it, and no
    record above it may be removed.
    """

    def __init__(self, memory_bytes: int, secret: bytes, load_factor: float = 0.9) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
        self.slots_max = min(memory_bytes // SLOT_BYTES, SLOTS_MAX)
        self.capacity = min(int(self.slots_max * load_factor), self.slots_max - 1)
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes of memory cannot hold a key")
        self.size = 0
        self.latest_offset = Offset(-1)
        self._secret = secret
        self._load_factor = load_factor
        self._allot(min(self.slots_max, _SLOTS_AT_FIRST))

    def _allot(self, slots: int) -> None:
        """Allocate an empty table, which is full at ``_limit`` keys for now."""
        self._memory = mmap.mmap(-1, slots * SLOT_BYTES)
        self._table = memoryview(self._memory).cast("Q")
        is_largest = slots == self.slots_max
        self._limit = self.capacity if is_largest else int(slots * min(self._load_factor, 0.7))

    def _grow(self) -> None:
        memory, table = self._memory, self._table
        slots = len(table) // 3
        # Both tables exist while keys are copied: below half of the maximum they still fit.
        self._allot(self.slots_max if slots * 2 > self.slots_max else slots * 2)
        _move(table, self._table)
        table.release()
        memory.close()

    def close(self) -> None:
        """Free the memory."""
        self._table.release()
        self._memory.close()

    @property
    def room(self) -> int:
        """How many more keys it can hold: `put` of so many records returns True."""
        return self.capacity - self.size

    @property
    def utilization(self) -> float:
        """The used fraction of the maximum number of slots."""
        return self.size / self.slots_max

    @cython.locals(
        probe=_Probe,
        table="unsigned long long[::1]",
        hashes="unsigned long long[::1]",
        key_lengths="int[::1]",
        offset_deltas="int[::1]",
        at=cython.longlong,
        base=cython.longlong,
        offset=cython.longlong,
        first=cython.longlong,
        size=cython.longlong,
        capacity=cython.longlong,
        index=cython.int,
    )
    def put(self, region: Buffer, spans: KeySpans, base_offset: Offset, start: Offset) -> bool:
        """Record the offset of each record with a key at or above ``start``; later ones win.

        Returns False when the map became full; the remaining records were not added.
        """
        while self.size + spans.count > self._limit < self.capacity:
            self._grow()
        probe = _Probe(self._secret, region, self._table)
        table, hashes = self._table, _hash_keys(probe, spans, self._table)
        key_lengths, offset_deltas = spans.key_lengths, spans.offset_deltas
        size, capacity = self.size, self.capacity
        base, first = base_offset, start
        for index in range(spans.count):
            offset = base + offset_deltas[index]
            if key_lengths[index] < 0 or offset < first:
                continue
            if size >= capacity:
                self.size = size
                return False
            probe.low, probe.high = hashes[2 * index], hashes[2 * index + 1]
            at = probe.find()
            if table[at + 2] == 0:
                size += 1
                table[at] = probe.low
                table[at + 1] = probe.high
            table[at + 2] = offset + 1
        self.size = size
        return True

    @cython.locals(
        probe=_Probe,
        table="unsigned long long[::1]",
        marks="unsigned char[::1]",
        hashes="unsigned long long[::1]",
        key_lengths="int[::1]",
        value_lengths="int[::1]",
        offset_deltas="int[::1]",
        at=cython.longlong,
        base=cython.longlong,
        offset=cython.longlong,
        latest=cython.longlong,
        newest=cython.longlong,
        index=cython.int,
        drops_tombstones=cython.bint,
        kept=cython.int,
        tombstones=cython.int,
        without_key=cython.int,
    )
    def mark(
        self,
        region: Buffer,
        spans: KeySpans,
        base_offset: Offset,
        keep: bytearray,
        *,
        is_past_horizon: bool,
    ) -> Marked:
        """Set ``keep[i]`` to 1 for each record to keep, to 0 for each to remove.

        A record above ``latest_offset`` is kept. Below it, a record without a key is removed, so
        is one whose key has a newer offset, and a tombstone once its batch's delete horizon has
        passed. ``keep`` has at least one byte per record.
        """
        probe = _Probe(self._secret, region, self._table)
        table, hashes, marks = self._table, _hash_keys(probe, spans, self._table), keep
        key_lengths, value_lengths = spans.key_lengths, spans.value_lengths
        offset_deltas = spans.offset_deltas
        base, latest = base_offset, self.latest_offset
        drops_tombstones = is_past_horizon
        kept = tombstones = without_key = 0
        for index in range(spans.count):
            marks[index] = 0
            offset = base + offset_deltas[index]
            if offset <= latest:
                if key_lengths[index] < 0:
                    without_key += 1
                    continue
                if drops_tombstones and value_lengths[index] < 0:
                    continue
                probe.low, probe.high = hashes[2 * index], hashes[2 * index + 1]
                at = probe.find()
                newest = table[at + 2]
                if newest > offset + 1:
                    continue
            marks[index] = 1
            kept += 1
            if value_lengths[index] < 0:
                tombstones += 1
        return Marked(kept, tombstones, without_key)

    @cython.locals(probe=_Probe)
    def get(self, key: bytes) -> Offset | None:
        """Return the newest offset recorded for a key."""
        probe = _Probe(self._secret, key, self._table)
        probe.hash(0, len(key))
        found = self._table[probe.find() + 2]
        return Offset(found - 1) if found else None


@cython.locals(probe=_Probe)
def hash_key(secret: bytes, key: bytes) -> bytes:
    """Return the hash that a map with this secret uses for a key."""
    probe = _Probe(secret, key, memoryview(bytes(SLOT_BYTES)).cast("Q"))
    probe.hash(0, len(key))
    return _HALVES.pack(probe.low, probe.high)
