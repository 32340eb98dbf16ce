"""TCP behind the port: addresses, options, errors."""

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest

from ottla.runtime.network import TcpNetwork, TcpSettings
from ottla.runtime.ports import Address


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


class Asking(asyncio.Protocol):
    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data)


@pytest.fixture(autouse=True, params=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test on both loops a node may run on."""
    name = "new_event_loop"
    factory = getattr(pytest.importorskip(request.param, reason="the extra 'fast'"), name)
    monkeypatch.setitem(FACTORY, name, factory)


FACTORY: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}


def run(scenario: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=FACTORY["new_event_loop"]) as runner:
        runner.run(asyncio.wait_for(scenario, 60))


async def ask(network: TcpNetwork, address: Address) -> bytes:
    transport, protocol = await network.dial(address, Asking)
    assert isinstance(protocol, Asking)
    transport.write(b"hello")
    answer = await protocol.answer
    transport.close()
    return answer


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


LOOPBACKS = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]


@pytest.mark.parametrize("host", [*LOOPBACKS, "localhost", ""])
def test_port_0_is_resolved_and_both_families_work(host: str) -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        listener = await network.listen(Address(host, 0), Echo)
        port = listener.address.port
        assert port > 0
        if host in LOOPBACKS:
            assert listener.address == Address(host, port)
        targets = [listener.address.host] if host else LOOPBACKS
        for target in targets:
            assert await ask(network, Address(target, port)) == b"hello"
        await listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.dial(Address(targets[0], port), Asking)

    run(scenario())


def test_open_connections_outlive_their_listener() -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        listener = await network.listen(Address("127.0.0.1", 0), Echo)
        transport, protocol = await network.dial(listener.address, Asking)
        await asyncio.sleep(0)
        transport.write(b"first, so that it is accepted")
        assert isinstance(protocol, Asking)
        await protocol.answer
        await listener.close()
        protocol.answer = asyncio.get_running_loop().create_future()
        transport.write(b"still here")
        assert await protocol.answer == b"still here"
        transport.close()

    run(scenario())


def test_socket_options_are_set_on_both_ends() -> None:
    async def scenario() -> None:
        settings = TcpSettings(keepalive_idle_s=7, user_timeout_ms=1234)
        network, accepted = TcpNetwork(settings), []

        def accept() -> Echo:
            accepted.append(Echo())
            return accepted[-1]

        listener = await network.listen(Address("127.0.0.1", 0), accept)
        transport, protocol = await network.dial(listener.address, Asking)
        transport.write(b"x")
        assert isinstance(protocol, Asking)
        await protocol.answer
        for end in (transport, accepted[0].transport):
            sock = end.get_extra_info("socket")
            tcp = socket.IPPROTO_TCP
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(tcp, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(tcp, socket.TCP_KEEPIDLE) == 7
            assert sock.getsockopt(tcp, socket.TCP_KEEPINTVL) == 10
            assert sock.getsockopt(tcp, socket.TCP_KEEPCNT) == 3
            assert sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 1234
        transport.close()
        await listener.close()

    run(scenario())


def test_error_for_a_port_in_use_names_the_address() -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        listener = await network.listen(Address("127.0.0.1", 0), Echo)
        with pytest.raises(OSError, match=str(listener.address)):
            await network.listen(listener.address, Echo)
        await listener.close()

    run(scenario())


def test_handed_over_socket_is_used() -> None:
    async def scenario() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        network = TcpNetwork()
        listener = await network.listen_on(bound, Echo)
        assert listener.address == Address("127.0.0.1", port)
        assert await ask(network, listener.address) == b"hello"
        await listener.close()

    run(scenario())


def test_unknown_host_raises_os_error() -> None:
    async def scenario() -> None:
        with pytest.raises(OSError):
            await TcpNetwork().dial(Address("no-such-host.invalid", 1), Asking)

    run(scenario())


@pytest.mark.parametrize(
    ("hosts", "error"),
    [
        (["127.0.0.1", "127.0.0.2"], ConnectionRefusedError),
        (["255.255.255.255", "127.0.0.1"], OSError),
        (["127.0.0.1", "255.255.255.255"], OSError),
    ],
    ids=["all refuse", "the first is not reachable", "the last is not reachable"],
)
def test_host_is_refused_only_if_all_of_its_addresses_refuse(
    hosts: list[str], error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses(address: Address) -> list[str]:
        return hosts

    monkeypatch.setattr("ottla.runtime.network._addresses", addresses)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))

        async def scenario() -> None:
            with pytest.raises(OSError) as raised:
                await TcpNetwork().dial(Address("host", free.getsockname()[1]), Asking)
            assert (type(raised.value) is ConnectionRefusedError) == (error is not OSError)

        run(scenario())


def test_addresses_are_formatted_with_brackets_for_ipv6() -> None:
    assert str(Address("broker", 9092)) == "broker:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"
