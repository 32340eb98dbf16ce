"""The command line with nodes that it started."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.free_ports import free_ports
from tests.patience import SECONDS_MAX
from typer.testing import CliRunner
from up_process import COMMAND, Up

from ottla.cli.app import app
from ottla.testing import run_node


class Ottla:
    """Runs commands in this process, against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env={"OTTLA_BOOTSTRAP": self.bootstrap})
        assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
        return done.stdout if code == 0 else done.stderr

    def eventually(self, *arguments: str) -> str:
        """Run a command until it succeeds."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            done = CliRunner().invoke(app, arguments, env={"OTTLA_BOOTSTRAP": self.bootstrap})
            if done.exit_code == 0:
                return done.stdout
            assert time.monotonic() < deadline, done.output

    def json(self, *arguments: str) -> list[dict[str, object]]:
        found = json.loads(self(*arguments, "-o", "json"))
        assert isinstance(found, list)
        return found

    def process(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=given,
            capture_output=True,
            env={**os.environ, "OTTLA_BOOTSTRAP": self.bootstrap},
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    up = Up(tmp_path_factory.mktemp("up"), free_ports(2)[0])
    try:
        assert up.wait_ready() == f"ready 127.0.0.1:{up.port}\n"
        yield Ottla(f"127.0.0.1:{up.port}")
    finally:
        up.end()


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"k1:one\nk2:two\nk1:three")
    return path


def test_topic_commands_create_describe_alter_and_delete(ottla: Ottla) -> None:
    (made,) = ottla.json("topic", "create", "life", "-p", "2", "-c", "retention.ms=60000")
    assert (made["partitions"], made["replication_factor"]) == (2, 1)
    assert "TOPIC_ALREADY_EXISTS" in ottla("topic", "create", "life", code=1)
    (again,) = ottla.json("topic", "create", "life", "--if-not-exists")
    assert again == made
    assert "life" in ottla("topic", "list")
    (described,) = ottla.json("topic", "describe", "life")
    assert described["configs"] == {"retention.ms": "60000"}
    assert [each["leader"] for each in described["partitions"]] == [1, 1]  # type: ignore[attr-defined]
    (altered,) = ottla.json("topic", "alter", "life", "-p", "3", "-d", "retention.ms")
    assert altered["partitions"] == 3
    assert ottla.json("topic", "describe", "life")[0]["configs"] == {}
    assert ottla.json("topic", "delete", "life") == [{"deleted": "life"}]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ottla("topic", "describe", "life", code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ottla("topic", "delete", "life", code=1)


def test_produced_records_are_consumed(ottla: Ottla, lines: Path) -> None:
    ottla("topic", "create", "words", "-p", "1")
    (reply,) = ottla.json("produce", "words", str(lines), "-K", ":", "-H", "lang=en", "-z", "zstd")
    assert reply == {"partition": 0, "records": 3, "first_offset": 0, "last_offset": 2}
    assert ottla("consume", "words", "-e") == "one\ntwo\nthree\n"
    assert ottla("consume", "words", "-e", "-K", "=") == "k1=one\nk2=two\nk1=three\n"
    assert ottla("consume", "words", "-o", "-1", "-e", "-f", "%o %k %h %s\\n") == (
        "2 k1 lang=en three\n"
    )
    assert ottla("consume", "words", "-o", "1", "-c", "1") == "two\n"
    assert ottla("consume", "words", "-o", "end", "-e") == ""
    assert ottla("consume", "words", "-o", "@0", "-c", "1") == "one\n"
    rows = ottla.json("topic", "offsets", "words")
    assert rows == [{"topic": "words", "partition": 0, "first": 0, "next": 3, "offsets": 3}]
    assert ottla.json("topic", "offsets", "words", "-t", "@99999999999999")[0]["offset"] is None
    assert ottla.json("topic", "offsets", "words", "-t", "-2")[0]["offset"] == 1


def test_envelope_format_round_trips(ottla: Ottla, tmp_path: Path, lines: Path) -> None:
    for name in ("from", "to"):
        ottla("topic", "create", name, "-p", "2")
    ottla("produce", "from", str(lines), "-K", ":", "-H", "a=1")
    dumped = ottla("consume", "from", "-e", "-J")
    (tmp_path / "dump").write_text(dumped)
    ottla("produce", "to", str(tmp_path / "dump"), "-J")

    def records(topic: str) -> list[str]:
        found = [json.loads(line) for line in ottla("consume", topic, "-e", "-J").splitlines()]
        return sorted(json.dumps({**each, "topic": ""}) for each in found)

    assert len(records("from")) == 3
    assert records("to") == records("from")
    documents = yaml.safe_load_all(ottla("consume", "from", "-e", "-o", "yaml"))
    assert {each["payload"] for each in documents} == {"one", "two", "three"}


def test_delimited_records_pass_through_pipes_unchanged(ottla: Ottla) -> None:
    ottla("topic", "create", "pipes", "-p", "1")
    given = b"".join(b"%d\x00" % n for n in range(3000))
    assert ottla.process("produce", "pipes", "-D", "\\0", "-a", "1", given=given) == b""
    got = ottla.process("consume", "pipes", "-e", "-f", "%s\\0")
    assert got == given


def test_control_characters_are_escaped_on_a_terminal_only(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topic", "create", "hostile", "-p", "1")
    (tmp_path / "evil").write_bytes(b"\x1b]0;owned\x07\xff")
    ottla("produce", "hostile", str(tmp_path / "evil"))
    assert ottla.process("consume", "hostile", "-e") == b"\x1b]0;owned\x07\xff\n"
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [*COMMAND, "consume", "hostile", "-e", "-b", ottla.bootstrap],
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=SECONDS_MAX,
        )
        assert os.read(ours, 1000).rstrip() == b"\\x1b]0;owned\\x07\\xff"
    finally:
        os.close(ours)
        os.close(theirs)


def test_closed_output_pipe_ends_consume(ottla: Ottla, lines: Path) -> None:
    ottla("topic", "create", "enough", "-p", "1")
    ottla("produce", "enough", str(lines))
    command = f"{sys.executable} -m ottla.cli.main consume enough -b {ottla.bootstrap} -e | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=SECONDS_MAX)
    assert done.stdout == b"k1:one\n" and done.stderr == b""


def test_produce_reports_records_that_cannot_be_sent(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topic", "create", "small", "-p", "1", "-c", "max.message.bytes=1000")
    (tmp_path / "large").write_bytes(b"x" * 2000 + b"\n")
    assert "MESSAGE_TOO_LARGE" in ottla("produce", "small", str(tmp_path / "large"), code=1)
    (tmp_path / "bad").write_bytes(b"{}\n[]\n")
    said = ottla("produce", "small", str(tmp_path / "bad"), "-J", code=1)
    assert "not a JSON object" in said
    assert "No such file" in ottla("produce", "small", str(tmp_path / "nothing"), code=1)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in ottla("consume", "nothing", "-e", code=1)
    assert "OFFSET_OUT_OF_RANGE" in ottla("consume", "small", "-o", "99", "-e", code=1)


def test_produce_reports_the_reason_of_each_rejected_record(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topic", "create", "compacted", "-p", "1", "-c", "cleanup.policy=compact")
    (tmp_path / "mixed").write_text("k:with a key\nwithout one\nalso without\n")
    said = ottla("produce", "compacted", "-K", ":", str(tmp_path / "mixed"), code=1)
    lines = said.splitlines()
    reason = "compacted-0: INVALID_RECORD: A compacted topic takes no record without a key."
    assert lines[0].startswith("record 1: ") and "another record of its batch" in lines[0]
    assert lines[1:3] == [f"record 2: {reason}", f"record 3: {reason}"]
    assert lines[3:] == ["3 records were not delivered"]
    (tmp_path / "one").write_text("without\n")
    said = ottla("produce", "compacted", str(tmp_path / "one"), code=1)
    assert said.endswith("1 record was not delivered\n")
    failure = ottla("produce", "compacted", str(tmp_path / "one"), "-o", "json", code=1)
    assert json.loads(failure)["kafka_error"] == "INVALID_RECORD"
    (tmp_path / "many").write_text("without\n" * 15)
    said = ottla("produce", "compacted", str(tmp_path / "many"), code=1)
    assert "and 5 more records\n15 records were not delivered\n" in said


def test_json_format_accepts_nothing_but_json(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topic", "create", "documents", "-p", "1")
    (tmp_path / "good").write_text('{"a": 1}\n[2, "b"]\n')
    ottla("produce", "documents", "--value-format", "json", str(tmp_path / "good"))
    assert ottla("consume", "documents", "-e") == '{"a": 1}\n[2, "b"]\n'
    (tmp_path / "bad").write_text('{"a": 1}\noops\n')
    said = ottla("produce", "documents", "--value-format", "json", str(tmp_path / "bad"), code=1)
    assert "'oops': not JSON" in said and "1 record was accepted before it" in said
    (tmp_path / "nan").write_text("NaN\n")
    said = ottla("produce", "documents", "--value-format", "json", str(tmp_path / "nan"), code=1)
    assert "NaN is not a value of JSON" in said
    schema = tmp_path / "schema"
    schema.write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    words = ("produce", "documents", "--value-format", "json", "--schema-file", str(schema))
    (tmp_path / "typed").write_text('{"a": "text"}\n')
    assert "text" in ottla(*words, str(tmp_path / "typed"), code=1)


def test_drain_of_an_unknown_broker_is_an_error(ottla: Ottla) -> None:
    assert ottla("cluster", "drain", "9", code=1) == "there is no broker 9; the cluster has 1\n"


def test_topics_of_our_tools_are_internal(ottla: Ottla) -> None:
    for name in ("__ottla_sink_markers", "ottla-mirror.one", "__remote_log_metadata"):
        ottla("topic", "create", name, "-p", "1")
        assert name not in {row["name"] for row in ottla.json("topic", "list")}
        rows = {row["name"]: row for row in ottla.json("topic", "list", "--internal")}
        assert rows[name]["internal"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("topic list", "no topics; create one with `ottla topic create NAME`"),
        ("group list", "no groups"),
        ("group list --state Stable", "no groups match"),
        ("group lag", "no committed offsets"),
        ("share list", "no share groups"),
        ("txn list", "no transactions"),
        ("txn hanging", "no transaction hangs"),
        ("user list", "no users; create one with `ottla user create NAME`"),
        ("quota list", "no quotas"),
        ("client-metrics list", "no subscriptions to metrics"),
        ("tier list", "no segment is in remote storage"),
        ("tier status", "no topic has remote.storage.enable=true"),
        ("logdir list -p", "no partitions"),
        ("topic reassign", "no reassignment is in progress"),
        ("topic elect", "every partition has its preferred leader already"),
        ("migrate plan", "every node runs Ottla already"),
        ("profile list", "no profiles; create one with `ottla profile set NAME`"),
    ],
)
def test_empty_list_says_so(empty: str, words: str, says: str, tmp_path: Path) -> None:
    env = {"OTTLA_BOOTSTRAP": empty, "OTTLA_PROFILES": str(tmp_path / "none")}
    done = CliRunner().invoke(app, words.split(), env=env)
    assert done.exit_code == 0, done.output
    assert done.stdout == "" and done.stderr.startswith(says)
    if words not in ("topic reassign", "topic elect", "migrate plan"):
        done = CliRunner().invoke(app, [*words.split(), "-o", "json"], env=env)
        assert (json.loads(done.stdout), done.stderr) == ([], "")


@pytest.fixture(scope="module")
def empty() -> Iterator[str]:
    """A node without topics, groups and users."""
    with run_node() as found:
        yield found.bootstrap


def test_config_commands_show_and_change_settings(ottla: Ottla) -> None:
    ottla("topic", "create", "set", "-p", "1")
    (row,) = ottla.json("config", "set", "topic", "set", "retention.ms=1000")
    assert (row["key"], row["value"]) == ("retention.ms", "1000")
    rows = {each["key"]: each for each in ottla.json("config", "describe", "topic", "set")}
    assert rows["retention.ms"]["source"] == "dynamic_topic_config"
    assert "segment.bytes" not in rows, "what was never set anywhere is not shown"
    assert len(ottla.json("config", "describe", "topic", "set", "--all")) > 20
    (row,) = ottla.json("config", "set", "topic", "set", "-d", "retention.ms")
    assert row["source"] != "dynamic_topic_config"
    assert ottla.json("config", "get", "broker", "1", "node.id")[0]["value"] == "1"
    assert "no such key: nonsense" in ottla("config", "get", "topic", "set", "nonsense", code=1)
    assert "INVALID_CONFIG" in ottla("config", "set", "topic", "set", "retention.ms=x", code=1)


def test_unknown_names_are_answered_with_the_closest_ones(ottla: Ottla) -> None:
    ottla("topic", "create", "invoices", "-p", "1")
    for arguments in (["topic", "describe"], ["consume", "-e"], ["topic", "offsets"]):
        assert "did you mean 'invoices'?" in ottla(*arguments, "invoice", code=1)
    said = ottla("config", "set", "topic", "invoices", "retentoin.ms=1", code=1)
    assert "did you mean 'retention.ms'" in said
    found = json.loads(ottla("topic", "delete", "invoice", "-o", "json", code=1))
    assert found["error"].endswith("; did you mean 'invoices'?"), found
    assert found["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    said = ottla("produce", "invoices", "no-such-file", code=1)
    assert said == "no-such-file: No such file or directory\n"
    said = ottla("config", "set", "topic", "invoice", "retention.ms=1", code=1)
    assert "did you mean 'invoices'?" in said
    said = ottla("config", "get", "topic", "invoices", "retentoin.ms", code=1)
    assert "no such key: retentoin.ms; did you mean 'retention.ms'" in said
    said = ottla("config", "set", "group", "g", "consumer.sesion.timeout.ms=50000", code=1)
    assert "did you mean 'consumer.session.timeout.ms'" in said
    said = ottla("config", "set", "client-metrics", "m", "intrval.ms=100", code=1)
    assert "did you mean 'interval.ms'?" in said
    said = ottla("quota", "set", "--user", "u", "producer_byte_rat=1", "-o", "json", code=2)
    assert "did you mean 'producer_byte_rate'" in json.loads(said)["error"]
    found = json.loads(ottla("topic", "describe", "invoice", "-o", "json", code=1))
    assert found["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION" and found["exit_code"] == 1


def test_unknown_broker_key_is_set_with_a_warning(ottla: Ottla) -> None:
    """Brokers keep keys that they do not know, as Kafka's do; a misspelt one must not pass."""
    arguments = ["config", "set", "broker", "1", "log.retntion.ms=5"]
    done = CliRunner().invoke(app, arguments, env={"OTTLA_BOOTSTRAP": ottla.bootstrap})
    assert done.exit_code == 0, done.output
    assert "warning: log.retntion.ms is set, but no key of Ottla; did you mean 'log.ret" in (
        done.stderr
    )
    assert ottla.json("config", "set", "broker", "1", "-d", "log.retntion.ms") == []


def test_cluster_commands_describe_the_cluster(ottla: Ottla) -> None:
    found = json.loads(ottla("-o", "json", "cluster", "info"))
    assert found["voters"] == [1] and found["controller"] == 1
    assert found["brokers"][0]["address"] == ottla.bootstrap
    (replica,) = found["quorum"]
    assert (replica["replica"], replica["role"], replica["lag"]) == (1, "leader", 0)
    before = found["topics"], found["partitions"]
    ottla("topic", "create", "counted", "-p", "3")
    found = json.loads(ottla("-o", "json", "cluster", "info"))
    assert (found["topics"], found["partitions"]) == (before[0] + 1, before[1] + 3)
    assert json.loads(ottla("cluster", "health", "-o", "json")) == []


def test_doctor_reports_ok_for_a_healthy_node(ottla: Ottla, tmp_path: Path) -> None:
    rows = ottla.json("doctor", "--data", str(tmp_path))
    by_check = {row["check"]: row["state"] for row in rows}
    assert by_check["address"] == by_check["directory"] == by_check["advertised address"] == "ok"
    assert by_check["cluster"] == by_check["quorum"] == by_check["damaged replicas"] == "ok"


def test_doctor_reports_a_named_address_at_which_no_broker_answers(
    ottla: Ottla, tmp_path: Path
) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    for bootstrap in (dead, f"{ottla.bootstrap},{dead}"):
        arguments = ["doctor", "--data", str(tmp_path), "-b", bootstrap, "-o", "json"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1, done.output
        rows = [row for row in json.loads(done.stdout) if row["state"] == "problem"]
        details = [row["detail"] for row in rows]
        assert details == [f"no broker answers at {dead}: connection refused"]
        assert all("Start the node" in row["fix"] for row in rows)


# -- up ----------------------------------------------------------------------------


@pytest.mark.slow
def test_three_nodes_keep_records_over_a_restart(tmp_path: Path, lines: Path) -> None:
    port = free_ports(6)[0]
    addresses = ",".join(f"127.0.0.1:{port + n}" for n in range(3))
    ottla = Ottla(addresses)
    first = Up(tmp_path / "data", port, "--nodes", "3")
    try:
        assert first.wait_ready() == f"ready {addresses}\n"
        assert len(first.node_pids()) == 3
        (made,) = ottla.json("topic", "create", "kept", "-p", "3")
        assert made["replication_factor"] == 3
        ottla("produce", "kept", str(lines))
    finally:
        code, errors = first.end(signal.SIGINT)
    assert code == 130, errors
    assert first.node_pids() == []
    second = Up(tmp_path / "data", port)
    try:
        assert second.wait_ready() == f"ready {addresses}\n", "as many as there were"
        got = ottla("consume", "kept", "-e").splitlines()
        assert sorted(got) == ["k1:one", "k1:three", "k2:two"]
    finally:
        assert second.end()[0] == 0


def test_up_reports_a_crashed_node_and_starts_it_again(tmp_path: Path) -> None:
    up = Up(tmp_path / "data", free_ports(2)[0])
    try:
        up.wait_ready()
        (node,) = up.node_pids()
        watched = os.pidfd_open(node)
        os.kill(node, signal.SIGKILL)
        assert _wait_ended(watched)
        os.close(watched)
        # A client connects once the node is back.
        assert Ottla(f"127.0.0.1:{up.port}").eventually("topic", "list") == ""
        assert up.node_pids() != [node]
        code, errors = up.end(signal.SIGINT)
    finally:
        up.end(signal.SIGKILL)
    assert code == 130
    assert "node 1 exited with code -9" in errors and "started node 1" in errors
    assert "starting node 1 again in 0.5 s" in errors


def test_up_reports_a_node_that_cannot_start(tmp_path: Path) -> None:
    up = Up(tmp_path / "data", free_ports(2)[0], "-c", "log.segment.bytes=1")
    code, errors = up.end(0)
    assert code == 1 and "log.segment.bytes" in errors and "Traceback" not in errors


def test_detached_cluster_is_shown_read_and_stopped(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_ports(2)[0]
    ottla = Ottla(f"127.0.0.1:{port}")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*COMMAND, "up", *arguments, "--data", str(data), "-o", "json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)

    assert run("status").returncode == 3
    up = [*COMMAND, "up", "--data", str(data), "--port", str(port), "--detach", "-o", "json"]
    done = subprocess.run(
        [*up, "-c", "num.partitions=4"], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    try:
        started = json.loads(done.stdout)
        assert started["state"] == "ready" and started["bootstrap"] == ottla.bootstrap
        config = {"client_config": {"bootstrap.servers": ottla.bootstrap}}
        assert {**json.loads(run("status").stdout), **config} == started
        assert ottla.json("topic", "create", "kept")[0]["partitions"] == 4
        again = subprocess.run(up, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert again.returncode == 1 and "runs already" in again.stderr
        said = [json.loads(line) for line in run("logs").stdout.splitlines()]
        assert any("started node 1" in each["line"] for each in said)
    finally:
        stopped = run("stop")
    assert json.loads(stopped.stdout)[0]["pid"] == started["pid"]
    assert json.loads(run("status").stdout)["state"] == "stopped"
    assert run("stop").returncode == 3
    second = Up(data, port)
    try:
        assert second.wait_ready() == f"ready {ottla.bootstrap}\n"
        assert ottla.json("topic", "create", "too")[0]["partitions"] == 4, "settings are kept"
    finally:
        assert "-c num.partitions=4" in second.end()[1]


def test_nodes_stop_with_the_process_that_started_them(tmp_path: Path) -> None:
    up = Up(tmp_path / "data", free_ports(2)[0])
    up.wait_ready()
    (node,) = up.node_pids()
    watched = os.pidfd_open(node)
    up.end(signal.SIGKILL)
    try:
        assert _wait_ended(watched), "the node runs on"
    finally:
        os.close(watched)


def _wait_ended(watched: int) -> bool:
    return bool(select.select([watched], [], [], SECONDS_MAX)[0])


def test_up_rejects_invalid_options(tmp_path: Path, ottla: Ottla) -> None:
    taken = ottla.bootstrap.rpartition(":")[2]
    assert "is in use" in ottla("up", "--port", taken, "--data", str(tmp_path / "a"), code=1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_text("")
    assert "log directory" in ottla("up", "--data", str(tmp_path / "b"), code=1)
    there = tmp_path / "c" / "node-1" / "data"
    there.mkdir(parents=True)
    (there / "meta.properties").write_text("")
    said = ottla("up", "--nodes", "3", "--data", str(tmp_path / "c"), code=1)
    assert "contains a cluster of 1" in said
