"""A connection to one Kafka node, with many requests in flight at once.

    connection = await Connection.open(network, address, client_id="broker-1")
    response = await connection.send(MetadataRequest(), timeout_ms=5000)
    await connection.close()

Requests may be sent without waiting for earlier replies; the node answers in order, and each
reply is matched by its correlation id. Versions are negotiated once, when the connection opens, and
a request is sent in the highest version that both sides support.

A reply is a message that belongs to the caller. For replies of megabytes the caller passes a
`Reader`, which sees the reply in the receive buffer, also in part while more of it is received. A
reader may answer a reply with the next request, which is sent before anything else happens: the
caller is not woken, and gets the first reply that was not answered.

A request without a reply in time closes the connection, as in Kafka: replies arrive in order, so no
later reply would arrive either. A cancelled caller does not close it: its reply is dropped.

A SASL session that ends soon is renewed before the next request (KIP-368). Requests wait meanwhile:
the peer takes none in the middle of a login. `NotSent` says that a request may be sent elsewhere.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, cast

import msgspec

from ottla.client import negotiation
from ottla.client.failures import ConnectionLost as ConnectionLost
from ottla.client.failures import NotSent as NotSent
from ottla.client.negotiation import CORRELATION_ID_MAX, api_of
from ottla.observability.channel_traffic import ChannelTraffic
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.codec.layout import has_records
from ottla.protocol.faults import ProtocolFault, RequestTimedOut, UnsupportedVersion
from ottla.protocol.frames import FrameSplitter, parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.schema import Message, Versions, covers
from ottla.runtime.ports import Address, Network
from ottla.security.sasl.credentials import Credentials, LoginFailed

if TYPE_CHECKING:
    from ottla.client.sasl_login import SaslLogin

TIMEOUT_MS: Final = 30_000
"""Kafka's ``request.timeout.ms``."""

# A partial reply is not parsed below this size, which exceeds any header.
_HEADER_BYTES_MAX: Final = 1024


class Reader(Protocol):
    """Reads a reply in the receive buffer; views are invalid after each call.

    Its methods are called only while the caller waits for the reply. Their exceptions are raised to
    that caller.
    """

    def arriving(self, version: int, body: memoryview) -> None:
        """Read the first bytes of a partial reply; each call has more of them."""
        ...

    def arrived(self, response: Message) -> None:
        """Read the whole reply, before the caller gets it."""
        ...

    def next_request(self) -> Message | None:
        """Return a request of the same API to send instead of passing the reply to the caller.

        Called after `arrived`, unless the caller has to send the next request: it may have to wait,
        log in again, or use another version. None: the caller gets the reply.
        """
        ...


class Options(msgspec.Struct, frozen=True):
    """Options of a connection. Sizes are bytes."""

    connect_timeout_ms: int = 10_000
    in_flight_max: int = 100
    frame_bytes_max: int = 100 * 1024 * 1024
    software_name: str = "ottla"
    software_version: str = "0"
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the context of a handshake that begins now; None connects without TLS."""
    login: Credentials | None = None
    version_max: Callable[[ApiKey], int | None] | None = None
    """Returns the newest version of an API that may be used now; None if there is no limit."""
    traffic: ChannelTraffic | None = None
    """Counts what is sent and received."""


class _Limit(msgspec.Struct):
    """How long the caller of `Connection.send` waits for each reply."""

    timeout: asyncio.Timeout
    seconds: float


class _Sent(msgspec.Struct, eq=False):
    """A request in flight. Its future is cancelled if the caller no longer waits."""

    correlation_id: int
    key: ApiKey
    version: int
    reply: "asyncio.Future[Message]"
    reader: Reader | None = None
    limit: _Limit | None = None


class _Stream(asyncio.BufferedProtocol):
    """The protocol of a connection: passes frames and the close to ``owner``."""

    def __init__(self, owner: "Connection", frame_bytes_max: int) -> None:
        self._owner = owner
        self._splitter = FrameSplitter(frame_bytes_max)
        self._transport: asyncio.Transport
        self.may_write = asyncio.Event()
        self.may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has asyncio's methods but does not inherit from its class.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._splitter.room()

    def buffer_updated(self, nbytes: int) -> None:
        traffic = self._owner._options.traffic
        if traffic is not None:
            traffic.bytes_in += nbytes
        try:
            self._splitter.filled(nbytes)
            while (frame := self._splitter.next_frame()) is not None:
                self._owner._take(frame)
            if self._owner._is_read_early:
                self._owner._show(self._splitter.under_way)
        except ProtocolFault as fault:
            self._owner._lose(f"bad bytes: {fault}")

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner._lose(str(exc) if exc else "closed by peer")
        self._owner._ended.set()


class Connection:
    """An open connection whose versions are negotiated. Create one with `open`."""

    def __init__(self, address: Address, client_id: str | None, options: Options) -> None:
        self.address = address
        self.versions: Mapping[int, Versions] = {}
        self._client_id = client_id
        self._options = options
        self._stream = _Stream(self, options.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Semaphore(options.in_flight_max)
        self._sent: deque[_Sent] = deque()
        self._next_id = 0
        self._lost: str | None = None
        self._login_ends: float | None = None  # in the loop's time, a little early
        self._login_began = 0.0
        self._login_next = 0.0  # a login before this time is refused
        self._login: SaslLogin | None = None  # under way
        self._login_gate = asyncio.Lock()
        self._ended = asyncio.Event()

    @classmethod
    async def open(
        cls,
        network: Network,
        address: Address,
        *,
        client_id: str | None = None,
        options: Options | None = None,
    ) -> "Connection":
        """Connect and negotiate versions.

        Raises:
            OSError: refused, unreachable, or lost at once.
            RequestTimedOut: not connected in time.
            UnsupportedVersion: the peer supports no version of ApiVersions that we do.
            LoginFailed: the peer refused the credentials, or did not prove itself.
        """
        connection = cls(address, client_id, options or Options())
        try:
            async with asyncio.timeout(connection._options.connect_timeout_ms / 1000):
                await connection._connect(network)
                await connection._negotiate()
                if connection._options.login is not None:
                    await connection._log_in(connection._options.login)
        except TimeoutError as error:
            connection._lose("not connected in time")
            raise RequestTimedOut(f"{address}: not connected in time") from error
        except BaseException:
            connection._lose("not opened")
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Say whether a request may still be sent."""
        return self._lost is None

    def version_for(self, key: ApiKey) -> int:
        """Return the highest version of an API that both sides support.

        Raises:
            UnsupportedVersion: there is none.
        """
        theirs = self.versions.get(key)
        newest = negotiation.newest_common(self.address, key, theirs)
        version_max = self._options.version_max
        limit = None if version_max is None else version_max(key)
        if limit is None or theirs is None:
            return newest
        return min(newest, max(limit, APIS[key].versions[0], theirs[0]))

    async def send(
        self,
        request: Message,
        *,
        version: int | None = None,
        timeout_ms: int = TIMEOUT_MS,
        reader: Reader | None = None,
    ) -> Message:
        """Send a request and return its reply. ``version`` None takes the highest common one.

        With a ``reader``, records in the reply are invalid views: the reader has read them. The
        reply may be one to `Reader.next_request`; ``timeout_ms`` is for each request.

        Raises:
            ConnectionLost: the connection closed before the reply; `NotSent` if also before the
                request was sent.
            RequestTimedOut: no reply in time; the connection is closed.
            UnsupportedVersion: the peer does not serve it; nothing was sent.
        """
        key = api_of(request)
        if version is None:
            version = self.version_for(key)
        elif self.versions and not covers(self.versions.get(key), version):
            raise UnsupportedVersion(f"{self.address}: no {key.title} v{version}")
        limit = _Limit(asyncio.timeout(timeout_ms / 1000), timeout_ms / 1000)
        try:
            async with limit.timeout:
                await self._enter()
                return await self._begin(request, key, version, reader, limit).reply
        except TimeoutError as error:
            self._lose(f"no reply to {key.title} in {timeout_ms} ms")
            raise RequestTimedOut(f"{self.address}: {key.title}: {timeout_ms} ms") from error

    async def post(self, request: Message) -> None:
        """Send a request that has no reply: Produce with acks=0.

        Raises:
            NotSent: the connection is closed. UnsupportedVersion: as `send`.
            RequestTimedOut: a login or the transport took too long; the connection is closed.
        """
        key = api_of(request)
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await self._enter()
        except TimeoutError as error:
            self._lose(f"{key.title} not sent in {TIMEOUT_MS} ms")
            raise RequestTimedOut(f"{self.address}: {key.title}: {TIMEOUT_MS} ms") from error
        try:
            self._write(request, key, self.version_for(key))
        finally:
            self._room.release()

    async def close(self) -> None:
        """Close; requests in flight raise `ConnectionLost`. Idempotent."""
        self._lose("closed")
        if self._transport is not None:
            await self._ended.wait()

    # -- opening ---------------------------------------------------------------

    async def _connect(self, network: Network) -> None:
        transport, _ = await network.dial(self.address, lambda: self._stream)
        self._transport = transport
        if self._options.traffic is not None:
            self._options.traffic.connections += 1
        if self._options.tls is not None:
            loop = asyncio.get_running_loop()
            secured = await loop.start_tls(
                transport, self._stream, self._options.tls(), server_hostname=self.address.host
            )
            assert secured is not None
            self._transport = secured

    async def _negotiate(self) -> None:
        """Agree on the versions of APIs."""
        options = self._options
        steps = negotiation.negotiate(self.address, options.software_name, options.software_version)
        try:
            request, version = next(steps)
            while True:
                await self._enter()
                sent = self._begin(request, ApiKey.API_VERSIONS, version)
                request, version = steps.send(await sent.reply)
        except StopIteration as done:
            self.versions = negotiation.versions_of(done.value)

    async def _log_in(self, credentials: Credentials) -> None:
        """Log in, at first or again before the session ends (KIP-368).

        A caller that is cancelled leaves the login under way, and the next caller finishes it.
        """
        # Clients of plaintext nodes never load it.
        from ottla.client.sasl_login import PAUSE_MS, SaslLogin, usable_ms

        loop = asyncio.get_running_loop()
        if self._login is None:
            await asyncio.sleep(max(0, self._login_next - loop.time()))
            self._login_began = loop.time()
            self._login = SaslLogin(credentials, str(self.address), self._send_login)
        lifetime_ms = await self._login.finish()
        self._login = None
        self._login_next = loop.time() + PAUSE_MS / 1000
        usable_s = usable_ms(lifetime_ms) / 1000
        self._login_ends = self._login_began + usable_s if lifetime_ms else None

    async def _send_login(self, request: Message) -> "asyncio.Future[Message]":
        """Send a request of the login, which does not wait for the login."""
        key = api_of(request)
        await self._room.acquire()
        await self._wait_to_write()
        return self._begin(request, key, self.version_for(key)).reply

    @property
    def _is_login_due(self) -> bool:
        """Whether a login is under way, or has to come before the next request."""
        ends = self._login_ends
        return ends is not None and (
            self._login is not None or asyncio.get_running_loop().time() >= ends
        )

    async def _keep_logged_in(self) -> None:
        """Log in again if the session ends soon. Callers pass in the order in which they came.

        Raises:
            NotSent: the login failed, and the connection is closed.
        """
        credentials = self._options.login
        assert credentials is not None, "only a login has an end"
        async with self._login_gate:
            if not self._is_login_due:
                return
            try:
                await self._log_in(credentials)
            except (LoginFailed, ConnectionLost) as error:
                self._lose(str(error))
                raise NotSent(str(error)) from error

    # -- requests and replies --------------------------------------------------

    async def _enter(self) -> None:
        """Wait for a place in flight, for the transport, and for a session that does not end soon.

        The caller has to write at once, or to release `_room`.
        """
        while True:
            if self._login_ends is not None:
                await self._keep_logged_in()
            await self._room.acquire()
            await self._wait_to_write()
            if not self._is_login_due:
                return
            self._room.release()

    async def _wait_to_write(self) -> None:
        """Wait until the transport accepts more; release `_room` if it does not come to that."""
        try:
            await self._stream.may_write.wait()
        except BaseException:
            self._room.release()
            raise

    def _begin(
        self,
        request: Message,
        key: ApiKey,
        version: int,
        reader: Reader | None = None,
        limit: _Limit | None = None,
    ) -> _Sent:
        """Send a request whose place in flight was taken."""
        try:
            correlation_id = self._write(request, key, version)
        except BaseException:
            self._room.release()
            raise
        loop = asyncio.get_running_loop()
        sent = _Sent(correlation_id, key, version, loop.create_future(), reader, limit)
        self._sent.append(sent)
        return sent

    def _write(self, request: Message, key: ApiKey, version: int) -> int:
        self._require_open()
        correlation_id = self._next_id
        header = RequestHeader(key, version, correlation_id, self._client_id)
        frame = request_frame(header, request)
        self._next_id = (correlation_id + 1) & CORRELATION_ID_MAX
        assert self._transport is not None
        self._transport.write(frame)
        if (traffic := self._options.traffic) is not None:
            traffic.requests += 1
            traffic.bytes_out += len(frame)
        return correlation_id

    def _require_open(self) -> None:
        if self._lost is not None:
            raise NotSent(f"{self.address}: {self._lost}")

    def _take(self, frame: memoryview) -> None:
        """Match a reply with the oldest request in flight.

        Raises:
            ProtocolFault: no request is in flight, or the reply does not match it.
        """
        if self._lost is not None:
            return
        if not self._sent:
            raise ProtocolFault("a reply without a request in flight")
        sent = self._sent[0]
        correlation_id, body = parse_response_header(sent.key, sent.version, frame)
        if correlation_id != sent.correlation_id:
            raise ProtocolFault(f"reply to {correlation_id}, expected {sent.correlation_id}")
        response = self._decode(sent, body)
        self._sent.popleft()
        if self._options.traffic is not None:
            self._options.traffic.responses += 1
        try:
            if not self._is_answered(sent, response):
                self._room.release()
                if not sent.reply.done():
                    sent.reply.set_result(response)
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits for the reply
            self._room.release()
            sent.reply.set_exception(error)

    def _is_answered(self, sent: _Sent, response: Message) -> bool:
        """Show the reply to its reader; True if the reader's next request is in flight now.

        It takes the place of the request among those in flight, and its caller waits on.
        """
        reader, limit = sent.reader, sent.limit
        if reader is None or sent.reply.done():
            return False
        reader.arrived(response)
        loop = asyncio.get_running_loop()
        if (
            limit is None
            or not self._stream.may_write.is_set()
            or self._is_login_due
            or self.version_for(sent.key) != sent.version
        ):
            return False
        request = reader.next_request()
        if request is None:
            return False
        assert request.SCHEMA.api_key == sent.key, "the reader reads replies of one API"
        limit.timeout.reschedule(loop.time() + limit.seconds)
        sent.correlation_id = self._write(request, sent.key, sent.version)
        self._sent.append(sent)
        return True

    @property
    def _is_read_early(self) -> bool:
        """Whether the next reply has a reader, which sees it before it is complete."""
        return bool(self._sent) and self._sent[0].reader is not None

    def _show(self, frame: memoryview) -> None:
        """Show a reader its partial reply. Errors are detected once the reply is complete."""
        sent = self._sent[0]
        if len(frame) < _HEADER_BYTES_MAX or sent.reply.done() or sent.reader is None:
            return
        correlation_id, body = parse_response_header(sent.key, sent.version, frame)
        if correlation_id != sent.correlation_id:
            return
        try:
            sent.reader.arriving(sent.version, body)
        except Exception as error:  # noqa: BLE001 - raised to the caller that waits for the reply
            sent.reply.set_exception(error)

    def _decode(self, sent: _Sent, body: memoryview) -> Message:
        kind = response_class(sent.key)
        version = negotiation.reply_version(sent.key, sent.version, body)
        if has_records(kind, version) and sent.reader is None:
            body = memoryview(bytes(body))  # records are views, and the receive buffer is reused
        return decode(kind, version, body)

    def _lose(self, reason: str) -> None:
        """Close the connection, once, and fail the requests in flight."""
        if self._lost is not None:
            return
        self._lost = reason
        if self._transport is not None:
            self._transport.abort()
        self._stream.may_write.set()
        while self._sent:
            sent = self._sent.popleft()
            self._room.release()
            if not sent.reply.done():
                sent.reply.set_exception(ConnectionLost(f"{self.address}: {reason}"))


async def send_over(
    connect: Callable[[], Awaitable[Connection]], request: Message, timeout_ms: int
) -> Message:
    """Send a request over the connection that ``connect`` returns or opens.

    If that one closed before the request was sent, send it over the next one, once.

    Raises:
        OSError, RequestTimedOut, UnsupportedVersion: as ``connect`` and `Connection.send`.
    """
    try:
        return await (await connect()).send(request, timeout_ms=timeout_ms)
    except NotSent:
        return await (await connect()).send(request, timeout_ms=timeout_ms)
