"""Client certificates that expire, or are no longer trusted, between two connections."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from loopback import run
from serving import Running, Scripted, find, running

from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import Address
from ottla.security.certificate_login import CertificateLogins, LoginByCertificate
from ottla.security.principal import CertificateRefused
from ottla.security.tls import TlsContexts, server_context
from ottla.security.tls_settings import StoreSettings, TlsSettings
from ottla.server.listener import ServerSettings

VALID_S = 4
SECONDS_MAX = 30
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
REFUSED = (ssl.SSLError, ConnectionError)


class Authority:
    """Issues certificates that are valid for seconds."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._signed(self.name, self.key, 3600, (basic, True))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, seconds: int) -> bytes:
        """Return a key and a certificate of a node or client in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        made = self._signed(subject, key, seconds, (names, False))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return private + made.public_bytes(Encoding.PEM)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        seconds: int,
        extension: tuple[x509.ExtensionType, bool],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(seconds=seconds))
            .add_extension(extension[0], critical=extension[1])
            .sign(self.key, hashes.SHA256())
        )


@dataclass
class Client:
    """A client that keeps its TLS session from one connection to the next."""

    context: ssl.SSLContext
    session: ssl.SSLSession | None = None

    @classmethod
    def of(cls, trusted: bytes, store: Path, version: ssl.TLSVersion) -> "Client":
        context = ssl.create_default_context(cadata=trusted.decode())
        context.load_cert_chain(store)
        context.minimum_version = context.maximum_version = version
        return cls(context)

    def login(self, address: Address) -> bool:
        """Send a request and receive its reply; return whether the session was resumed."""
        plain = socket.create_connection((address.host, address.port), SECONDS_MAX)
        with self.context.wrap_socket(
            plain, server_hostname="localhost", session=self.session
        ) as sock:
            sock.sendall(find(1))
            if not sock.recv(4):
                raise ConnectionResetError("closed")
            self.session = sock.session
            with contextlib.suppress(OSError):
                sock.unwrap()  # a session is kept only if the connection ends in order
            return bool(sock.session_reused)


def serve(
    loop: str,
    contexts: TlsContexts,
    scenario: Callable[[Running], object],
    logins: LoginByCertificate | None = None,
) -> None:
    """Run a scenario with blocking sockets beside a server."""

    async def main() -> None:
        async with running(
            TcpNetwork(),
            SystemClock(),
            Scripted(),
            tls=contexts.get,
            certificate_login=logins,
            settings=ServerSettings(sweep_ms=50),
        ) as server:
            await asyncio.to_thread(scenario, server)

    run(loop, main())


def listener(tmp_path: Path, ca: Authority, client_auth: str = "required") -> TlsContexts:
    (tmp_path / "node.pem").write_bytes(ca.issue("node", 3600))
    (tmp_path / "ca.pem").write_bytes(ca.pem)
    settings = TlsSettings(
        key_store=StoreSettings(type="PEM", location=str(tmp_path / "node.pem")),
        trust_store=StoreSettings(type="PEM", location=str(tmp_path / "ca.pem")),
        client_auth=client_auth,
    )
    return TlsContexts(settings, server_context)


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("client_auth", ["required", "requested"])
def test_expired_certificate_does_not_log_in_by_a_resumed_session(
    loop: str, client_auth: str, tmp_path: Path
) -> None:
    ca = Authority("ca")
    store = tmp_path / "client.pem"

    def scenario(server: Running) -> None:
        expires = time.time() + VALID_S
        store.write_bytes(ca.issue("carol", VALID_S))
        clients = [Client.of(ca.pem, store, version) for version in VERSIONS]
        for client in clients:
            client.login(server.address)
        while time.time() <= expires + 1:
            time.sleep(0.1)
        for client in clients:
            with pytest.raises(REFUSED):
                client.login(server.address)

    serve(loop, listener(tmp_path, ca, client_auth), scenario)


@pytest.mark.parametrize("client_auth", ["required", "requested"])
def test_listener_with_client_certificates_hands_out_no_tickets(
    loop: str, client_auth: str, tmp_path: Path
) -> None:
    ca = Authority("ca")
    store = tmp_path / "client.pem"
    store.write_bytes(ca.issue("carol", 3600))

    def scenario(server: Running) -> None:
        for version in VERSIONS:
            client = Client.of(ca.pem, store, version)
            client.login(server.address)
            assert client.session is not None and not client.session.has_ticket
        assert not client.login(server.address), "TLS 1.3 has no resumption but by tickets"

    serve(loop, listener(tmp_path, ca, client_auth), scenario)


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_session_of_a_certificate_that_is_no_longer_trusted_is_not_resumed(
    loop: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    ca, other = Authority("ca"), Authority("other")
    store = tmp_path / "client.pem"
    store.write_bytes(ca.issue("carol", 3600))
    contexts = listener(tmp_path, ca)

    def scenario(server: Running) -> None:
        client = Client.of(ca.pem, store, version)
        client.login(server.address)
        (tmp_path / "ca.pem").write_bytes(other.pem)
        contexts.reload()
        with pytest.raises(REFUSED):
            client.login(server.address)

    serve(loop, contexts, scenario)


@pytest.mark.parametrize("rules", ["DEFAULT", None], ids=["by certificate", "by SASL"])
def test_connection_ends_with_its_certificate_where_clients_must_reauthenticate(
    rules: str | None, tmp_path: Path
) -> None:
    ca = Authority("ca")
    store = tmp_path / "client.pem"

    def scenario(server: Running) -> None:
        store.write_bytes(ca.issue("carol", VALID_S))
        expires = time.time() + VALID_S
        context = Client.of(ca.pem, store, VERSIONS[-1]).context
        plain = socket.create_connection((server.address.host, server.address.port), SECONDS_MAX)
        with context.wrap_socket(plain, server_hostname="localhost") as sock:
            sock.sendall(find(1))
            length = int.from_bytes(sock.recv(4), "big")
            assert len(sock.recv(length)) == length
            assert sock.recv(1) == b"", "the server closes, the client sends nothing"
            assert time.time() >= expires - 1

    logins = CertificateLogins(rules, SystemClock(), ends_with_certificate=True)
    serve("asyncio", listener(tmp_path, ca), scenario, logins)


def test_unreadable_certificate_is_refused() -> None:
    logins = CertificateLogins("DEFAULT", SystemClock(), ends_with_certificate=False)
    with pytest.raises(CertificateRefused):
        logins(b"\x30\x03\x02\x01\x01")


def test_connection_outlives_its_certificate_unless_clients_must_reauthenticate() -> None:
    ca = Authority("ca")
    certificate = ca.certificate.public_bytes(Encoding.DER)
    clock = SystemClock()
    lasting = CertificateLogins("DEFAULT", clock, ends_with_certificate=False)
    assert lasting(certificate) == ("User:CN=ca", None)
    assert lasting(None) == ("User:ANONYMOUS", None)
    ending = CertificateLogins(None, clock, ends_with_certificate=True)
    login = ending(certificate)
    assert login.principal is None and login.ends_at is not None
    assert 3_500_000 < login.ends_at - clock.monotonic() <= 3_600_000
