"""The store and the forwarding of the schema registry: waits, time-outs, and bytes on the wire."""

import asyncio
from typing import Any, cast

import pytest

from ottla.protocol.types import Millis, Offset
from ottla.registry import forwarding
from ottla.registry import store as store_module
from ottla.registry.client_hosts import NodeAddresses, named_host
from ottla.registry.forwarding import ForwardingSettings, LeaderAddress, LeaderForwarding
from ottla.registry.http_call import HOST_HEADER, RawRequest
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.errors import Rejection
from ottla.registry.service import LeaderUnreachable
from ottla.registry.store import NotLeading, SchemaStore, StorePorts
from ottla.runtime.ports import Address
from simulation.loop import run_simulated


def new_store(timeout_ms: int = 10_000) -> SchemaStore:
    """Return the store of a node that hosts no partition."""
    unused = cast(Any, None)
    return SchemaStore(StorePorts(lambda: None, unused, unused, unused, timeout_ms))


# -- waits of the store -------------------------------------------------------------------


def test_write_waits_for_earlier_ones_and_gives_up_in_time() -> None:
    async def main() -> None:
        store, loop = new_store(), asyncio.get_running_loop()
        await store._lock.acquire()  # an earlier write that does not end
        began = loop.time()
        with pytest.raises(Rejection, check=lambda error: error.code == 50002):
            await store.write(lambda state: Decision(None))
        assert loop.time() - began == pytest.approx(10)
        async with asyncio.TaskGroup() as tasks:
            later = tasks.create_task(_write(store))
            await asyncio.sleep(5)
            assert not later.done()
            store._lock.release()
        assert later.result() == "not leading"

    run_simulated(main())


async def _write(store: SchemaStore) -> str:
    try:
        await store.write(lambda state: Decision(None))
    except NotLeading:
        return "not leading"
    return "written"


def test_writes_beyond_the_limit_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "WRITES_WAITING_MAX", 2)

    async def main() -> None:
        store = new_store()
        await store._lock.acquire()
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(_write(store)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Rejection, check=lambda error: "Too many" in error.message):
                await store.write(lambda state: Decision(None))
            store._lock.release()
        assert [task.result() for task in waiting] == ["not leading"] * 2

    run_simulated(main())


def test_requests_wait_for_the_topic_after_a_start() -> None:
    async def main() -> None:
        store, loop = new_store(), asyncio.get_running_loop()
        began = loop.time()
        assert not await store.wait_loaded(5)
        assert loop.time() - began == pytest.approx(5)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(store.wait_loaded(5))
            await asyncio.sleep(1)
            store._loaded()
            await store._notify()
        assert waiting.result()
        assert await store.wait_loaded(0)

    run_simulated(main())


def test_reader_of_its_own_write_waits_for_the_offset() -> None:
    async def main() -> None:
        store = new_store()
        assert not await store.wait_applied(Offset(3), 2)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(store.wait_applied(Offset(3), 2))
            await asyncio.sleep(1)
            store.applied = Offset(3)
            await store._notify()
        assert waiting.result()

    run_simulated(main())


# -- forwarding ---------------------------------------------------------------------------


def forwarding_to(
    monkeypatch: pytest.MonkeyPatch, address: Address, *, is_tls: bool
) -> LeaderForwarding:
    monkeypatch.setattr(forwarding, "leader_address", lambda image: LeaderAddress(address, is_tls))
    watch = cast(Any, type("Watch", (), {"image": None})())
    return LeaderForwarding(watch, lambda: None, ForwardingSettings())


def test_request_is_not_forwarded_in_clear_text_where_tls_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = forwarding_to(monkeypatch, Address("127.0.0.1", 1), is_tls=True)
    request = RawRequest("POST", "/subjects/s/versions", (("authorization", "Basic x"),), b"{}")
    with pytest.raises(LeaderUnreachable, match="needs TLS") as caught:
        asyncio.run(leader.send(request))
    assert caught.value.is_certain


def test_names_outside_ascii_are_forwarded_as_they_were_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        received.append(head + await reader.readexactly(2))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-ottla-applied: 7\r\n\r\n{}")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            leader = forwarding_to(monkeypatch, Address("127.0.0.1", port), is_tls=False)
            headers = (("authorization", "Bearer x"), ("x-other", "y"), (HOST_HEADER, "192.0.2.7"))
            path = "/subjects/gr%C3%BC%C3%9Fe/versions?normalize=true"
            reply = await leader.send(RawRequest("POST", path, headers, b"{}"))
        assert (reply.status, reply.body) == (200, b"{}")
        assert dict(reply.headers) == {"x-ottla-applied": "7"}

    asyncio.run(main())
    head = received[0].lower()
    assert head.startswith(b"post /subjects/gr%c3%bc%c3%9fe/versions?normalize=true http/1.1")
    assert b"authorization: bearer x" in head
    assert b"x-forward: true" in head
    assert b"x-ottla-client-host: 192.0.2.7" in head
    assert b"x-other" not in head


# -- hosts of clients ---------------------------------------------------------------------


class FixedClock:
    def __init__(self) -> None:
        self.time = 0

    def monotonic(self) -> Millis:
        return Millis(self.time)


class Endpoint:
    def __init__(self, host: str) -> None:
        self.host = host


def image_with(*hosts: str) -> Any:
    listeners = {str(number): Endpoint(host) for number, host in enumerate(hosts)}
    broker = type("Broker", (), {"listeners": listeners})()
    cluster = type("Cluster", (), {"brokers": {1: broker}})()
    return type("Image", (), {"cluster": cluster})()


def test_addresses_of_brokers_are_known_by_number_and_by_name() -> None:
    async def main() -> None:
        nodes = NodeAddresses(lambda: image_with("192.0.2.1", "localhost"), cast(Any, FixedClock()))
        assert await nodes.has("192.0.2.1")
        assert await nodes.has("::ffff:192.0.2.1")
        assert await nodes.has("127.0.0.1")
        assert not await nodes.has("192.0.2.9")
        assert not await nodes.has("no address")

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "1.2.3.4, 5.6.7.8", "\x00"])
def test_header_that_names_no_address_is_ignored(text: str) -> None:
    assert named_host({HOST_HEADER: text}) is None
    assert named_host({HOST_HEADER: "2001:db8::1"}) == "2001:db8::1"
