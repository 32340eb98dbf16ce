"""Compatibility by example: hundreds of pairs of schemas per language, with the rules that apply.

A case has two schemas and, for BACKWARD and FORWARD, every difference as ``RULE path``; FULL needs
both lists to be empty. The expectations come from the specifications of the languages and from what
Confluent's registry documents and tests, not from this implementation.
"""

import json
from pathlib import Path

import pytest

from ottla.schemas.contract import SchemaType
from ottla.schemas.languages import differences, parse

FOLDER = Path(__file__).parent / "cases"
LANGUAGES = {
    "avro": SchemaType.AVRO,
    "json_schema": SchemaType.JSON,
    "protobuf": SchemaType.PROTOBUF,
}
CASES = [
    pytest.param(LANGUAGES[language], case, id=f"{language}: {case['id']}")
    for language in LANGUAGES
    for case in json.loads((FOLDER / f"{language}.json").read_text())
]


def rules(schema_type: SchemaType, reader: str, writer: str, policy: str) -> list[str]:
    reported = differences(parse(schema_type, reader), parse(schema_type, writer), policy=policy)
    return sorted({f"{difference.rule} {difference.path}" for difference in reported})


@pytest.mark.parametrize(("schema_type", "case"), CASES)
def test_levels_report_the_rules_of_the_case(schema_type: SchemaType, case: dict) -> None:
    old, new = case["old"], case["new"]
    assert rules(schema_type, new, old, "STRICT") == sorted(case["backward"]), "BACKWARD"
    assert rules(schema_type, old, new, "STRICT") == sorted(case["forward"]), "FORWARD"
    if "lenient_backward" in case:
        assert rules(schema_type, new, old, "LENIENT") == sorted(case["lenient_backward"])
        assert rules(schema_type, old, new, "LENIENT") == sorted(case["lenient_forward"])


def test_every_language_has_hundreds_of_cases() -> None:
    # Each case states BACKWARD, FORWARD and, by both, FULL.
    for schema_type in SchemaType:
        assert sum(case.values[0] is schema_type for case in CASES) * 3 > 300
