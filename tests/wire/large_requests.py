"""Requests of every API with many elements in one of their lists, made from the schemas."""

from collections.abc import Iterator
from typing import Any

from authorized_requests import sample

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages import request_class
from ottla.protocol.schema import Kind, Message, Schema, Type, covers
from ottla.protocol.types import Uuid


def lists_of(key: ApiKey, version: int) -> list[tuple[str, ...]]:
    """Return the paths of the lists of a request."""
    return list(_lists(request_class(key).SCHEMA, version, ()))


def _lists(schema: Schema, version: int, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in schema.fields:
        if not covers(field.versions, version):
            continue
        element = field.type.element if field.type.kind is Kind.ARRAY else None
        if element is not None:
            yield (*path, field.name)
        struct = element if element is not None else field.type
        if struct.kind is Kind.STRUCT and struct.struct is not None:
            yield from _lists(struct.struct.SCHEMA, version, (*path, field.name))


def large(key: ApiKey, version: int, path: tuple[str, ...], count: int, topic_id: Uuid) -> Message:
    """Return a request whose list at ``path`` has ``count`` elements with different names."""
    request: Any = sample(key, version, topic_id)
    at = request
    for name in path[:-1]:
        at = _descend(at, name, version, topic_id, key)
    field = next(field for field in at.SCHEMA.fields if field.name == path[-1])
    assert field.type.element is not None
    elements = [
        _element(field.type.element, number, (key, version, topic_id)) for number in range(count)
    ]
    setattr(at, path[-1], elements)
    return request


def _descend(at: Any, name: str, version: int, topic_id: Uuid, key: ApiKey) -> Any:
    value = getattr(at, name)
    if isinstance(value, list):
        if not value:
            field = next(field for field in at.SCHEMA.fields if field.name == name)
            value.append(_element(field.type.element, 0, (key, version, topic_id)))
        return value[0]
    if value is None:
        field = next(field for field in at.SCHEMA.fields if field.name == name)
        value = field.type.struct()
        setattr(at, name, value)
    return value


def _element(kind: Type, number: int, about: tuple[ApiKey, int, Uuid]) -> Any:
    match kind.kind:
        case Kind.STRUCT:
            assert kind.struct is not None
            return _numbered(kind.struct(), number, about)
        case Kind.STRING:
            return f"n{number:06d}"
        case Kind.UUID:
            return Uuid((number + 1).to_bytes(16, "big"))
        case Kind.BYTES | Kind.RECORDS:
            return b"x"
        case _:
            return number % 100


def _numbered(message: Any, number: int, about: tuple[ApiKey, int, Uuid]) -> Any:
    _, version, _ = about
    for field in message.SCHEMA.fields:
        if not covers(field.versions, version) or field.tag is not None:
            continue
        match field.type.kind:
            case Kind.STRING:
                setattr(message, field.name, f"n{number:06d}")
            case Kind.UUID:
                setattr(message, field.name, Uuid((number + 1).to_bytes(16, "big")))
            case Kind.ARRAY:
                assert field.type.element is not None
                setattr(message, field.name, [_element(field.type.element, 0, about)])
            case Kind.INT32 if field.name.startswith("partition"):
                setattr(message, field.name, number)
            case Kind.RECORDS | Kind.BYTES:
                setattr(message, field.name, b"")
            case Kind.STRUCT:
                assert field.type.struct is not None
                setattr(message, field.name, _numbered(field.type.struct(), number, about))
            case _:
                pass
    return message
