"""Random valid messages, the input of mutations. One seed, one message."""

import struct
from random import Random

from ottla.protocol.codec.layout import default_of
from ottla.protocol.schema import Field, Kind, Message, Type, covers

_WIDTHS = {
    Kind.INT8: (8, True),
    Kind.INT16: (16, True),
    Kind.UINT16: (16, False),
    Kind.INT32: (32, True),
    Kind.UINT32: (32, False),
    Kind.INT64: (64, True),
}
_LENGTHS = (0, 1, 3, 3, 8, 126, 127, 128, 200)


def sample(message: type[Message], version: int, random: Random) -> Message:
    """Return a message with random fields of this version, small ones more often than large."""
    values = {
        field.name: _drawn(message, field, version, random)
        for field in message.SCHEMA.fields
        if covers(field.versions, version)
    }
    return message(**values)


def _drawn(message: type[Message], field: Field, version: int, random: Random) -> object:
    if covers(field.nullable, version) and random.random() < 0.2:
        return None
    if covers(field.tagged, version) and random.random() < 0.3:
        return default_of(message, field.name)
    if field.type.element is not None:
        count = random.choice((0, 1, 1, 2, 3))
        return [_value(field.type.element, version, random) for _ in range(count)]
    return _value(field.type, version, random)


def _value(type_: Type, version: int, random: Random) -> object:
    if type_.struct is not None:
        return sample(type_.struct, version, random)
    if type_.kind in _WIDTHS:
        bits, signed = _WIDTHS[type_.kind]
        number = random.getrandbits(random.choice((1, 4, bits)))
        return number - (1 << bits) if signed and number >> (bits - 1) else number
    if type_.kind is Kind.STRING:
        return "aé☃𝄞"[random.randrange(4)] * random.choice((0, 1, 3, 40))
    if type_.kind is Kind.BOOL:
        return random.random() < 0.5
    if type_.kind is Kind.FLOAT64:
        return struct.unpack(">d", random.randbytes(8))[0]
    return random.randbytes(16 if type_.kind is Kind.UUID else random.choice(_LENGTHS))
