"""Principals of certificates, mapping rules, and JAAS configurations."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ottla.security.certificates import subject_name
from ottla.security.jaas import PLAIN_MODULE, BadJaas, parse_jaas
from ottla.security.principal import (
    BadMappingRules,
    NoMatchingRule,
    Principal,
    PrincipalMapper,
    parse_principal,
)

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


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [
                (NameOID.COUNTRY_NAME, "US"),
                (NameOID.ORGANIZATION_NAME, "Org, Inc."),
                (NameOID.COMMON_NAME, "kafka1"),
            ],
            "CN=kafka1,O=Org\\, Inc.,C=US",
        ),
        ([(NameOID.COMMON_NAME, " a+b;c\\ ")], "CN=\\ a\\+b\\;c\\\\\\ "),
        ([(NameOID.COMMON_NAME, "#x")], "CN=\\#x"),
        ([(NameOID.EMAIL_ADDRESS, "a@b")], "1.2.840.113549.1.9.1=#1603614062"),
        ([], ""),
    ],
)
def test_subject_is_written_as_java_writes_it(
    names: list[tuple[x509.ObjectIdentifier, str]], expected: str
) -> None:
    assert subject_name(certificate(*names)) == expected


# The rows of Kafka's own SslPrincipalMapperTest, by behaviour.
@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("", DUKE, DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", DUKE, "DUKE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", DUKE, "Duke@ServiceUsers"),
        ("RULE:^OU=.*$/x/, DEFAULT", DUKE, DUKE),
        (" RULE:^OU=.*$/x/ , RULE:^CN=(\\w+),.*$/$1/ ", DUKE, "Duke"),
        ("RULE:.*/fixed/U", DUKE, "FIXED"),
        ("RULE:^CN=a\\/b.*$/c\\/d/", "CN=a/b,O=x", "c/d"),
    ],
)
def test_first_matching_rule_names_the_principal(rules: str, subject: str, name: str) -> None:
    assert PrincipalMapper(rules).principal(subject) == Principal("User", name)


def test_subject_without_a_matching_rule_is_refused() -> None:
    with pytest.raises(NoMatchingRule, match="Duke"):
        PrincipalMapper("RULE:^OU=(.*)$/$1/").principal(DUKE)


@pytest.mark.parametrize(
    "rules", ["RULE:^CN=(.*?)$/$1/LU", "RULE:^CN", "default", "RULE:(/x/", "RULE:a/b/X"]
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
    ],
)
def test_bad_jaas_is_refused_without_showing_values(text: str) -> None:
    with pytest.raises(BadJaas) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)
