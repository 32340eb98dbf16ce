"""Random and hostile mutations of a frame."""

from collections.abc import Callable
from random import Random

# Written at a random position: where that is a length, the length is absurd.
_LENGTHS = tuple(
    bytes.fromhex(text)
    for text in (
        *("7fffffff", "ffffffff", "fffffffe", "80000000", "00ffffff", "00000000"),
        *("7fff", "ffff", "fffe", "8000"),
        *("ffffffff0f", "feffffff0f", "ffffffff07", "ffffffffff01", "808080808000", "ff7f", "00"),
        *("ffffffffffffffffff01", "80"),
    )
)

Mutation = Callable[[bytearray, Random, bytes], None]


def flip_bits(data: bytearray, random: Random, other: bytes) -> None:
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def set_byte(data: bytearray, random: Random, other: bytes) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def write_length(data: bytearray, random: Random, other: bytes) -> None:
    length = random.choice(_LENGTHS)
    at = random.randrange(len(data))
    data[at : at + len(length)] = length


def truncate(data: bytearray, random: Random, other: bytes) -> None:
    del data[random.randrange(len(data)) :]


def extend(data: bytearray, random: Random, other: bytes) -> None:
    data += random.randbytes(random.randint(1, 20))


def _span(data: bytes, random: Random) -> slice:
    start = random.randrange(len(data))
    return slice(start, start + random.randint(1, 24))


def duplicate(data: bytearray, random: Random, other: bytes) -> None:
    span = _span(data, random)
    data[span.start : span.start] = data[span] * random.randint(1, 3)


def remove(data: bytearray, random: Random, other: bytes) -> None:
    del data[_span(data, random)]


def splice(data: bytearray, random: Random, other: bytes) -> None:
    if other:
        data[_span(data, random)] = other[_span(other, random)]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    set_byte,
    write_length,
    write_length,
    truncate,
    extend,
    duplicate,
    remove,
    splice,
)


def mutated(data: bytes, random: Random, other: bytes) -> bytes:
    """Return ``data`` with one to four mutations; pieces may come from ``other``."""
    out = bytearray(data)
    for _ in range(random.randint(1, 4)):
        if not out:
            break
        random.choice(MUTATIONS)(out, random, other)
    return bytes(out)
