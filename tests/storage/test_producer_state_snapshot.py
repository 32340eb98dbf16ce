"""Producer snapshot files: Kafka's bytes, and all kinds of damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.log.producer_snapshot_format import CorruptSnapshot, decode, encode
from ottla.storage.log.producer_state import ProducerEntry

# Written by Apache Kafka 4.2.1 (ProducerStateManager.writeSnapshot).
KAFKA_BYTES = bytes.fromhex(
    "00018006db5600000002"
    "0000000000000fa00003000000010000000000000069000000040000018bcfe5687b00000007000000000000005a"
    "0000000000000fa10000ffffffffffffffffffffffff000000000000018bcfe56be7ffffffffffffffffffffffff"
)
ENTRIES = [
    ProducerEntry(4000, 3, 1, 105, 4, 1_700_000_000_123, 7, 90),  # type: ignore[arg-type]
    ProducerEntry(4001, 0, -1, -1, 0, 1_700_000_000_999, -1, -1),  # type: ignore[arg-type]
]


def test_bytes_are_kafkas() -> None:
    assert encode(ENTRIES) == KAFKA_BYTES
    assert decode(KAFKA_BYTES) == ENTRIES


def test_snapshot_without_producers_is_valid() -> None:
    assert decode(encode([])) == []


@pytest.mark.parametrize("length", range(len(KAFKA_BYTES)))
def test_short_file_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptSnapshot):
        decode(KAFKA_BYTES[:length])


def test_long_file_is_corrupt() -> None:
    with pytest.raises(CorruptSnapshot):
        decode(KAFKA_BYTES + b"\0")


def test_zeros_are_corrupt() -> None:
    with pytest.raises(CorruptSnapshot):
        decode(bytes(len(KAFKA_BYTES)))


def test_a_count_beyond_the_bytes_allocates_nothing() -> None:
    with pytest.raises(CorruptSnapshot, match="do not match"):
        decode(KAFKA_BYTES[:6] + b"\x7f\xff\xff\xff" + KAFKA_BYTES[10:])


def test_every_flipped_bit_is_noticed() -> None:
    for position in range(len(KAFKA_BYTES)):
        broken = bytearray(KAFKA_BYTES)
        broken[position] ^= 1 << position % 8
        with pytest.raises(CorruptSnapshot):
            decode(broken)


@given(
    st.lists(
        st.builds(
            ProducerEntry,
            *(
                st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
                for bits in (64, 16, 32, 64, 32, 64, 32, 64)
            ),
        ),
        max_size=5,
    )
)
def test_round_trip(entries: list[ProducerEntry]) -> None:
    assert decode(memoryview(encode(entries))) == entries
