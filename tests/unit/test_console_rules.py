"""The pure rules of the console: paths, guards, records, searches, lists and descriptions."""

import gzip
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.up.plan import CONSOLE_PORT, plan_nodes, settings_of
from ottla.console.guards import (
    foreign_origin,
    host_of,
    is_host_served,
    is_local_path,
    is_loopback,
)
from ottla.console.mcp import RESULT_CHARACTERS_MAX, bounded, tool_row, tools_of
from ottla.console.openapi import openapi_document, operation_id
from ottla.console.paging import ListQuery, select
from ottla.console.record_views import csv_cells, part_view, record_view
from ottla.console.rendering import query_with, render, static_files, visible
from ottla.console.routes import ROUTES
from ottla.console.search_rules import (
    BadCondition,
    matcher_of,
    parse_comparison,
    parse_query,
)
from ottla.console.search_rules import (
    parse_path as parse_json_path,
)
from ottla.console.segments import decode_name, encode_name, match, parse_path, path_of
from ottla.console.service import BadConsole, ConsoleSettings, check_settings
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import Offset, TopicPartition

HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
PLACE = TopicPartition("orders", 0)


# -- paths -------------------------------------------------------------------------


@given(st.text())
def test_every_name_survives_its_segment(name: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in name):
        return
    segment = encode_name(name)
    assert segment not in ("", ".", "..") and "/" not in segment
    assert decode_name(segment) == name
    target = parse_path(f"/groups/{segment}")
    assert not target.is_json
    assert match("/groups/{group}", target.segments) == {"group": name}
    as_json = parse_path(f"/groups/{segment}.json")
    assert as_json.is_json
    assert match("/groups/{group}", as_json.segments) == {"group": name}


def test_paths_are_matched_by_their_parts() -> None:
    assert match("/topics", ("topics",)) == {}
    assert match("/topics", ("groups",)) is None
    assert match("/topics/{topic}/messages", ("topics", "a", "config")) is None
    assert match("/topics/{topic}", ("topics", "%ff")) is None
    assert parse_path("/api/v1/topics").is_json
    assert parse_path("/index.json").segments == ()
    assert path_of("/topics", "a b", "messages", "1") == "/topics/a%20b/messages/1"


# -- guards ------------------------------------------------------------------------


def test_requests_of_other_sites_are_recognized_by_their_headers() -> None:
    own = {"host": "localhost:9080"}
    assert foreign_origin("POST", {**own, "origin": "http://localhost:9080"}) is None
    assert foreign_origin("POST", own) is None
    assert foreign_origin("POST", {**own, "sec-fetch-site": "same-origin"}) is None
    assert foreign_origin("POST", {**own, "origin": "http://localhost:9081"}) is not None
    assert foreign_origin("POST", {**own, "origin": "null"}) is not None
    for site in ("cross-site", "same-site", ""):
        headers = {**own, "sec-fetch-site": site, "origin": "http://localhost:9080"}
        assert foreign_origin("POST", headers) is not None
    assert foreign_origin("GET", {**own, "sec-fetch-site": "cross-site"}) is None


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost:9080", "localhost"),
        ("LOCALHOST", "localhost"),
        ("[::1]:9080", "::1"),
        ("evil.example@localhost", "localhost"),
        ("", ""),
        ("[::", ""),
    ],
)
def test_host_header_is_parsed(header: str, host: str) -> None:
    assert host_of(header) == host
    assert not is_host_served("evil.example", {"localhost"})


def test_redirects_stay_on_the_console() -> None:
    assert is_local_path("/topics?x=//y")
    for path in ("//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb"):
        assert not is_local_path(path)


def test_console_without_login_binds_to_loopback_only() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("") and not is_loopback("0.0.0.0") and not is_loopback("example.org")
    check_settings(ConsoleSettings("http://127.0.0.1:9080"), needs_login=False)
    check_settings(ConsoleSettings("http://0.0.0.0:9080"), needs_login=True)
    for url in ("http://0.0.0.0:9080", "http://:9080", "http://example.org:9080"):
        with pytest.raises(BadConsole, match="no login"):
            check_settings(ConsoleSettings(url), needs_login=False)
    for url in ("https://127.0.0.1:9080", "ftp://x:1"):
        with pytest.raises(BadConsole):
            check_settings(ConsoleSettings(url), needs_login=True)


# -- records -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (None, "null"),
        (b"", "text"),
        (b"plain", "text"),
        (b'{"a": 1}', "json"),
        (b"{broken", "text"),
        (b"\xff\x00", "hex"),
        (b"\x00\x01\x02abc", "hex"),
        (b"[" * 100_000, "text"),
    ],
)
def test_format_of_a_value_follows_its_bytes(data: bytes | None, form: str) -> None:
    view = part_view(data, 100, None)
    assert view["format"] == form
    assert len(str(view["text"])) <= 100


@given(st.binary(max_size=300), st.binary(max_size=50), st.text(max_size=20))
def test_any_record_is_shown_as_escaped_text(value: bytes, key: bytes, name: str) -> None:
    record = Record(Offset(7), 1, key, value, (Header(name, value),))
    row = record_view(PLACE, record, 2_000)
    json.dumps(row)
    csv_cells(row)
    page = render("tail.html", data={"records": [row], "skipped": 0})
    assert page.count("<tr>") == 1 and "<script" not in page
    assert "\x00" not in page and "\u202e" not in page


def test_cells_of_formulas_are_quoted() -> None:
    record = Record(Offset(1), 5, b"=cmd", b"-7", ())
    assert csv_cells(record_view(PLACE, record, 100))[3:5] == ["'=cmd", "-7"]
    assert visible("a\u202eb\x1b") == "a\\u202eb\\x1b"


# -- searches ----------------------------------------------------------------------


def record(value: object, key: bytes = b"k", **headers: bytes) -> Record:
    rows = tuple(Header(name, text) for name, text in headers.items())
    return Record(Offset(0), 0, key, json.dumps(value).encode(), rows)


@pytest.mark.parametrize(
    ("comparison", "is_hit"),
    [
        ("$.user.id == 5", True),
        ("user.id >= 5", True),
        ("user.id > 5", False),
        ("user.id < 6.5", True),
        ("user.id != 5", False),
        ('user.name == "lars"', True),
        ("user.name == lars", True),
        ("user.name contains ar", True),
        ("tags[1] == b", True),
        ("tags contains b", True),
        ("tags[9] == b", False),
        ("missing != 1", False),
        ("user.name.more != 1", False),
        ("user.ok == true", True),
        ("user.ok == 1", False),
        ("user.name > 5", False),
    ],
)
def test_json_comparison(comparison: str, is_hit: bool) -> None:
    value = {"user": {"id": 5, "name": "lars", "ok": True}, "tags": ["a", "b"]}
    query = parse_query("", "", "", comparison)
    assert matcher_of(query)(record(value)) is is_hit


def test_all_conditions_must_hold() -> None:
    matches = matcher_of(parse_query("lars", "k", "trace=7", ""))
    assert matches(record("lars", trace=b"7"))
    assert not matches(record("lars", trace=b"8"))
    assert not matches(record("lars", b"other", trace=b"7"))
    assert not matches(record("other", trace=b"7"))
    assert matcher_of(parse_query("", "", "trace", ""))(record(1, trace=b""))
    assert matcher_of(parse_query("7", "", "", ""))(record("x", trace=b"7"))
    decoded = matcher_of(parse_query("deep", "", "", ""), lambda data: '{"deep": 1}')
    assert decoded(Record(Offset(0), 0, None, b"\x00", ()))


@pytest.mark.parametrize("text", ["nonsense", "a.b", "== 5", "a..b == 1", "a[x] == 1", "[[ == 1"])
def test_bad_comparisons_are_refused(text: str) -> None:
    with pytest.raises(BadCondition):
        parse_comparison(text)


def test_conditions_are_bounded() -> None:
    with pytest.raises(BadCondition):
        parse_query("", "", "", "")
    with pytest.raises(BadCondition):
        parse_query("x" * 3_000, "", "", "")
    with pytest.raises(BadCondition):
        parse_json_path(".".join("abc" for _ in range(50)))


# -- lists, descriptions, files ----------------------------------------------------------


def test_lists_are_filtered_sorted_and_cut() -> None:
    names = [f"topic-{number}" for number in range(25)]
    page, paging = select(names, ListQuery("TOPIC 1", "-name", 2, 5), str, {"name": str})
    assert page == ["topic-15", "topic-14", "topic-13", "topic-12", "topic-11"]
    assert (paging["matching"], paging["pages"], paging["total"]) == (12, 3, 25)
    last, paging = select(names, ListQuery(page=99, size=10), str, {})
    assert (last, paging["page"]) == (names[20:], 3)
    assert query_with({"a": "1", "b": ""}, page=2) == "?a=1&page=2"


def test_openapi_and_tools_follow_the_table() -> None:
    document = openapi_document(ROUTES)
    assert json.loads(json.dumps(document))["openapi"] == "3.1.0"
    assert len({operation_id(endpoint) for endpoint in ROUTES}) == len(ROUTES)
    reading, changing = tools_of(may_change=False), tools_of(may_change=True)
    assert all(endpoint.method == "GET" for endpoint in reading.values())
    assert "change_topics_delete" in changing and "change_topics_delete" not in reading
    row = tool_row("get_topics_one", reading["get_topics_one"])
    assert row["inputSchema"]["required"] == ["topic"]
    assert len(bounded("x" * 1_000_000)) < RESULT_CHARACTERS_MAX + 100


def test_static_files_are_small_and_htmx_is_the_one_we_chose() -> None:
    files = static_files()
    assert hashlib.sha256(files["htmx.min.js"]).hexdigest() == HTMX_SHA256
    assert b"Zero-Clause BSD" in files["htmx.LICENSE.txt"]
    assert sum(len(gzip.compress(content)) for content in files.values()) < 150_000


def test_local_cluster_serves_the_console_on_a_free_port() -> None:
    busy = {CONSOLE_PORT}
    nodes = plan_nodes(2, 9092, "/data", lambda port: port not in busy, has_console=True)
    assert [node.console_port for node in nodes] == [CONSOLE_PORT + 1, None]
    assert f"console.listeners=http://127.0.0.1:{CONSOLE_PORT + 1}" in settings_of(nodes[0], nodes)
    assert "console" not in settings_of(nodes[1], nodes)
    (alone,) = plan_nodes(1, 9092, "/data", lambda port: 9092 <= port <= 9094, has_console=True)
    assert alone.console_port is None
    (other,) = plan_nodes(1, 19092, "/data", lambda port: True, has_console=True)
    assert other.console_port is not None and other.console_port > 19092
