"""The text form of UUIDs; the pairs are what Apache Kafka prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.protocol.uuids import (
    is_reserved,
    parse_uuid,
    uuid_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (Uuid((1).to_bytes(16)), "AAAAAAAAAAAAAAAAAAAAAQ"),
        (Uuid((1 << 64 | 2).to_bytes(16)), "AAAAAAAAAAEAAAAAAAAAAg"),
        (Uuid(b"\xff" * 16), "_____________________w"),
    ],
)
def test_kafkas_text(value: Uuid, text: str) -> None:
    assert uuid_text(value) == text
    assert parse_uuid(text) == value
    assert parse_uuid(text + "==") == value


@given(st.binary(min_size=16, max_size=16))
def test_any_uuid_comes_back(value: bytes) -> None:
    text = uuid_text(Uuid(value))
    assert len(text) == 22
    assert parse_uuid(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 20,
        "A" * 23,
        "A" * 43,
        "A" * 21 + "+",
        "A" * 21 + "/",
        "A" * 21 + "é",
        "A" * 20 + " A",
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        parse_uuid(text)


def test_the_lowest_values_are_kafkas_own() -> None:
    for value in (0, 1, 2, 99):
        assert is_reserved(Uuid(value.to_bytes(16)))
    assert not is_reserved(Uuid((100).to_bytes(16)))
    assert not is_reserved(Uuid(b"\x01" + bytes(15)))
