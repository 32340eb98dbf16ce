"""Values: conversion between text and types, as Java parses and prints them."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.value_rules import duration_ms
from ottla.config.values import BadValue, Password, Type, Value, parse, to_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (False, "false"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (-2.5e-10, "-2.5E-10"),
        (0.0, "0.0"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (("a", "b"), "a,b"),
        ((), ""),
        (Password("pw"), "[hidden]"),
    ],
)
def test_values_print_as_in_java(value: Value | None, text: str | None) -> None:
    assert to_text(value) == text


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False))
def test_double_roundtrips_through_text(value: float) -> None:
    text = to_text(value)
    assert text is not None and parse(Type.DOUBLE, text) == value


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([(Type.SHORT, 16), (Type.INT, 32), (Type.LONG, 64)]), st.integers())
def test_integers_are_bounded_by_their_type(kind: tuple[Type, int], number: int) -> None:
    limit = 1 << (kind[1] - 1)
    if -limit <= number < limit:
        assert parse(kind[0], str(number)) == number
    else:
        with pytest.raises(BadValue):
            parse(kind[0], str(number))


@pytest.mark.parametrize("kind", [Type.SHORT, Type.INT, Type.LONG])
def test_smallest_and_largest_integers_are_accepted(kind: Type) -> None:
    bits = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}[kind]
    for number in (-(1 << (bits - 1)), (1 << (bits - 1)) - 1):
        assert parse(kind, str(number)) == number
    for number in (-(1 << (bits - 1)) - 1, 1 << (bits - 1)):
        with pytest.raises(BadValue):
            parse(kind, str(number))


@pytest.mark.parametrize("text", ["1_0", "0x10", "1 0", "--1", "", "1e3", "9" * 5000])
def test_texts_that_java_rejects_as_integers_are_rejected(text: str) -> None:
    with pytest.raises(BadValue):
        parse(Type.LONG, text)


def test_list_drops_blanks_and_repetitions_and_keeps_order() -> None:
    assert parse(Type.LIST, " b , a,b ,c") == ("b", "a", "c")
    assert parse(Type.LIST, "  ") == ()
    assert parse(Type.LIST, "a,,b") == ("a", "", "b")


def test_password_is_never_shown() -> None:
    password = parse(Type.PASSWORD, " hunter2 ")
    assert isinstance(password, Password)
    assert password.reveal() == "hunter2"
    assert "hunter2" not in f"{password} {password!r} {to_text(password)} {[password]}"
    assert password == Password("hunter2") and hash(password) == hash(Password("hunter2"))
    assert password != Password("other")
    with pytest.raises(TypeError):
        pickle.dumps(password)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("PT1H", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.0019S", 1),
        ("P2D", 172_800_000),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1H", None),
    ],
)
def test_iso_8601_durations_are_parsed(text: str, millis: int | None) -> None:
    assert duration_ms(text) == millis
