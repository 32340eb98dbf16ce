"""What the command line decides without a cluster: how things are printed, read and planned."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.cli.commands.doctor import (
    Dial,
    Directory,
    Place,
    State,
    check_addresses,
    check_advertised,
    check_cluster,
    check_damaged,
    check_directories,
    check_java,
    check_open_files,
    check_quorum,
    check_waiting,
    damaged_replicas,
    waiting_partitions,
)
from ottla.cli.commands.message_format import (
    BadFormat,
    as_is,
    compile_format,
    envelope,
    for_terminal,
)
from ottla.cli.commands.message_input import (
    BadInput,
    Message,
    Splitter,
    parse_delimiter,
    parse_envelope,
    parse_line,
)
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import render, render_line
from ottla.cli.up.plan import BadPlan, plan_nodes, settings_of
from ottla.client.admin_quorum import DescribedQuorum
from ottla.config.loading import load
from ottla.node.metrics.gauges import WAITING_NAMED_MAX, ScrubCounts, scrub_families
from ottla.observability.exposition import Registry
from ottla.operations.cluster_state import ClusterState
from ottla.operations.escaping import escape
from ottla.operations.health import Problem, find_problems, lost_quorum
from ottla.operations.sizes import human
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker
from ottla.protocol.messages.describe_quorum import ReplicaState, ResponsePartitionData
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.records.reader import Header, Record
from ottla.protocol.types import Millis, Offset, TopicPartition

AT = TopicPartition("t", 3)


def record(key: bytes | None, value: bytes | None, *headers: Header) -> Record:
    return Record(Offset(7), Millis(1700000000000), key, value, headers)


# -- for terminals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ütf-8 ✓", "plain ütf-8 ✓"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("c:\\new", "c:\\new"),
    ],
)
def test_nothing_steers_a_terminal(text: str, shown: str) -> None:
    assert escape(text) == shown


@settings(max_examples=100)
@given(st.text(alphabet=st.characters(), max_size=20))
def test_what_is_shown_is_printable(text: str) -> None:
    assert all(each == "\n" or each.isprintable() or not each.isascii() for each in escape(text))
    assert "\x1b" not in escape(text) and "\x9b" not in escape(text)


def test_a_value_for_a_person_and_for_a_pipe() -> None:
    hostile = b"\x1b[31mred\nnext\xff"
    assert for_terminal(hostile) == b"\\x1b[31mred\nnext\\xff"
    assert as_is(hostile) == hostile


# -- one answer, three forms -------------------------------------------------------

ROWS = [
    {"name": "a", "count": 5, "isr": [1, 2], "is_on": True, "none": None},
    {"name": "longer", "count": 12345, "isr": [], "is_on": False, "none": "x"},
]


def test_a_table_lines_up() -> None:
    assert render(ROWS, Output.TABLE) == (
        "NAME    COUNT  ISR  IS-ON  NONE\n"
        "a           5  1,2  yes    -\n"
        "longer  12345       no     x\n"
    )
    assert render([], Output.TABLE) == ""


def test_a_document_shows_its_rows_below() -> None:
    assert render({"id": "x", "brokers": [{"n": 1}]}, Output.TABLE) == (
        "id       x\n\nbrokers:\n  N\n  1\n"
    )


def test_a_cell_is_one_line() -> None:
    assert render([{"v": "a\nb\x1b"}], Output.TABLE) == "V\na\\nb\\x1b\n"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12)
    | st.sampled_from(["yes", "No", "null", "~", "1e3", "0x1", "- a", "a: b", "#", "é", "\x85"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=150)
@given(st.dictionaries(st.text(max_size=6), PLAIN, max_size=4))
def test_json_and_yaml_say_the_same(document: dict[str, object]) -> None:
    assert json.loads(render(document, Output.JSON)) == document
    assert yaml.safe_load(render(document, Output.YAML)) == document
    assert yaml.safe_load(render([document], Output.YAML)) == [document]


def test_one_of_many_is_whole() -> None:
    assert render_line({"a": 1, "b": "x\ny"}, Output.JSON) == '{"a": 1, "b": "x\\ny"}\n'
    two = render_line({"a": 1}, Output.YAML) + render_line({"a": 2}, Output.YAML)
    assert list(yaml.safe_load_all(two)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 60, "5120.0 PiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human(size) == text


# -- formats of records ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t[%p]@%o %T\\n", b"t[3]@7 1700000000000\n"),
        ("%k=%s", b"k=\xffv"),
        ("%K %S", b"1 2"),
        ("%h", b"a=1,b,a=\x00"),
        ("100%%\\t\\x41\\\\\\0", b"100%\tA\\\0"),
    ],
)
def test_format_strings(text: str, printed: bytes) -> None:
    one = record(b"k", b"\xffv", Header("a", b"1"), Header("b", None), Header("a", b"\0"))
    assert compile_format(text, as_is)(AT, one) == printed


def test_what_is_not_there_prints_as_nothing() -> None:
    assert compile_format("<%k|%s|%h|%K|%S>", as_is)(AT, record(None, None)) == b"<|||-1|-1>"


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "\\x4", "\\xzz", "\\"])
def test_a_format_that_means_nothing(text: str) -> None:
    with pytest.raises(BadFormat):
        compile_format(text, as_is)


def test_the_envelope_is_read_back() -> None:
    one = record(b"k", b"v\xff", Header("a", b"1"), Header("b", None))
    found = envelope(AT, one)
    assert found == {
        "topic": "t", "partition": 3, "offset": 7, "ts": 1700000000000,
        "headers": ["a", "1", "b", None], "key": "k", "payload_base64": "dv8=",
    }  # fmt: skip
    again = parse_envelope(json.dumps(found).encode())
    assert again == Message(b"v\xff", b"k", one.headers, 3, 1700000000000)
    nothing = envelope(AT, record(None, None))
    assert nothing["key"] is None and nothing["payload"] is None


# -- records as people type them ---------------------------------------------------


def test_lines_with_and_without_keys() -> None:
    assert parse_line(b"a:b:c", None) == Message(b"a:b:c")
    assert parse_line(b"a:b:c", b":") == Message(b"b:c", b"a")
    assert parse_line(b"abc", b":") == Message(b"abc", None)
    assert parse_line(b":", b":") == Message(b"", b"")
    assert parse_line(b"k:", b":", is_empty_null=True) == Message(None, b"k")
    assert parse_line(b"", None, is_empty_null=True) == Message(None)


@settings(max_examples=100)
@given(
    st.lists(st.binary(max_size=6).filter(lambda each: b"::" not in each + b":"), max_size=6),
    st.lists(st.integers(1, 7), min_size=1, max_size=20),
)
def test_messages_are_cut_wherever_the_stream_is(messages: list[bytes], sizes: list[int]) -> None:
    messages = [each.replace(b":", b"x") for each in messages]
    stream = b"".join(each + b"::" for each in messages) + b"tail"
    splitter, found, at = Splitter(b"::"), [], 0
    while at < len(stream):
        size = sizes[at % len(sizes)]
        found += splitter.feed(stream[at : at + size])
        at += size
    assert [*found, *splitter.finish()] == [*messages, b"tail"]


def test_a_line_without_an_end_is_not_kept_for_ever() -> None:
    splitter = Splitter(b"\n", bytes_max=100)
    assert list(splitter.feed(b"x" * 100)) == []
    with pytest.raises(BadInput):
        list(splitter.feed(b"x"))


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{", b'{"partition": -1}', b'{"ts": "x"}', b'{"headers": ["a"]}',
     b'{"headers": [1, "x"]}', b'{"payload_base64": "?"}', b'{"partition": true}'],
)  # fmt: skip
def test_an_envelope_that_is_none(line: bytes) -> None:
    with pytest.raises(BadInput):
        parse_envelope(line)


def test_a_payload_may_be_an_object() -> None:
    assert parse_envelope(b'{"payload": {"a": [1]}}').value == b'{"a": [1]}'


@pytest.mark.parametrize(
    ("text", "found"),
    [(":", b":"), ("\\n", b"\n"), ("\\t", b"\t"), ("\\x00", b"\0"), ("ab", b"ab")],
)
def test_delimiters(text: str, found: bytes) -> None:
    assert parse_delimiter(text) == found


@pytest.mark.parametrize("text", ["", "\\x", "\\"])
def test_a_delimiter_that_is_none(text: str) -> None:
    with pytest.raises(BadInput):
        parse_delimiter(text)


# -- a local cluster ---------------------------------------------------------------


def test_ports_count_up_and_controllers_take_free_ones() -> None:
    nodes = plan_nodes(3, 9092, "/data", lambda port: port not in (9095, 9097))
    assert [each.port for each in nodes] == [9092, 9093, 9094]
    assert [each.controller_port for each in nodes] == [9096, 9098, 9099]
    assert [each.metrics_port for each in nodes] == [9100, 9101, 9102]
    assert "ottla.metrics.listener=127.0.0.1:9101\n" in settings_of(nodes[1], nodes)
    assert [each.data for each in nodes] == [f"/data/node-{n}/data" for n in (1, 2, 3)]


def test_pages_are_left_out_where_ports_run_out() -> None:
    (node,) = nodes = plan_nodes(1, 65533, "/data", lambda port: port != 65535)
    assert (node.controller_port, node.metrics_port) == (65534, None)
    assert "metrics" not in settings_of(node, nodes)


def test_no_more_ports_are_tried_than_are_needed() -> None:
    tried: list[int] = []
    plan_nodes(1, 9092, "/data", lambda port: tried.append(port) is None)
    assert tried == [9092, 9093, 9094]


@pytest.mark.parametrize(
    ("count", "port", "taken", "said"),
    [
        (0, 9092, (), "--nodes"),
        (10, 9092, (), "--nodes"),
        (1, 0, (), "--port"),
        (3, 65532, (), "--port"),
        (3, 9092, (9093,), "9093 is in use"),
        (1, 65533, (65534, 65535), "controllers"),
    ],
)
def test_a_cluster_that_cannot_be(count: int, port: int, taken: tuple[int, ...], said: str) -> None:
    with pytest.raises(BadPlan, match=said):
        plan_nodes(count, port, "/data", lambda each: each not in taken)


@pytest.mark.parametrize(
    ("count", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_settings_are_what_a_node_takes(count: int, replicas: int, in_sync: int) -> None:
    nodes = plan_nodes(count, 9092, "/tmp/ä b", lambda port: True)
    for node in nodes:
        loaded = load(settings_of(node, nodes))
        config = loaded.broker
        assert loaded.warnings == ()
        assert config.node_id == node.node_id and set(config.process_roles) == {
            "broker",
            "controller",
        }
        assert config.log_dirs == (f"/tmp/ä b/node-{node.node_id}/data",)
        assert len(config.controller_quorum_voters) == count
        assert config.default_replication_factor == replicas
        assert config.offsets_topic_replication_factor == replicas
        assert config.min_insync_replicas == in_sync
        factor = loaded.static["rlmm.config.remote.log.metadata.topic.replication.factor"]
        assert factor == str(replicas)
    with pytest.raises(BadPlan):
        settings_of(plan_nodes(1, 9092, "/a,b", lambda port: True)[0], nodes)


# -- health ------------------------------------------------------------------------


def quorum(leader: int = 1, *fetched: int) -> DescribedQuorum:
    voters = [ReplicaState(n + 1, last_fetch_timestamp=at) for n, at in enumerate(fetched)]
    return DescribedQuorum(ResponsePartitionData(leader_id=leader, current_voters=voters), {})


def topic(*partitions: MetadataResponsePartition) -> MetadataResponseTopic:
    return MetadataResponseTopic(0, "t", partitions=list(partitions))


BROKERS = [DescribeClusterBroker(n, "h", 9090 + n) for n in (1, 2, 3)]
HEALTHY = ClusterState(
    cluster_id="c",
    brokers=BROKERS,
    topics=[topic(MetadataResponsePartition(0, 0, 1, 0, [1, 2], [2, 1]))],
    quorum=quorum(1, -1, 99_000, 99_000),
    reached_voters=frozenset({1, 2, 3}),
)


def test_a_healthy_cluster_has_no_findings() -> None:
    assert find_problems(HEALTHY, Millis(100_000)) == []
    assert lost_quorum(HEALTHY) is None


def test_everything_wrong_is_found() -> None:
    partitions = topic(
        MetadataResponsePartition(0, 1, 1, 0, [1, 2], [1]),
        MetadataResponsePartition(0, 0, -1, 0, [2], [2]),
    )
    brokers = [DescribeClusterBroker(1), DescribeClusterBroker(2, is_fenced=True)]
    state = replace(
        HEALTHY, brokers=brokers, topics=[partitions], quorum=quorum(1, 0, 1000, 99_000)
    )
    found = find_problems(state, Millis(100_000))
    assert [each.subject for each in found] == ["broker 2", "controller 2", "t-0", "t-1"]
    assert "no leader" in found[2].problem and ": 2 not in sync" in found[3].problem


def test_brokers_that_do_not_answer_are_problems_with_what_they_lead() -> None:
    partitions = [MetadataResponsePartition(0, n, n + 1, 0, [1, 2], [1, 2]) for n in range(2)]
    state = replace(HEALTHY, topics=[topic(*partitions)], unreachable={2: "connection refused"})
    found = {each.subject: each.problem for each in find_problems(state, Millis(100_000))}
    assert found == {
        "broker 2": "does not answer at h:9092 (connection refused); it leads 1 partition",
        "t-0": "is under-replicated: 2 not reachable",
        "t-1": "is led by broker 2, which does not answer",
    }


@pytest.mark.parametrize(
    ("leader", "reached", "sentence", "advice"),
    [
        (-1, {1}, "no leader: 1 of 3 voters is reachable", "Start nodes 2 and 3 again. If"),
        (-1, set(), "no leader: 0 of 3 voters are reachable", "Start nodes 1, 2 and 3 again."),
        (-1, {1, 3}, "no leader: 2 of 3 voters are reachable", "An election may be under way"),
        (1, {1}, "a leader without a majority: 1 of 3 voters is", "docs/backup.md"),
    ],
)
def test_lost_quorum_says_who_is_missing_and_what_to_do(
    leader: int, reached: set[int], sentence: str, advice: str
) -> None:
    state = replace(HEALTHY, quorum=quorum(leader, 1, 1, 1), reached_voters=frozenset(reached))
    lost = lost_quorum(state)
    assert lost is not None
    assert f"the metadata quorum has {sentence}" in lost.problem
    assert advice in lost.advice
    (problem,) = find_problems(state, Millis(0))
    assert (problem.subject, problem.problem) == ("metadata quorum", lost.problem)


def test_quorum_that_is_not_described_is_a_problem() -> None:
    state = replace(HEALTHY, quorum=None, quorum_failure="no answer within 1 s")
    (problem,) = find_problems(state, Millis(0))
    assert problem.problem == "the metadata quorum cannot be described: no answer within 1 s"


# -- the doctor --------------------------------------------------------------------

GOOD = Directory("/a", True, 1 << 40, "c1", 1)


ANSWERS = Place("h:1", None)
DEAD = Place("h:2", "connection refused", Dial.REFUSED)
OTHER = Place("h:3", "not a reply", Dial.ACCEPTED)


@pytest.mark.parametrize(
    ("places", "is_named", "is_formatted", "states"),
    [
        ([ANSWERS], False, True, ["ok"]),
        ([DEAD], False, False, ["ok"]),
        ([DEAD], False, True, ["warning"]),
        ([DEAD], True, False, ["problem"]),
        ([ANSWERS, DEAD], False, False, ["ok", "problem"]),
        ([DEAD, ANSWERS, DEAD], True, True, ["problem", "ok", "problem"]),
        ([OTHER], False, False, ["problem"]),
    ],
)
def test_each_address_is_judged_by_who_answers(
    places: list[Place], is_named: bool, is_formatted: bool, states: list[str]
) -> None:
    checked = check_addresses(places, is_named=is_named, is_formatted=is_formatted)
    assert [each.state for each in checked] == states
    assert all(bool(each.fix) == (each.state is not State.OK) for each in checked)


def test_doctor_finds_what_cluster_health_finds() -> None:
    (checked,) = check_cluster(HEALTHY, [])
    assert (checked.state, checked.detail) == (
        State.OK,
        "every broker serves (3), every partition has all its replicas (1)",
    )
    problems = [Problem(f"t-{n}", "has no leader") for n in range(8)]
    found = check_cluster(HEALTHY, problems)
    assert [each.state for each in found] == [State.PROBLEM] * 6
    assert found[0].detail == "t-0 has no leader"
    assert found[-1].detail == "there are 3 problems more"
    assert check_quorum(HEALTHY).detail == "node 1 leads 3 voters"
    lost = replace(HEALTHY, quorum=quorum(-1, 1, 1, 1), reached_voters=frozenset({1}))
    assert check_quorum(lost).state is State.PROBLEM
    assert "docs/backup.md" in check_quorum(lost).fix


def test_directories_must_belong_together() -> None:
    def worst(*directories: Directory, cluster: str | None = None, node: int | None = None) -> list:
        judged = check_directories(directories, cluster, node)
        return [each.check for each in judged if each.state is State.PROBLEM]

    other = Directory("/b", True, 1 << 40, "c2", 2)
    fresh = Directory("/n", True, 1 << 40)
    assert worst(GOOD, fresh, cluster="c1", node=1) == []
    assert worst(GOOD, other) == ["cluster id"]
    assert worst(GOOD, cluster="c2") == ["cluster id"]
    assert worst(GOOD, node=2) == ["node id"]
    assert worst(Directory("/a", False, 1 << 40)) == ["directory"]
    assert worst(Directory("/a", True, 1 << 40, refusal="bad")) == ["directory"]
    (full,) = check_directories([Directory("/a", True, 5 << 20)], None, None)
    assert full.state is State.WARNING and "5.0 MiB" in full.detail


def test_doctor_names_brokers_with_damaged_replicas() -> None:
    found = check_damaged({3: 1, 1: 0, 2: None, 4: 2})
    assert [each.state for each in found] == [State.PROBLEM] * 2
    assert [each.detail[:23] for each in found] == [
        "broker 3 has 1 replica ",
        "broker 4 has 2 replicas",
    ]
    assert check_damaged({1: None}) == [], "a broker without a metrics page says nothing"


def test_doctor_reads_damaged_replicas_from_the_metrics_page() -> None:
    page = Registry([lambda: scrub_families(ScrubCounts(damaged_partitions=3))]).render()
    assert damaged_replicas(page.decode()) == 3
    assert damaged_replicas("") is None
    assert damaged_replicas("ottla_damaged_partitions_count many") is None


def test_doctor_names_partitions_that_wait_for_another_replica() -> None:
    waiting = [TopicPartition("orders", 0), TopicPartition("a.b_c-d", 11)]
    page = Registry([lambda: scrub_families(ScrubCounts(waiting_partitions=waiting))]).render()
    assert "ottla_replica_waiting_leaders_count 2" in page.decode()
    names = waiting_partitions(page.decode())
    assert names == ["orders-0", "a.b_c-d-11"]
    (problem,) = check_waiting({2: names, 1: []})
    assert problem.state is State.PROBLEM
    assert problem.detail.startswith("broker 2 does not lead orders-0, a.b_c-d-11: ")
    sound = Registry([lambda: scrub_families(ScrubCounts())]).render()
    assert waiting_partitions(sound.decode()) == []


def test_page_of_metrics_names_a_bounded_number_of_waiting_partitions() -> None:
    waiting = [TopicPartition("t", index) for index in range(1000)]
    page = Registry([lambda: scrub_families(ScrubCounts(waiting_partitions=waiting))]).render()
    assert "ottla_replica_waiting_leaders_count 1000" in page.decode()
    assert len(waiting_partitions(page.decode())) == WAITING_NAMED_MAX


def test_every_trouble_has_a_way_out() -> None:
    judged = [
        *check_directories([Directory("/a", False, 0)], None, None),
        *check_directories([GOOD], "c2", 2),
        *check_advertised({"h:1": "refused", "h:2": None}),
        *check_damaged({1: 2}),
        *check_damaged({1: 0}),
        *check_waiting({1: ["t-0"]}),
        check_java(None),
        check_java("/usr/bin/java"),
        check_open_files(1024, 1 << 20),
        check_open_files(1024, 1024),
        check_open_files(1 << 16, 1 << 20),
    ]
    for each in judged:
        assert bool(each.fix) == (each.state is not State.OK), each
