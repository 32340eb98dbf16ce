"""What the harness of Apache Kafka's tests reads and decides, without a JVM."""

import struct
import subprocess
from pathlib import Path

import pytest
from tests.kafka_suite import classes, harness, manifest, page, reports
from tests.kafka_suite.journal import Journal, state_of
from tests.kafka_suite.manifest import Outcome, Result, TestClass
from tools import compatibility

ROOT = Path(__file__).parents[2]
ROWS = TestClass(
    "kafka.server.ATest",
    jar="kafka_2.13",
    passed=1,
    not_applicable={"reads()": "reads a file of the broker"},
    known_failures={"fails()": "not yet", "some()[2]": "not yet"},
)


# -- manifest -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "has_passed", "outcome"),
    [
        ("good()", True, Outcome.PASSED),
        ("good()", False, Outcome.FAILED),
        ("reads()", False, Outcome.NOT_APPLICABLE),
        ("reads()[3]", False, Outcome.NOT_APPLICABLE),
        ("fails()[1]", False, Outcome.KNOWN_FAILURE),
        ("fails()[1]", True, Outcome.PASSED),
        ("fails()", True, Outcome.PASSED_UNEXPECTEDLY),
        ("some()[1]", False, Outcome.FAILED),
        ("some()[2]", False, Outcome.KNOWN_FAILURE),
        ("some()[2]", True, Outcome.PASSED_UNEXPECTEDLY),
    ],
)
def test_result_is_compared_with_its_row(test: str, has_passed: bool, outcome: Outcome) -> None:
    assert manifest.judge(ROWS, Result(test, has_passed)) is outcome


def test_only_contradictions_are_errors() -> None:
    assert {outcome for outcome in Outcome if outcome.is_error} == {
        Outcome.FAILED,
        Outcome.PASSED_UNEXPECTEDLY,
    }


def test_rows_whose_tests_pass_or_do_not_exist_are_reported() -> None:
    results = [Result("reads()[1]", True), Result("fails()[2]", False), Result("some()[2]", False)]
    assert manifest.unused_rows(ROWS, results) == ["reads()"]
    assert manifest.unused_rows(ROWS, []) == ["reads()", "fails()", "some()[2]"]
    whole = TestClass("b", not_applicable={"*": "reads metrics"})
    assert manifest.unused_rows(whole, []) == []


def test_manifest_is_loaded() -> None:
    listed = manifest.load(
        '[[class]]\nname = "kafka.api.ATest"\njar = "kafka_2.13"\npassed = 3\n'
        'known_failures = {"f()" = "not yet"}\n'
        '[[class]]\nname = "a.BTest"\njar = "kafka-tools"\nnot_applicable = {"*" = "a class"}\n'
    )
    assert [(c.name, c.part, c.passed, c.is_applicable) for c in listed] == [
        ("kafka.api.ATest", "api", 3, True),
        ("a.BTest", "tools", 0, False),
    ]
    assert manifest.passed_share(listed) == 0.75


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('name = "A"', "A: must have an outcome"),
        ('name = "A"\npassed = 1\nnot_run = "slow"', "A: must have an outcome"),
        ('name = "A"\nknown_failures = {"f()" = " "}', "A: a row has no reason"),
        (
            'name = "A"\nknown_failures = {"f()" = "x"}\nnot_applicable = {"f()" = "y"}',
            "A: both excuses",
        ),
        (
            'name = "A"\njar = "kafka-tools"\npassed = 1\n'
            '[[class]]\nname = "A"\njar = "kafka-tools"\npassed = 1',
            "listed twice",
        ),
        ('name = "A"\njar = "other"\npassed = 1', "A: no part has the jar 'other'"),
    ],
)
def test_manifest_that_contradicts_itself_is_rejected(rows: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        manifest.load(f"[[class]]\n{rows}\n")


def test_page_contains_the_figures_of_the_manifest() -> None:
    listed = manifest.load(manifest.MANIFEST.read_text())
    section = page.section(listed)
    passed = sum(test_class.passed for test_class in listed)
    assert f"| all | {len(listed)} | {passed} |" in section
    text = (ROOT / "docs" / "compatibility.md").read_text()
    assert text.endswith(f"\n\n{section}"), "run `python -m tests.kafka_suite --write-docs`"
    assert compatibility.kafka_tests(text) == f"\n{section}", "kept when the page is rewritten"


def test_page_names_every_class_and_every_reason() -> None:
    whole = TestClass("a.BTest", jar="kafka-tools", not_applicable={"*": "reads metrics"})
    section = page.section([ROWS, whole])
    assert "| `kafka_2.13` | 1 | 1 | 1 | 2 |" in section
    assert "| `a.BTest` | 1 | 0 | 1 | 0 |" in section
    assert "- `kafka.server.ATest`, fails, some[2]: not yet" in section
    assert "- `a.BTest`, all tests: reads metrics" in section


def test_most_applicable_tests_pass() -> None:
    listed = manifest.load(manifest.MANIFEST.read_text())
    assert manifest.passed_share(listed) >= manifest.PASSED_SHARE_MIN


def test_classes_without_an_outcome_and_outcomes_without_a_class_are_reported() -> None:
    listed = [
        ROWS,
        TestClass("a.BTest", jar="kafka-tools", passed=1),
        TestClass("a.CTest", jar="kafka-tools", not_run="takes an hour"),
    ]
    found = {"a.BTest": "kafka-server", "a.NewTest": "kafka-tools", "a.CTest": "kafka-tools"}
    assert manifest.uncovered(listed, found) == [
        "a.NewTest (kafka-tools) has no outcome",
        "a.CTest (kafka-tools) has no outcome: takes an hour",
        "kafka.server.ATest is in no jar",
        "a.BTest is in kafka-server, not in kafka-tools",
    ]


@pytest.mark.skipif(not harness.test_jars(), reason="the jars are not here: make kafka-tests")
def test_every_class_of_the_jars_has_an_outcome() -> None:
    listed = manifest.load(manifest.MANIFEST.read_text())
    gaps = manifest.uncovered(listed, classes.of_jars(harness.test_jars()))
    assert gaps == manifest.pending(listed)


# -- journal ------------------------------------------------------------------------------------


def test_journal_skips_classes_only_while_the_sources_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "build" / "journal.json"
    Journal(path, "state one").record("a.ATest", {"passed": 3})
    assert Journal(path, "state one").counts_of("a.ATest") == {"passed": 3}
    assert Journal(path, "state one").counts_of("a.BTest") is None
    assert Journal(path, "state two").counts_of("a.ATest") is None


def test_state_changes_with_every_change_of_the_sources(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1\n")
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "change"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    committed = state_of(tmp_path)
    assert state_of(tmp_path) == committed
    (tmp_path / "src" / "a.py").write_text("2\n")
    changed = state_of(tmp_path)
    (tmp_path / "src" / "b.py").write_text("3\n")
    assert len({committed, changed, state_of(tmp_path)}) == 3


# -- class files --------------------------------------------------------------------------------


def class_file(name: str, parent: str, *strings: str, flags: int = 0x21) -> bytes:
    """Return a class file without members: a long, then each string, then the two classes."""
    texts = [name, parent, *strings]
    pool = b"\x05" + bytes(8)  # a long takes the entries 1 and 2
    for text in texts:
        pool += b"\x01" + struct.pack(">H", len(text)) + text.encode()
    pool += b"\x07" + struct.pack(">H", 3) + b"\x07" + struct.pack(">H", 4)
    count = 3 + len(texts) + 2
    head = struct.pack(">IHHH", 0xCAFEBABE, 0, 61, count)
    return head + pool + struct.pack(">HHHHHHH", flags, count - 2, count - 1, 0, 0, 0, 0)


TEST = "Lorg/junit/jupiter/api/Test;"


def test_class_file_is_parsed() -> None:
    data = class_file("kafka/server/ATest", "java/lang/Object", "kafka/server/QuorumTestHarness")
    assert classes.parse(data) == classes.ClassFile(
        "kafka/server/ATest",
        "java/lang/Object",
        is_abstract=False,
        names_seam=True,
        names_test=False,
    )
    assert classes.parse(class_file("B", "A", TEST)).names_test
    plain = classes.parse(class_file("B", "A", flags=0x0421))
    assert (plain.parent, plain.is_abstract, plain.names_seam) == ("A", True, False)


def test_concrete_tests_that_reach_a_seam_through_a_parent_are_found() -> None:
    seam = "kafka/server/QuorumTestHarness"
    files = [
        class_file("k/BaseTest", "java/lang/Object", seam, flags=0x0421),
        class_file("k/MiddleHarness", "k/BaseTest"),
        class_file("k/LeafTest", "k/MiddleHarness", TEST),
        class_file("k/LeafTest$Inner", "k/LeafTest"),
        class_file("k/PureTest", "java/lang/Object", TEST),
        class_file("k/DirectTest", "java/lang/Object", seam, TEST),
    ]
    assert classes.starting_brokers(map(classes.parse, files)) == ["k.DirectTest", "k.LeafTest"]


# -- reports ------------------------------------------------------------------------------------

REPORT = f"""<testsuite>
<testcase name="good(String, int)[2]"/>
<testcase name="bad()"><failure>expected 1
 at line 7</failure><system-out>x {reports.MARK} y</system-out></testcase>
<testcase name="broken()"><error>no class</error></testcase>
<testcase name="later()"><skipped/></testcase>
</testsuite>"""


FEED = """\
JUnit Jupiter > ATest > good() :: STARTED
noise
JUnit Jupiter > ATest > good() :: SUCCESSFUL
JUnit Jupiter > ATest > some(String) > "some(String).way=a" :: STARTED
JUnit Jupiter > ATest > some(String) > "some(String).way=a" :: SUCCESSFUL
JUnit Jupiter > ATest > some(String) > "some(String).way=b" :: STARTED
JUnit Jupiter > ATest > some(String) > "some(String).way=b" :: FAILED
\tjava.lang.AssertionError: expected 1
\t\tat line 7
JUnit Jupiter > ATest > late() :: STARTED
"""


def test_results_of_a_stopped_class_are_read_from_its_output(tmp_path: Path) -> None:
    (tmp_path / reports.OUTPUT).write_text(FEED)
    assert reports.read(tmp_path) == [
        Result("good()", has_passed=True),
        Result("some()[1]", has_passed=True),
        Result("some()[2]", has_passed=False, message="java.lang.AssertionError: expected 1"),
        Result("late()", has_passed=False, message="the class was stopped"),
    ]


def test_reports_are_read(tmp_path: Path) -> None:
    (tmp_path / "TEST-junit-jupiter.xml").write_text(REPORT)
    (tmp_path / "TEST-junit-vintage.xml").write_text("<testsuite/>")
    assert reports.read(tmp_path) == [
        Result("good()[2]", has_passed=True),
        Result("bad()", has_passed=False, message="expected 1", reaches_into_broker=True),
        Result("broken()", has_passed=False, message="no class"),
    ]
