"""Subjects of certificates, and the rules that make users of them: as Java and Kafka, exactly."""

import itertools
import json
import os
from pathlib import Path

import pytest
from subjects import random_subjects, table

from conftest import Kafka
from ottla.security.certificates import BadCertificate, written_name
from ottla.security.principal_mapping import BadMappingRules, NoMatchingRule, PrincipalMapper
from ottla.security.sasl.kerberos_rules import BadKerberosRules, KerberosRules, NoUserName

pytestmark = pytest.mark.jvm

SOURCE = str(Path(__file__).with_name("Identities.java"))
TABLE = Path(__file__).parents[1] / "unit" / "golden" / "subjects.tsv"
SEEDS = range(4)
SUBJECTS = 5000

MAPPING_RULES = [
    *(
        "DEFAULT",
        "",
        " , ,",
        ",DEFAULT,",
        "RULE:.*/fixed/U",
        "RULE:(.*)/$1x/",
        "RULE:a*/-/,DEFAULT",
    ),
    *("RULE:^CN=(.*?),.*$/$1/,DEFAULT", "RULE:CN=(a|ab)/<$1>/", "RULE:^CN=([^,]+)(,.*|$)/$1/L"),
    *("RULE:^CN=(\\w+).*$/$1@$4/", "RULE:^CN=(.*)$/$12/", "RULE:^CN=.*$/$1/", "RULE:^CN=(.*)$/a$/"),
    *("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT", "RULE:^CN=(\\S+)$/$1/", "RULE:[.]*C.*/x/"),
    *("RULE:^(?s)CN=(.*)$/$1/", "RULE:^CN=(.*)$/\\$1\\\\/", "RULE:\\Q.\\E.*/x/,DEFAULT"),
    *("RULE:^CN=(\\s*)(.*)$/$2$1/", "RULE:^CN=([^\\s]*)$/$1/", "RULE:^(CN=)?(OU=)?(.*)$/[$2]$3/"),
    *("RULE:(?i)cn=(.*)/$1/", "RULE:^CN=(.*)$/$0/", "RULE:^CN=(.*)$/$01/", "RULE:.*=(.*)/$1/U"),
    *("default", "DEFAULT/L", "RULE:^CN=(.*?)$/$1/LU", "RULE:^CN", "RULE:(/x/", "RULE:a/b/X"),
]
SUBJECT_NAMES = [
    *("CN=Duke,OU=x", "CN=ab", "CN=a\\, b,OU=ITZ", "CN=x OU\\=admin", "CN=a\nb", "CN=a\rb", "OU=1"),
    *("CN=a\u2028b,O=c", "CN=a\x85b", "cn=duke", "CN=Müller", "CN= a ", "CN=\x0bq", ".CN"),
    *("CN=a,OU=b\r", "CN=ß", "CN=\u0130x"),
]
KERBEROS_RULES = [
    *("DEFAULT", "RULE:[1:$1](App.*)s/App\\.(.*)/$1/g", "RULE:[2:$1](App.*)s/App\\.(.*)/$1/gL"),
    *("RULE:[2:$1;$2](^.*;admin$)s/;admin$//", "RULE:[1:$1@$0](.*@OTHER)s/@.*//", "RULE:[2:$2]"),
    *("RULE:[1:$1]s/a/b/", "RULE:[1:$1]s/a/b/g", "RULE:[1:$1]/U", "RULE:[1:$1]L", "RULE:[2:$1@$0]"),
    *("RULE:[1:$1]s/(.)(.)/$2$1/g\nDEFAULT", "RULE:[1:$9]", "RULE:[1:$1]s/(/x/", "RULE:[1:$1"),
]
PRINCIPALS = [
    *("duke@OURS", "duke@OTHER", "App.service-name@OURS", "App.service-name/example.com@OURS"),
    *("joe/admin@OURS", "banana@OURS", "a/b@OTHER", "ä@OURS"),
]


def ask(kafka: Kafka, lines: list[str]) -> list[str | None]:
    """Return Java's answers; None where it refuses."""
    answers = kafka.run(SOURCE, stdin="\n".join(lines) + "\n").splitlines()
    assert len(answers) == len(lines)
    return [None if answer == "!" else bytes.fromhex(answer).decode() for answer in answers]


def our_name(subject: bytes) -> str | None:
    try:
        return written_name(subject)
    except BadCertificate:
        return None


def row(subject: bytes, written: str | None) -> str:
    if written is None:
        return f"{subject.hex()}\t!"
    return f"{subject.hex()}\t{json.dumps(written)}"


def test_table_of_subjects_is_what_java_writes(kafka: Kafka) -> None:
    subjects = list(table())
    answers = ask(kafka, [f"name {subject.hex()}" for subject in subjects])
    text = "".join(f"{row(*pair)}\n" for pair in zip(subjects, answers, strict=True))
    if os.environ.get("WRITE_SUBJECTS"):
        TABLE.write_text(text)
    assert TABLE.read_text() == text


@pytest.mark.parametrize("seed", SEEDS)
def test_random_subjects_are_written_as_java_writes_them(kafka: Kafka, seed: int) -> None:
    subjects = list(random_subjects(seed, SUBJECTS))
    answers = ask(kafka, [f"name {subject.hex()}" for subject in subjects])
    different = [
        (subject.hex(), answer, our_name(subject))
        for subject, answer in zip(subjects, answers, strict=True)
        if our_name(subject) != answer
    ]
    assert different == []


def test_mapping_rules_give_the_users_that_kafka_gives(kafka: Kafka) -> None:
    def ours(rules: str, subject: str) -> str | None:
        try:
            return PrincipalMapper(rules).principal(subject).name
        except (BadMappingRules, NoMatchingRule):
            return None

    cases = list(itertools.product(MAPPING_RULES, SUBJECT_NAMES))
    lines = [f"map {rules.encode().hex()} {name.encode().hex()}" for rules, name in cases]
    for (rules, name), answer in zip(cases, ask(kafka, lines), strict=True):
        # A principal without a name is refused here, and accepted by Kafka.
        assert ours(rules, name) == (answer or None), (rules, name)


def test_kerberos_rules_give_the_users_that_kafka_gives(kafka: Kafka) -> None:
    def ours(rules: str, principal: str) -> str | None:
        try:
            return KerberosRules(rules.split("\n"), "OURS").user_of(principal)
        except (BadKerberosRules, NoUserName):
            return None

    cases = list(itertools.product(KERBEROS_RULES, PRINCIPALS))
    lines = [f"kerberos {rules.encode().hex()} {name.encode().hex()}" for rules, name in cases]
    for (rules, name), answer in zip(cases, ask(kafka, lines), strict=True):
        assert ours(rules, name) == (answer or None), (rules, name)
