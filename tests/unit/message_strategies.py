"""Hypothesis strategies for any message in any version, derived from its schema.

``PLAUSIBLE`` keeps to what kio can represent: known error codes, and times within the range of
Python's own date types, where a message may hold any number.
"""

from functools import cache

import msgspec
from hypothesis import strategies as st

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec.layout import default_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import consumer_protocol, request_class, response_class
from ottla.protocol.schema import Field, Kind, Message, Type, covers

FULL = "full"
PLAUSIBLE = "plausible"

_INTEGERS = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
# FakeHost the lengths where a varint takes another byte.
_STRINGS = ["", "a", "topic", "größe", "x" * 126, "x" * 127, "x" * 128, "x" * 300]
# kio ends with Kafka 4.3.
_KIO_ERROR_MAX = ErrorCode.SHARE_SESSION_LIMIT_REACHED
_YEAR_2100 = 4_102_444_800_000


@cache
def messages(struct: type[Message], version: int, domain: str = FULL) -> st.SearchStrategy[Message]:
    """Messages whose fields of this version are arbitrary and whose others have their defaults."""
    schema = {field.name: field for field in struct.SCHEMA.fields}
    columns = []
    for name in struct.__struct_fields__:
        field = schema[name]
        if covers(field.versions, version):
            columns.append(_values(struct, field, version, domain))
        else:
            columns.append(_default(struct, name))
    return st.tuples(*columns).map(lambda values: struct(*values))


def _default(struct: type[Message], name: str) -> st.SearchStrategy[object]:
    value = default_of(struct, name)
    return st.builds(type(value)) if isinstance(value, list | Message) else st.just(value)


def _values(
    struct: type[Message], field: Field, version: int, domain: str
) -> st.SearchStrategy[object]:
    if field.type.element is not None:
        inner = _value(field.type.element, field.name, version, domain)
        values: st.SearchStrategy[object] = st.lists(inner, max_size=2)
    else:
        values = _value(field.type, field.name, version, domain)
    if covers(field.nullable, version):
        values = st.none() | values
    if covers(field.tagged, version):
        # kio cannot write null in a tagged field, unless it is the default and left out.
        if domain == PLAUSIBLE and default_of(struct, field.name) is not None:
            values = values.filter(lambda value: value is not None)
        values = _default(struct, field.name) | values
    return values


def _value(type_: Type, name: str, version: int, domain: str) -> st.SearchStrategy[object]:
    kind = type_.kind
    if kind is Kind.STRUCT:
        assert type_.struct is not None
        return messages(type_.struct, version, domain)
    if kind in _INTEGERS:
        return _integers(kind, name, domain)
    return {
        Kind.BOOL: st.booleans(),
        Kind.FLOAT64: st.floats(allow_nan=False, allow_infinity=False),
        Kind.UUID: st.binary(min_size=16, max_size=16),
        Kind.STRING: st.sampled_from(_STRINGS) | st.text(max_size=3),
        Kind.BYTES: st.binary(max_size=5),
        Kind.RECORDS: st.binary(max_size=5),
    }[kind]


def _integers(kind: Kind, name: str, domain: str) -> st.SearchStrategy[object]:
    if domain == PLAUSIBLE and name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode if code <= _KIO_ERROR_MAX])
    if domain == PLAUSIBLE and kind is Kind.INT64 and name.endswith(("_ms", "timestamp")):
        return st.integers(0, _YEAR_2100)
    low, high = _INTEGERS[kind]
    return st.sampled_from([low, -1 if low else 0, high]) | st.integers(low, high)


def cases() -> list[tuple[type[Message], int]]:
    """Every message that is generated, in every version."""
    classes = [find(key) for key in ApiKey for find in (request_class, response_class)]
    classes += [
        consumer_protocol.ConsumerProtocolSubscription,
        consumer_protocol.ConsumerProtocolAssignment,
    ]
    found = []
    for message in classes:
        assert message.SCHEMA.versions is not None
        first, last = message.SCHEMA.versions
        found += [(message, version) for version in range(first, last + 1)]
    return found


def case_name(case: tuple[type[Message], int]) -> str:
    """How a test names a case."""
    return f"{case[0].__name__}-v{case[1]}"


def plain(message: Message) -> object:
    """The message as builtins, so that views and bytes compare by content."""
    return msgspec.to_builtins(message, builtin_types=(bytes, memoryview, bytearray))
