"""The page on compatibility says what report and tap say, and the tap sees every request."""

import struct

import pytest
from tap import FrameNotes
from tools.compatibility import Outcome, outcomes_of, page, ranges, split_parameters

REPORT = """<testsuites><testsuite>
<testcase name="test_every_codec[aiokafka-gzip]"/>
<testcase name="test_every_codec[aiokafka-zstd]"><failure>no</failure></testcase>
<testcase name="test_every_codec[kcat-gzip]"/>
<testcase name="test_acks[-1-@platformatic/kafka]"/>
<testcase name="test_acks[0-Apache Kafka's Java client]"><skipped/></testcase>
<testcase name="test_offsets[kafka-python]"><error>no</error></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("text", "client", "form"),
    [
        ("confluent-kafka", "confluent-kafka", ""),
        ("kafka-python-none", "kafka-python", "none"),
        ("-1-@platformatic/kafka", "@platformatic/kafka", "acks=all"),
        ("1-kafka-python", "kafka-python", "acks=1"),
    ],
)
def test_a_tests_name_gives_client_and_form(text: str, client: str, form: str) -> None:
    assert split_parameters(text) == (client, form)


def test_a_report_is_read_with_what_failed_and_what_did_not_run() -> None:
    assert outcomes_of(REPORT) == [
        Outcome("every codec", "aiokafka", "gzip", "passed"),
        Outcome("every codec", "aiokafka", "zstd", "failed"),
        Outcome("every codec", "kcat", "gzip", "passed"),
        Outcome("acks", "@platformatic/kafka", "acks=all", "passed"),
        Outcome("acks", "Apache Kafka's Java client", "acks=0", "skipped"),
        Outcome("offsets", "kafka-python", "", "failed"),
    ]


def test_the_page_hides_no_failure() -> None:
    text = page(outcomes_of(REPORT), [["kcat", 3, 4, 9], ["kcat", 3, 5, 1], ["kcat", 3, 9, 1]], "")
    assert "3 passed, 2 failed, 1 not run" in text
    assert "| every codec | gzip yes, zstd **no** | yes (gzip) |  |  |  |" in text
    assert "| acks |  |  | yes (acks=all) | not run (acks=0) |  |" in text
    assert "| Metadata | 3 | 0-13 |  | 4-5, 9 |  |  |  |" in text


def test_ranges_are_short() -> None:
    assert ranges([7, 3, 4, 5]) == "3-5, 7"
    assert ranges([]) == ""


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_the_tap_finds_every_header_however_the_bytes_come(step: int) -> None:
    frames = [(3, 13, b"x" * 4), (1, 18, b"y" * 500), (18, 4, b"z" * 4), (0, 9, b"")]
    data = b"".join(
        struct.pack(">ihh", 4 + len(rest), key, version) + rest for key, version, rest in frames
    )
    notes, found = FrameNotes(), []
    for position in range(0, len(data), step):
        found += notes.feed(data[position : position + step])
    assert found == [(key, version) for key, version, _ in frames]
