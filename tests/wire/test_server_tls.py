"""TLS: the same bytes as without, admission before the handshake, and bad clients."""

import asyncio
import datetime
import ipaddress
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from loopback import PlainClient, run, wait_until
from serving import Counting, Running, Scripted, find, produce, running

from ottla.client.connection import Connection, Options
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.network import TcpNetwork
from ottla.runtime.ports import OpenMode
from ottla.security.tls_alerts import ServerContext
from ottla.server.admission import Admission, AdmissionLimits
from ottla.server.listener import SharedResources
from record_tools import FileRange

Scenario = Callable[[Scripted, Running], Awaitable[None]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + built.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def play(
    loop: str, certificate: Path, scenario: Scenario, *, shared: SharedResources | None = None
) -> None:
    async def main() -> None:
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        scripted = Scripted()
        async with running(
            TcpNetwork(), SystemClock(), scripted, shared=shared, tls=lambda: context
        ) as server:
            await scenario(scripted, server)

    run(loop, main())


def test_client_connects_over_tls(loop: str, certificate: Path) -> None:
    async def scenario(scripted: Scripted, server: Running) -> None:
        trust = ssl.create_default_context(cafile=str(certificate))
        options = Options(tls=lambda: trust)
        connection = await Connection.open(TcpNetwork(), server.address, options=options)
        requests = [FindCoordinatorRequest(key=str(n) * 300) for n in range(1, 300)]
        replies = await asyncio.gather(*(connection.send(r, version=0) for r in requests))
        assert [r.host for r in replies] == [r.key for r in requests]  # type: ignore[attr-defined]
        await connection.close()

    play(loop, certificate, scenario)


def test_files_over_tls_have_the_same_bytes(loop: str, certificate: Path, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(content)

    async def scenario(scripted: Scripted, server: Running) -> None:
        file = RealDisk().open(str(tmp_path / "log"), OpenMode.READ)
        scripted.chunks = [b"head", FileRange(file, 5, 2_900_000), b"tail"]
        trust = ssl.create_default_context(cafile=str(certificate))
        reader, writer = await asyncio.open_connection(
            server.address.host, server.address.port, ssl=trust
        )
        writer.write(produce(1, b"") + produce(2, b"x" * 200_000) + find(3))
        for n in (1, 2):
            length = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(length)
            assert frame[3] == n
            assert frame[4:] == b"head" + content[5:2_900_005] + b"tail"
        await reader.readexactly(4)
        writer.close()
        file.close()

    play(loop, certificate, scenario)


def test_plaintext_on_the_tls_port_is_rejected_and_uncounted(
    loop: str, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admission, events = Admission(AdmissionLimits()), Counting()

    async def scenario(scripted: Scripted, server: Running) -> None:
        plain = await PlainClient.to(server.address)
        await plain.send(find(1))
        while await plain._loop.sock_recv(plain.sock, 1000):
            pass  # an alert, perhaps, then the end
        plain.close()
        await wait_until(lambda: admission.describe() == {"total": 0})
        assert events.bad == 1 and scripted.seen == []

    with caplog.at_level(logging.INFO):
        play(
            loop, certificate, scenario, shared=SharedResources(admission=admission, events=events)
        )
    assert "connection failed listener=CLIENT peer=127.0.0.1:" in caplog.text


def test_failed_handshake_is_answered_with_an_alert(loop: str, certificate: Path) -> None:
    admission = Admission(AdmissionLimits())

    async def scenario(scripted: Scripted, server: Running) -> None:
        client = ssl.create_default_context(cafile=str(certificate))
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        client.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")  # the certificate is of another kind
        with pytest.raises(ssl.SSLError, match="ALERT_HANDSHAKE_FAILURE"):
            await asyncio.open_connection(server.address.host, server.address.port, ssl=client)
        await wait_until(lambda: admission.describe() == {"total": 0})

    play(loop, certificate, scenario, shared=SharedResources(admission=admission))


def test_client_that_closes_during_the_handshake_is_uncounted(loop: str, certificate: Path) -> None:
    admission = Admission(AdmissionLimits())

    async def scenario(scripted: Scripted, server: Running) -> None:
        silent = [await PlainClient.to(server.address) for _ in range(5)]
        await wait_until(lambda: admission.describe()["total"] == 5)
        for each in silent:
            await each.send(b"\x16\x03\x01")
            each.close()
        await wait_until(lambda: admission.describe() == {"total": 0})

    play(loop, certificate, scenario, shared=SharedResources(admission=admission))


def test_probe_that_connects_and_closes_is_no_warning(
    loop: str, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Liveness probes and the controller only look whether a port is open."""
    admission, events = Admission(AdmissionLimits()), Counting()

    async def scenario(scripted: Scripted, server: Running) -> None:
        probe = await PlainClient.to(server.address)
        await wait_until(lambda: admission.describe()["total"] == 1)
        probe.close()
        await wait_until(lambda: admission.describe() == {"total": 0})
        assert events.bad == 0

    with caplog.at_level(logging.INFO):
        play(
            loop, certificate, scenario, shared=SharedResources(admission=admission, events=events)
        )
    assert "connection failed" not in caplog.text


def test_connections_above_the_limit_are_rejected_before_the_handshake(
    loop: str, certificate: Path
) -> None:
    admission, events = Admission(AdmissionLimits(connections_max=2)), Counting()

    async def scenario(scripted: Scripted, server: Running) -> None:
        clients = [await PlainClient.to(server.address) for _ in range(30)]
        await wait_until(lambda: len(events.refused) == 28)
        for each in clients:
            each.close()

    play(loop, certificate, scenario, shared=SharedResources(admission=admission, events=events))


def test_stop_does_not_wait_for_a_handshake(loop: str, certificate: Path) -> None:
    admission = Admission(AdmissionLimits())

    async def scenario(scripted: Scripted, server: Running) -> None:
        silent = await PlainClient.to(server.address)
        await wait_until(lambda: admission.describe()["total"] == 1)
        began = asyncio.get_running_loop().time()
        server.task.cancel()
        await asyncio.wait([server.task])
        assert asyncio.get_running_loop().time() - began < 5
        assert admission.describe() == {"total": 0}
        silent.close()

    play(loop, certificate, scenario, shared=SharedResources(admission=admission))
