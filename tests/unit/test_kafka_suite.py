"""What the harness of Apache Kafka's tests reads and decides, without a JVM."""

import struct
from pathlib import Path

import pytest
from tests.kafka_suite import classes, manifest, reports
from tests.kafka_suite.manifest import Outcome, Result, TestClass
from tools import compatibility

ROOT = Path(__file__).parents[2]
ROWS = TestClass(
    "kafka.server.ATest",
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
        '[[class]]\nname = "a.ATest"\npassed = 3\nknown_failures = {"f()" = "not yet"}\n'
        '[[class]]\nname = "a.BTest"\nnot_applicable = {"*" = "names a Java class"}\n'
    )
    assert [(c.name, c.passed, c.is_applicable) for c in listed] == [
        ("a.ATest", 3, True),
        ("a.BTest", 0, False),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('name = "A"', "A: says nothing"),
        ('name = "A"\nknown_failures = {"f()" = " "}', "A: a row has no reason"),
        (
            'name = "A"\nknown_failures = {"f()" = "x"}\nnot_applicable = {"f()" = "y"}',
            "A: both excuses",
        ),
        ('name = "A"\npassed = 1\n[[class]]\nname = "A"\npassed = 1', "listed twice"),
    ],
)
def test_manifest_that_contradicts_itself_is_rejected(rows: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        manifest.load(f"[[class]]\n{rows}\n")


def test_page_contains_the_figures_of_the_manifest() -> None:
    listed = manifest.load(manifest.MANIFEST.read_text())
    section = manifest.page_section(listed)
    passed = sum(test_class.passed for test_class in listed)
    assert f"| all | {len(listed)} | {passed} |" in section
    text = (ROOT / "docs" / "compatibility.md").read_text()
    assert text.endswith(f"\n\n{section}"), "run `python -m tests.kafka_suite --write-docs`"
    assert compatibility.kafka_tests(text) == f"\n{section}", "kept when the page is rewritten"


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


def test_class_file_is_parsed() -> None:
    data = class_file("kafka/server/ATest", "java/lang/Object", "kafka/server/QuorumTestHarness")
    assert classes.parse(data) == classes.ClassFile(
        "kafka/server/ATest", "java/lang/Object", is_abstract=False, names_seam=True
    )
    plain = classes.parse(class_file("B", "A", flags=0x0421))
    assert (plain.parent, plain.is_abstract, plain.names_seam) == ("A", True, False)


def test_concrete_tests_that_reach_a_seam_through_a_parent_are_found() -> None:
    seam = "kafka/server/QuorumTestHarness"
    files = [
        class_file("k/BaseTest", "java/lang/Object", seam, flags=0x0421),
        class_file("k/MiddleHarness", "k/BaseTest"),
        class_file("k/LeafTest", "k/MiddleHarness"),
        class_file("k/PureTest", "java/lang/Object"),
        class_file("k/DirectTest", "java/lang/Object", seam),
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


def test_reports_are_read(tmp_path: Path) -> None:
    (tmp_path / "TEST-junit-jupiter.xml").write_text(REPORT)
    (tmp_path / "TEST-junit-vintage.xml").write_text("<testsuite/>")
    assert reports.read(tmp_path) == [
        Result("good()[2]", has_passed=True),
        Result("bad()", has_passed=False, message="expected 1", reaches_into_broker=True),
        Result("broken()", has_passed=False, message="no class"),
    ]
