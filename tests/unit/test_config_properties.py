"""Raw settings: the properties format, environment variables, overrides."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.config.properties import (
    BadProperties,
    from_environment,
    from_overrides,
    from_text,
    key_of_variable,
)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(setting.key, setting.value) for setting in from_text(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a = b ", [("a", "b ")]),
        ("a:b", [("a", "b")]),
        ("a b c", [("a", "b c")]),
        ("a\t:\tb", [("a", "b")]),
        ("a==b", [("a", "=b")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
        ("# no\n! nor\n  # nor\na=#yes", [("a", "#yes")]),
        ("a=1\r\nb=2\rc=3\n\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=x,\\\n   y,\\\n\tz\nb=1", [("a", "x,y,z"), ("b", "1")]),
        ("a=x\\\\\nb=1", [("a", "x\\"), ("b", "1")]),
        ("a=x\\\n#not a comment", [("a", "x#not a comment")]),
        ("a=x\\\n\nb=1", [("a", "x"), ("b", "1")]),
        ("a=x\\", [("a", "x")]),
        ("a\\=b\\:c\\ d=e", [("a=b:c d", "e")]),
        ("a=\\t\\n\\r\\f\\q", [("a", "\t\n\r\fq")]),
        ("a=\\u00e9\\uD83D\\uDE00", [("a", "é\U0001f600")]),
        ("  lead=1", [("lead", "1")]),
        ("path=C:\\\\x", [("path", "C:\\x")]),
        ("", []),
    ],
)
def test_java_properties_format_is_parsed(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12zz", "a=\\u"])
def test_invalid_escape_is_rejected_with_its_line(text: str) -> None:
    with pytest.raises(BadProperties, match="line 2"):
        from_text("\n" + text)


def test_setting_records_its_first_line() -> None:
    assert [s.origin for s in from_text("a=1\n#\nb=2,\\\n3\nc=4")] == ["line 1", "line 3", "line 5"]


def escape(text: str) -> str:
    special = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    return "".join(special.get(c, "\\" + c if c in "\\=: #!" else c) for c in text)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.text(), st.text()), max_size=4))
def test_escaped_text_roundtrips(expected: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in expected)
    assert pairs(text) == expected


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab=: \\\n\r\t#!u0"))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with contextlib.suppress(BadProperties):
        assert all("\n" not in s.key or "\\n" in text for s in from_text(text))


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_LOG_DIRS", "log.dirs"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_OTTLA_METRICS_LISTENER", "ottla.metrics.listener"),
        (
            "KAFKA_LISTENER_NAME_X_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.x.scram-sha-256.sasl.jaas.config",
        ),
    ],
)
def test_environment_variables_map_to_keys(variable: str, key: str) -> None:
    assert key_of_variable(variable) == key


def test_only_broker_variables_are_read() -> None:
    found = from_environment(
        {
            "KAFKA_NODE_ID": "4",
            "KAFKA_HEAP_OPTS": "-Xmx1g",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
            "PATH": "/bin",
            "CLUSTER_ID": "abc",
        }
    )
    assert [(s.key, s.value, s.origin) for s in found] == [
        ("node.id", "4", "KAFKA_NODE_ID"),
    ]


def test_overrides_have_the_form_key_equals_value() -> None:
    assert [(s.key, s.value) for s in from_overrides([" a =b=c"])] == [("a", "b=c")]
    for bad in ("a", "=b", ""):
        with pytest.raises(BadProperties):
            from_overrides([bad])
