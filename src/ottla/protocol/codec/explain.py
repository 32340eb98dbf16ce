"""Says what is wrong with a message that will not encode.

The written encoders do not check what they pack; when one fails, this walk over the same
layout finds the first value that does not fit its field and names it.
"""

import contextlib
from struct import Struct
from struct import error as struct_error

from ottla.protocol.codec.layout import (
    FORMATS,
    Layout,
    Part,
    default_of,
    element_layout,
    layout_of,
)
from ottla.protocol.codec.primitives import STRING_LENGTH_MAX
from ottla.protocol.schema import Kind, Message, Type

_PYTHON_TYPES = {
    Kind.BOOL: (int,),
    Kind.UUID: (bytes, bytearray),
    Kind.STRING: (str,),
    Kind.BYTES: (bytes, bytearray, memoryview),
    Kind.RECORDS: (bytes, bytearray, memoryview),
    Kind.ARRAY: (list, tuple),
}


def explain(message: Message, version: int, is_flexible: bool) -> str | None:
    """Return the first fault of a message as ``path: what is wrong``; None if there is none."""
    return _struct_fault(message, layout_of(type(message), version, is_flexible), version)


def _struct_fault(struct: object, layout: Layout, version: int) -> str | None:
    if not isinstance(struct, layout.struct):
        return f"{struct!r:.80} is no {layout.struct.__name__}"
    for part in layout.parts:
        fault = _value_fault(getattr(struct, part.name), part.type, part, version)
        if fault is not None:
            return f"{part.name}{fault}"
    for _, part in layout.tagged:
        value = getattr(struct, part.name)
        if value == default_of(layout.struct, part.name):
            continue
        fault = _value_fault(value, part.type, part, version)
        if fault is not None:
            return f"{part.name}{fault}"
    return None


def _value_fault(value: object, type_: Type, part: Part, version: int) -> str | None:
    if value is None:
        return None if part.is_nullable else ": null, and the field is not nullable"
    if type_.kind is Kind.STRUCT:
        fault = _struct_fault(value, element_layout(type_, version, part.is_compact), version)
        return None if fault is None else f".{fault}"
    if not isinstance(value, _PYTHON_TYPES.get(type_.kind, (int, float))):
        return f": {value!r:.80} is no {type_.kind.value}"
    if isinstance(value, list | tuple):
        return _array_fault(value, part, version)
    return None if _fits(value, type_.kind) else f": {value!r:.80} does not fit {type_.kind.value}"


def _array_fault(values: list[object] | tuple[object, ...], part: Part, version: int) -> str | None:
    assert part.type.element is not None
    inner = part._replace(is_nullable=False, type=part.type.element)
    for index, value in enumerate(values):
        fault = _value_fault(value, inner.type, inner, version)
        if fault is not None:
            return f"[{index}]{fault}"
    return None


def _fits(value: object, kind: Kind) -> bool:
    if isinstance(value, str):
        try:
            return len(value.encode()) <= STRING_LENGTH_MAX
        except UnicodeEncodeError:
            return False
    if kind is Kind.UUID:
        return isinstance(value, bytes | bytearray) and len(value) == 16
    if kind in FORMATS:
        with contextlib.suppress(struct_error):
            Struct(">B" if kind is Kind.BOOL else f">{FORMATS[kind]}").pack(value)
            return True
        return False
    return True
