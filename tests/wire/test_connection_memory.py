"""Memory of connections: it is free once they have closed, and bounded before a login.

The numbers are rows of docs/faults.md. The node with real processes is measured from outside.
"""

import asyncio
import gc
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
import trustme
from loopback import PlainClient, run, wait_until
from secure_node import SecureNode
from secure_process import SecureProcess, secure_process
from serving import Running, Scripted, find, running
from test_security_attacks import HELLO, connect, prove, shake

from ottla.runtime.clock import SystemClock
from ottla.runtime.network import TcpNetwork
from ottla.security.sasl.plain import PlainExchange
from ottla.security.sasl.session import SaslSession
from ottla.security.tls_alerts import ServerContext
from ottla.server.accepted_socket import AcceptedSocket
from ottla.server.connection import Connection
from ottla.server.events import NoEvents
from ottla.server.listener import SharedResources
from ottla.server.receive_buffer import ReceiveBuffer
from ottla.server.request_memory import RequestMemory
from ottla.server.request_runner import RequestRunner
from ottla.server.sasl_authenticator import SaslAuthenticator

FREED = (AcceptedSocket, Connection, ReceiveBuffer, RequestRunner)
LOGIN_FRAME_BYTES_MAX: Final = 400_000
CONNECTIONS: Final = 8
FRAME_BYTES: Final = 200_000
PARALLEL: Final = 25
"""Connections open at the same time; fewer than the kernel queues for the node to accept."""
WARM_UP: Final = 200
"""Connections before the first measurement: code that is loaded once, and free lists."""
RETURN_S_MAX: Final = 60
"""The node returns free memory at most every 10 s."""


# -- what is freed ------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of its clients."""
    ca = trustme.CA()
    leaf = ca.issue_cert("localhost")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes())
    server, client = ServerContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(path)
    ca.configure_trust(client)
    return server, client


def sasl_authenticator() -> SaslAuthenticator:
    session = SaslSession({"PLAIN": lambda: PlainExchange({}.get)}, SystemClock(), 0)
    return SaslAuthenticator(
        session, NoEvents(), frame_bytes_max=LOGIN_FRAME_BYTES_MAX, failure_delay_ms=0
    )


def answered(sock: socket.socket) -> None:
    sock.sendall(find(1))
    assert sock.recv(4)


def half_frame(sock: socket.socket) -> None:
    sock.sendall(struct.pack(">i", FRAME_BYTES) + bytes(FRAME_BYTES // 2))


def half_login(sock: socket.socket) -> None:
    sock.sendall(shake("PLAIN"))
    assert sock.recv(4)


def no_hello(sock: socket.socket) -> None:
    sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
    with suppress(OSError):
        sock.recv(4)


def alive() -> Counter[str]:
    found = gc.get_objects()
    return Counter(type(each).__name__ for each in found if isinstance(each, FREED))


@pytest.mark.parametrize(
    ("act", "has_tls", "has_login"),
    [
        (answered, False, False),
        (half_frame, False, False),
        (answered, True, False),
        (no_hello, True, False),
        (half_login, False, True),
        (half_frame, False, True),
    ],
    ids=["plain", "half frame", "tls", "no tls hello", "half login", "half frame before login"],
)
def test_closed_connection_is_freed_without_the_garbage_collector(
    act: Callable[[socket.socket], None],
    has_tls: bool,
    has_login: bool,
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_tls, client_tls = tls

    def attack(port: int) -> None:
        for _ in range(CONNECTIONS):
            with socket.create_connection(("127.0.0.1", port), 20) as plain:
                if has_tls and act is not no_hello:
                    with client_tls.wrap_socket(plain, server_hostname="localhost") as encrypted:
                        act(encrypted)
                else:
                    act(plain)

    async def main() -> None:
        async with running(
            TcpNetwork(),
            SystemClock(),
            Scripted(),
            tls=(lambda: server_tls) if has_tls else None,
            authenticator=sasl_authenticator if has_login else None,
        ) as server:
            await asyncio.to_thread(attack, server.address.port)
            await wait_until(lambda: not server.server._accepted)
            gc.collect()
            before = alive()
            gc.disable()
            try:
                await asyncio.to_thread(attack, server.address.port)
                await wait_until(lambda: not server.server._accepted)
                await wait_until(lambda: alive() <= before)
            finally:
                gc.enable()

    run("uvloop", main())


# -- what is bounded ----------------------------------------------------------------


def test_large_frames_before_the_login_wait_for_a_common_limit() -> None:
    shared = SharedResources(login_memory=RequestMemory(FRAME_BYTES))

    async def scenario(server: Running) -> None:
        peers = [await PlainClient.to(server.address) for _ in range(CONNECTIONS)]
        for peer in peers:
            await peer.send(struct.pack(">i", FRAME_BYTES))
        await wait_until(lambda: shared.login_memory.used == FRAME_BYTES + 4)
        await wait_until(lambda: len(shared.login_memory._waiting) == CONNECTIONS - 1)
        waiting = shared.login_memory._waiting
        for peer in peers[:-1]:
            before = len(waiting)
            peer.close()
            await wait_until(lambda: len(waiting) < before)  # noqa: B023 - called here
            assert shared.login_memory.used == FRAME_BYTES + 4
        peers[-1].close()
        await wait_until(lambda: shared.login_memory.used == 0)

    async def main() -> None:
        async with running(
            TcpNetwork(), SystemClock(), Scripted(), shared=shared, authenticator=sasl_authenticator
        ) as server:
            await scenario(server)

    run("uvloop", main())


# -- a node, measured from outside --------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureProcess]:
    with secure_process(SecureNode(tmp_path_factory.mktemp("node"))) as running:
        yield running


def plain(node: SecureProcess) -> socket.socket:
    line = connect(node.secure, "OPEN")
    line.send(HELLO)
    line.frame()
    return line.sock


def encrypted(node: SecureProcess) -> socket.socket:
    line = connect(node.secure, "TLS")
    line.send(HELLO)
    line.frame()
    return line.sock


def login_half_way(node: SecureProcess) -> socket.socket:
    line = connect(node.secure, "LOGIN")
    line.send(shake("SCRAM-SHA-256"))
    line.frame()
    line.send(prove(b"n,,n=alice,r=abcdef"))
    line.frame()
    return line.sock


def incomplete_frame(node: SecureProcess) -> socket.socket:
    line = connect(node.secure, "OPEN")
    line.send(struct.pack(">i", 100 * 1024 * 1024) + bytes(FRAME_BYTES))
    return line.sock


def incomplete_login(node: SecureProcess) -> socket.socket:
    line = connect(node.secure, "LOGIN")
    line.send(struct.pack(">i", FRAME_BYTES) + bytes(FRAME_BYTES // 2))
    return line.sock


def rejected_hello(node: SecureProcess) -> socket.socket:
    sock = socket.create_connection(("localhost", node.secure.ports["TLS"]), 20)
    no_hello(sock)
    return sock


KINDS = (plain, encrypted, login_half_way, incomplete_frame, incomplete_login, rejected_hello)


def open_and_close(node: SecureProcess, kind: Callable[..., socket.socket], count: int) -> None:
    for start in range(0, count, PARALLEL):
        opened = [kind(node) for _ in range(min(PARALLEL, count - start))]
        for sock in opened:
            sock.close()


def assert_memory_returns(
    node: SecureProcess, kind: Callable[..., socket.socket], count: int, bytes_max: int
) -> None:
    open_and_close(node, kind, WARM_UP)
    before = node.resident_bytes
    open_and_close(node, kind, count)
    after = node.wait_resident(before + bytes_max, RETURN_S_MAX)
    print(f"{kind.__name__}: {count} connections, {(after - before) / 1e6:+.1f} MB")
    assert after - before <= bytes_max


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_closed_connections_returns(
    node: SecureProcess, kind: Callable[..., socket.socket]
) -> None:
    assert_memory_returns(node, kind, 1000, 10_000_000)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_ten_thousand_closed_connections_returns(
    node: SecureProcess, kind: Callable[..., socket.socket]
) -> None:
    assert_memory_returns(node, kind, 10_000, 20_000_000)


def test_memory_of_huge_incomplete_frames_returns(node: SecureProcess) -> None:
    before = node.resident_bytes
    for _ in range(10):
        line = connect(node.secure, "OPEN")
        line.send(struct.pack(">i", 100 * 1024 * 1024))
        for _ in range(95):
            line.send(bytes(1024 * 1024))
        line.sock.close()
    assert node.wait_resident(before + 20_000_000, RETURN_S_MAX) <= before + 20_000_000
