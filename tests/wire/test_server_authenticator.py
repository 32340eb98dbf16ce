"""The authenticator interface, with an authenticator that checks only a password."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serving import Running, Scripted, Wire, ask, find, framed, produce, running

from ottla.api.surface.replies import NO_REPLY, Answer, Result
from ottla.api.surface.routes import Caller
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.schema import Message
from ottla.server.authenticator import Treatment
from simulation.clock import SimClock
from simulation.loop import run_simulated
from simulation.network import SimNetwork


@dataclass
class Password:
    frame_bytes_max: int = 1000
    principal: str | None = None
    expects_token: bool = False

    login = None

    @property
    def admits_all(self) -> bool:
        return self.principal is not None and not self.expects_token

    def receive(self, key: ApiKey) -> Treatment:
        early = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        is_served = self.principal is not None or key in early
        return Treatment.SERVE if is_served else Treatment.CLOSE

    def note_api_versions(self) -> None:
        pass

    async def handle(self, caller: Caller, request: Message, version: int) -> object:
        await asyncio.sleep(0.1)
        if isinstance(request, SaslHandshakeRequest):
            self.expects_token = version == 0
            return SaslHandshakeResponse()
        assert isinstance(request, SaslAuthenticateRequest)
        self.principal = f"User:{request.auth_bytes.decode()}"
        return SaslAuthenticateResponse()

    def take_token(self, caller: Caller, token: bytes) -> Result:
        self.expects_token = False
        if token == b"wrong":
            return Answer(NO_REPLY, close=True)
        self.principal = f"User:{token.decode()}"
        return [b"welcome"]


def play(scenario: Callable[[Scripted, Running, Wire], Awaitable[None]]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        network = SimNetwork(loop, seed=1)
        scripted = Scripted()
        async with running(
            network.port_of("server"), SimClock(loop), scripted, authenticator=Password
        ) as server:
            await scenario(
                scripted, server, await Wire.to(network.port_of("client"), server.address)
            )

    run_simulated(main())


HELLO = ask(ApiKey.API_VERSIONS, 3, 0, ApiVersionsRequest("a", "1"))
CHOOSE = ask(ApiKey.SASL_HANDSHAKE, 1, 1, SaslHandshakeRequest("PLAIN"))
PROVE = ask(ApiKey.SASL_AUTHENTICATE, 0, 2, SaslAuthenticateRequest(b"ann"))


def test_request_pipelined_after_authentication_is_served_as_the_principal() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(HELLO + CHOOSE + PROVE + find(3))
        assert await wire.correlation_ids(4) == [0, 1, 2, 3]
        assert scripted.callers[0].principal == "User:ann"

    play(scenario)


def test_other_requests_before_authentication_close_the_connection() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(CHOOSE + find(3) + PROVE)
        assert await wire.correlation_ids(1) == [1]
        assert await wire.is_closed()
        assert scripted.seen == []

    play(scenario)


def test_large_frame_is_rejected_before_authentication_and_accepted_after() -> None:
    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(CHOOSE + PROVE + produce(3, bytes(5000)))
        assert await wire.correlation_ids(3) == [1, 2, 3]
        network = wire.transport._wire  # type: ignore[attr-defined]
        early = await Wire.to(network.port_of("other"), server.address)
        early.send(struct.pack(">i", 1001))
        began = asyncio.get_running_loop().time()
        assert await early.is_closed()
        assert asyncio.get_running_loop().time() - began < 1, "at once, not by a deadline"

    play(scenario)


def test_token_without_header_is_answered_without_header() -> None:
    choose = ask(ApiKey.SASL_HANDSHAKE, 0, 1, SaslHandshakeRequest("PLAIN"))

    async def scenario(scripted: Scripted, server: Running, wire: Wire) -> None:
        wire.send(choose + framed(b"bob") + find(3))
        assert await wire.correlation_ids(1) == [1]
        assert await wire.frame() == b"welcome"
        assert await wire.correlation_ids(1) == [3]
        assert scripted.callers[0].principal == "User:bob"
        network = wire.transport._wire  # type: ignore[attr-defined]
        other = await Wire.to(network.port_of("other"), server.address)
        other.send(choose + framed(b"wrong") + find(3))
        assert await other.correlation_ids(1) == [1]
        assert await other.is_closed()

    play(scenario)
