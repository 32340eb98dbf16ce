"""Principals of certificates, mapping rules, and JAAS configurations."""

import contextlib
import datetime
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.types import Millis
from ottla.security.certificate_login import (
    CertificateLogin,
    CertificateLogins,
    CertificateRefused,
)
from ottla.security.certificates import BadCertificate, subject_der, subject_name, written_name
from ottla.security.jaas import PLAIN_MODULE, BadJaas, parse_jaas
from ottla.security.principal import Principal, parse_principal
from ottla.security.principal_mapping import BadMappingRules, NoMatchingRule, PrincipalMapper

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


def certificate(*names: tuple[x509.ObjectIdentifier, str]) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )


# The table is compared with Java by tests/conformance/test_identities.py.
SUBJECTS = [
    line.split("\t")
    for line in (Path(__file__).parent / "golden" / "subjects.tsv").read_text().splitlines()
]


def test_subjects_are_written_as_java_writes_them() -> None:
    assert len(SUBJECTS) >= 100
    for der, expected in SUBJECTS:
        if expected == "!":
            with pytest.raises(BadCertificate):
                written_name(bytes.fromhex(der))
        else:
            assert written_name(bytes.fromhex(der)) == json.loads(expected), der


def test_subject_of_a_certificate_is_read_from_its_bytes() -> None:
    made = certificate((NameOID.COUNTRY_NAME, "US"), (NameOID.COMMON_NAME, "x OU=admin"))
    assert subject_name(made) == "CN=x OU\\=admin,C=US"


@given(st.binary(max_size=60) | st.sampled_from([bytes.fromhex(row[0]) for row in SUBJECTS]))
def test_damaged_subject_is_refused_and_nothing_else(data: bytes) -> None:
    for cut in (data, data[:-1], data[: len(data) // 2], b"\x30" + data[1:]):
        with contextlib.suppress(BadCertificate):
            written_name(cut)


def test_certificate_without_a_subject_field_is_refused() -> None:
    with pytest.raises(BadCertificate):
        subject_der(bytes.fromhex("3003020101"))


# What each rule is for, a subject of an attacker, and the user that it must not become.
@pytest.mark.parametrize(
    ("rules", "value", "user"),
    [
        ("RULE:^CN=.*OU=(.*?)(,.*|$)/$1/", "x OU=admin", "admin"),
        ("RULE:^CN=(.*?),OU=admin.*$/root/,DEFAULT", "x,OU=admin", "root"),
        ("RULE:^CN=([^,]*),O=.*$/$1/,DEFAULT", "admin,O=Org", "admin"),
        ("RULE:^CN=([a-z]+)$/$1/,DEFAULT", "admin\n", "admin"),
        ("RULE:^.*CN=admin.*$/root/,DEFAULT", "x+CN=admin", "root"),
    ],
)
def test_value_of_an_attribute_does_not_pass_for_another_attribute(
    rules: str, value: str, user: str
) -> None:
    subject = subject_name(certificate((NameOID.COMMON_NAME, value)))
    with contextlib.suppress(NoMatchingRule):
        assert PrincipalMapper(rules).principal(subject).name != user


def test_subject_without_a_name_is_refused() -> None:
    assert subject_name(certificate()) == ""
    with pytest.raises(NoMatchingRule, match="empty"):
        PrincipalMapper("DEFAULT").principal("")
    with pytest.raises(NoMatchingRule, match="empty"):
        PrincipalMapper("RULE:^CN=(.*)$/$1/").principal("CN=")
    assert PrincipalMapper("RULE:^$/nobody/").principal("").name == "nobody"


@pytest.mark.parametrize(
    "pattern",
    ["^(a+)+$", "^(a|aa)+$", "^(.*)*=$", "^CN=((\\\\, *|\\w)+)+,$", "(x+x+)+y", "^(\\w+\\s?)*$"],
)
def test_rule_takes_linear_time_on_any_subject(pattern: str) -> None:
    """Each of these patterns takes years by backtracking."""
    mapper = PrincipalMapper(f"RULE:{pattern}/$0/,DEFAULT")
    for subject in ("a" * 20_000 + "!", "CN=" + "x" * 20_000 + "!", "a " * 10_000 + "!"):
        assert mapper.principal(subject).name == subject


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a).*",
        "(a)\\1",
        "(?<!x)y",
        "a*+",
        "[a-z&&[^b]]",
        "[[a]b]",
        "(?U)a",
        "\\v",
        "[^\\S]",
        "a{9999}",
    ],
)
def test_pattern_that_cannot_be_matched_as_java_does_in_linear_time_is_refused(
    pattern: str,
) -> None:
    with pytest.raises(BadMappingRules):
        PrincipalMapper(f"RULE:{pattern}/x/")


# The rows of Kafka's own SslPrincipalMapperTest, by behaviour.
@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", DUKE, "DUKE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", DUKE, "Duke@ServiceUsers"),
        ("RULE:^OU=.*$/x/, DEFAULT", DUKE, DUKE),
        (" RULE:^OU=.*$/x/ , RULE:^CN=(\\w+),.*$/$1/ ", DUKE, "Duke"),
        ("RULE:.*/fixed/U", DUKE, "FIXEDFIXED"),  # as in Java, which also finds the empty end
        ("RULE:^.*$/fixed/U", DUKE, "FIXED"),
        (",, DEFAULT ,", DUKE, DUKE),
        ("RULE:^CN=(\\w+),.*$/$1$7\\$2/", DUKE, "Duke$7$2"),
        ("RULE:^CN=a\\/b.*$/c\\/d/", "CN=a/b,O=x", "c/d"),
    ],
)
def test_first_matching_rule_names_the_principal(rules: str, subject: str, name: str) -> None:
    assert PrincipalMapper(rules).principal(subject) == Principal("User", name)


class Clock:
    """Ten minutes after the start, some time before the certificate below ends."""

    def __init__(self, left_ms: int = 30_000) -> None:
        self.left_ms = left_ms

    def now(self) -> Millis:
        end = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        return Millis(int(end.timestamp() * 1000) - self.left_ms)

    def monotonic(self) -> Millis:
        return Millis(600_000)


ALICE = certificate((NameOID.COMMON_NAME, "Alice")).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("rules", "by_certificate", "without"),
    [
        ("RULE:^CN=(.*)$/$1/L", "User:alice", "User:ANONYMOUS"),
        ("DEFAULT", "User:CN=Alice", "User:ANONYMOUS"),
        (None, None, None),
    ],
    ids=["rule", "default", "no-rules"],
)
def test_certificate_logs_in_the_principal_of_the_rules(
    rules: str | None, by_certificate: str | None, without: str | None
) -> None:
    logins = CertificateLogins(rules, Clock(), ends_with_certificate=False)
    assert logins(ALICE) == CertificateLogin(by_certificate, None)
    assert logins(None) == CertificateLogin(without, None)


@pytest.mark.parametrize(("left_ms", "ends_at"), [(30_000, 630_000), (-1, 600_000)])
def test_login_ends_with_its_certificate_on_the_monotonic_clock(left_ms: int, ends_at: int) -> None:
    logins = CertificateLogins("DEFAULT", Clock(left_ms), ends_with_certificate=True)
    assert logins(ALICE) == CertificateLogin("User:CN=Alice", Millis(ends_at))
    assert logins(None).ends_at is None


def test_certificate_that_cannot_be_read_closes_the_connection() -> None:
    logins = CertificateLogins(None, Clock(), ends_with_certificate=False)
    with pytest.raises(CertificateRefused):
        logins(ALICE[:-100])


def test_subject_without_a_matching_rule_is_refused() -> None:
    with pytest.raises(NoMatchingRule, match="Duke"):
        PrincipalMapper("RULE:^OU=(.*)$/$1/").principal(DUKE)
    with pytest.raises(NoMatchingRule, match="Duke"):
        PrincipalMapper("").principal(DUKE)


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:^CN=(.*?)$/$1/LU",
        "RULE:^CN",
        "default",
        "RULE:(/x/",
        "RULE:a/b/X",
        "RULE:a/$1/",
        "RULE:(a)/$/",
    ],
)
def test_bad_rules_are_refused(rules: str) -> None:
    with pytest.raises(BadMappingRules):
        PrincipalMapper(rules)


def test_principal_name_may_contain_colons() -> None:
    assert parse_principal("User:CN=a:b") == Principal("User", "CN=a:b")
    assert str(Principal("User", "x")) == "User:x"


JAAS = f"""
{PLAIN_MODULE} required
    username="admin" password='se;c"ret' user_admin="se\\"cret"
    user_alice=plain;
"""


def test_jaas_options_and_users_are_read() -> None:
    (module,) = parse_jaas(JAAS)
    assert module.name == PLAIN_MODULE
    assert module.options["password"] == 'se;c"ret'
    assert module.users == {"admin": 'se"cret', "alice": "plain"}
    assert "secret" not in repr(module) and "se;c" not in repr(module)


def test_jaas_takes_several_modules() -> None:
    assert [m.name for m in parse_jaas("a required; b optional x=1;")] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a required",
        "a maybe x=1;",
        "a required x;",
        "a required x=;",
        'a required x="secret;',
        "a required =1;",
        "; ",
        "a required x=secret",
        "secret",
        "secret required",
        "a secret x=1;",
        "a required secret;",
        "a required secret",
        "a required x=1 secret =;",
    ],
)
def test_bad_jaas_is_refused_without_showing_values(text: str) -> None:
    with pytest.raises(BadJaas) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)
