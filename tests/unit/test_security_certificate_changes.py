"""Which certificate may replace another one while a node runs."""

import datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from msgspec.structs import replace

from ottla.config.layers import Layers
from ottla.config.loading import load
from ottla.node.security.security_port import build_security
from ottla.protocol.types import Millis
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandom
from ottla.security.certificate_changes import ChangeRules, check_change, covers
from ottla.security.tls_settings import BadTls

CA = trustme.CA()
NOW = SystemClock().now()
HOST = ChangeRules(host="broker1.example.com")
STRICT = ChangeRules(allows_dn_changes=False, allows_san_changes=False)


def leaf(
    *names: str, unit: str = "unit", not_after: datetime.datetime | None = None
) -> trustme.LeafCert:
    return CA.issue_cert(*names, organization_unit_name=unit, not_after=not_after)


def certificate(*names: str, unit: str = "unit") -> x509.Certificate:
    return x509.load_pem_x509_certificate(leaf(*names, unit=unit).cert_chain_pems[0].bytes())


OLD = certificate("broker1.example.com", "127.0.0.1")


@pytest.mark.parametrize(
    ("names", "host", "is_covered"),
    [
        (("broker1.example.com",), "broker1.example.com", True),
        (("broker1.example.com",), "BROKER1.example.com.", True),
        (("*.example.com",), "broker1.example.com", True),
        (("*.example.com",), "a.broker1.example.com", False),
        (("broker1.example.com",), "127.0.0.1", False),
        (("127.0.0.1", "::1"), "127.0.0.1", True),
        (("127.0.0.1", "::1"), "0:0:0:0:0:0:0:1", True),
    ],
)
def test_certificate_covers_its_names(names: tuple[str, ...], host: str, is_covered: bool) -> None:
    assert covers(certificate(*names), host) is is_covered


def test_expired_certificate_is_refused() -> None:
    late = Millis(NOW + 1100 * 365 * 86_400_000)
    with pytest.raises(BadTls, match="expired on"):
        check_change(OLD, certificate("broker1.example.com"), HOST, late)
    with pytest.raises(BadTls, match="not valid before"):
        check_change(OLD, certificate("broker1.example.com"), HOST, Millis(0))
    check_change(OLD, OLD, HOST, late)  # nothing changes


def test_certificate_that_loses_the_advertised_name_is_refused() -> None:
    with pytest.raises(BadTls, match="does not cover the advertised name"):
        check_change(OLD, certificate("broker2.example.com"), HOST, NOW)
    check_change(OLD, certificate("*.example.com"), HOST, NOW)
    other = certificate("broker2.example.com")
    check_change(other, certificate("broker3.example.com"), HOST, NOW)  # never covered it


def test_altered_store_keeps_subject_and_names_as_in_kafka() -> None:
    wider = certificate("broker1.example.com", "127.0.0.1", "more.example.com")
    check_change(OLD, wider, STRICT, NOW)
    with pytest.raises(BadTls, match=r"ssl\.allow\.san\.changes"):
        check_change(wider, OLD, STRICT, NOW)
    check_change(wider, OLD, replace(STRICT, allows_san_changes=True), NOW)
    renamed = certificate("broker1.example.com", "127.0.0.1", unit="other")
    with pytest.raises(BadTls, match=r"ssl\.allow\.dn\.changes"):
        check_change(OLD, renamed, STRICT, NOW)
    check_change(OLD, renamed, replace(STRICT, allows_dn_changes=True), NOW)


def settings(root: Path, *lines: str) -> str:
    return (
        "process.roles=broker\nnode.id=1\nlisteners=TLS://:9093\n"
        "advertised.listeners=TLS://broker1.example.com:9093\n"
        "controller.quorum.bootstrap.servers=h:1\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=TLS:SSL,CONTROLLER:PLAINTEXT\n"
        f"inter.broker.listener.name=TLS\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={root / 'node.pem'}\nssl.truststore.location={root / 'ca.pem'}\n"
        + "\n".join(lines)
    )


def write(path: Path, made: trustme.LeafCert) -> None:
    made.private_key_and_cert_chain_pem.write_to_path(str(path))


def test_reload_keeps_the_old_certificate_if_clients_would_refuse_the_new_one(
    tmp_path: Path,
) -> None:
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    write(tmp_path / "node.pem", leaf("broker1.example.com"))
    security = build_security(load(settings(tmp_path)), SystemClock(), SystemRandom())
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    write(tmp_path / "node.pem", leaf("broker1.example.com", not_after=yesterday))
    with pytest.raises(BadTls, match="expired on"):
        security.reload_tls()
    write(tmp_path / "node.pem", leaf("broker2.example.com"))
    with pytest.raises(BadTls, match="advertised name"):
        security.reload_tls()
    write(tmp_path / "node.pem", leaf("broker1.example.com", unit="renewed"))
    security.reload_tls()


def test_altered_store_is_checked_against_the_one_in_force(tmp_path: Path) -> None:
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    write(tmp_path / "node.pem", leaf("broker1.example.com"))
    write(tmp_path / "other.pem", leaf("broker1.example.com", unit="other"))
    for lines, is_refused in (((), True), (("ssl.allow.dn.changes=true",), False)):
        loaded = load(settings(tmp_path, *lines))
        security = build_security(loaded, SystemClock(), SystemRandom())
        altered = {"listener.name.tls.ssl.keystore.location": str(tmp_path / "other.pem")}
        problems = security.store_problems("TLS", Layers(altered, {}, loaded.static))
        assert bool(problems) is is_refused, problems
