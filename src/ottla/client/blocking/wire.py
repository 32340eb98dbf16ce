"""A blocking connection to one Kafka node: one request at a time, or a fetch sent ahead.

    wire = Wire.open(Address("localhost", 9092), "client", timeout_ms=30_000)
    reply = wire.ask(MetadataRequest())
    wire.post(fetch)            # the node works while we do
    reply = wire.take()

Unlike `client.connection`, which serves an event loop, it blocks, for threads of Spark; one thread
uses it at a time. Replies arrive in the order of the requests. Any failure closes the connection,
because the following bytes would be the reply to another request.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from ottla.client import negotiation
from ottla.client.connection import Options
from ottla.client.failures import ConnectionLost
from ottla.client.negotiation import CORRELATION_ID_MAX, api_of
from ottla.client.sasl_login import PAUSE_MS, converse, usable_ms
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import decode
from ottla.protocol.faults import ProtocolFault, RequestTimedOut
from ottla.protocol.frames import (
    LENGTH_SIZE,
    frame_length,
    parse_response_header,
    request_frame,
)
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import response_class
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.schema import Message, Versions
from ottla.runtime.blocking import Stream, dial, pause
from ottla.runtime.clock import SystemClock
from ottla.runtime.ports import Address
from ottla.security.sasl.credentials import Credentials, LoginFailed

FRAME_BYTES_MAX: Final = 512 << 20
"""The longest accepted reply, far larger than any fetch."""

_RECEIVE_BYTES_MAX: Final = 16 << 20  # per allocation, so that a wrong length costs no more memory
# Later versions add partitions to a transaction implicitly, with the first record; they may be used
# only if the cluster has `transaction.version` 2 (KIP-890).
_BEFORE_IMPLICIT_PARTITIONS: Final = {ApiKey.PRODUCE: 11, ApiKey.END_TXN: 4}
_CLIENT_FORM_MAX: Final = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}  # later versions are for brokers


class Wire:
    """An open connection with negotiated API versions. Create one with `open`."""

    def __init__(self, address: Address, client_id: str, stream: Stream) -> None:
        self.address = address
        self.versions: Mapping[int, Versions] = {}
        self.features: Mapping[str, int] = {}
        self._client_id = client_id
        self._stream = stream
        self._under_way: deque[tuple[int, ApiKey, int]] = deque()
        self._received: deque[Message] = deque()  # replies that a login had to pass
        self._next_id = 0
        self._credentials: Credentials | None = None
        self._clock = SystemClock()
        self._login_ends: int | None = None  # monotonic, in ms, a little early
        self._login_next = 0  # monotonic, in ms: a login before it is refused
        self.is_open = True

    @classmethod
    def open(
        cls, address: Address, client_id: str, *, timeout_ms: int, options: Options | None = None
    ) -> "Wire":
        """Connect, agree on versions and log in; ``timeout_ms`` bounds this and each later wait.

        Of ``options`` only TLS and login are used.

        Raises:
            OSError: refused, unreachable, not trusted, or closed at once.
            RequestTimedOut: not in time.
            UnsupportedVersion: no common version of ApiVersions.
            LoginFailed: the peer rejected the credentials.
        """
        tls = None if options is None else options.tls
        try:
            stream = dial(address, timeout_ms, None if tls is None else tls())
            wire = cls(address, client_id, stream)
        except TimeoutError as error:
            raise RequestTimedOut(f"{address}: not connected in {timeout_ms} ms") from error
        try:
            wire._negotiate()
            if options is not None and options.login is not None:
                wire._credentials = options.login
                wire._log_in(options.login)
        except BaseException:
            wire.close()
            raise
        return wire

    @property
    def is_idle(self) -> bool:
        """Return whether it is open without an outstanding reply, so that it can be reused."""
        return self.is_open and not self._under_way and not self._received

    def version_for(self, key: ApiKey) -> int:
        """Return the highest common version of an API.

        Raises:
            UnsupportedVersion: there is none.
        """
        newest = negotiation.newest_common(self.address, key, self.versions.get(key))
        newest = min(newest, _CLIENT_FORM_MAX.get(key, newest))
        if self.adds_partitions:
            return newest
        return min(newest, _BEFORE_IMPLICIT_PARTITIONS.get(key, newest))

    @property
    def adds_partitions(self) -> bool:
        """Whether producing to a partition adds it to the transaction (KIP-890)."""
        return self.features.get("transaction.version", 0) >= 2

    def ask(self, request: Message) -> Message:
        """Send a request and wait for its reply; none may be outstanding.

        Raises:
            ConnectionLost: the connection was closed. RequestTimedOut: no reply in time; closes it.
            UnsupportedVersion: the peer does not support it; nothing was sent.
        """
        assert self.is_idle or not self.is_open, "a reply is outstanding"
        self.post(request)
        return self.take()

    def post(self, request: Message) -> None:
        """Send a request; `take` returns its reply. Raises as `ask`."""
        key = api_of(request)
        version = self.version_for(key)
        self._keep_logged_in()
        self._post(request, key, version)

    def take(self) -> Message:
        """Wait for the reply to the oldest request. It owns the buffers of its records.

        Raises:
            ConnectionLost, RequestTimedOut: as `ask`.
        """
        return self._received.popleft() if self._received else self._receive()

    def _receive(self) -> Message:
        correlation_id, key, version = self._under_way[0]
        try:
            frame = self._receive_frame()
            found, body = parse_response_header(key, version, frame)
            if found != correlation_id:
                raise ProtocolFault(f"reply to {found}, expected {correlation_id}")
            reply = decode(response_class(key), negotiation.reply_version(key, version, body), body)
        except (OSError, ProtocolFault) as error:
            raise self._lost(error) from error
        self._under_way.popleft()
        return reply

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.is_open = False
        self._under_way.clear()
        self._received.clear()
        self._stream.close()

    # -- opening ---------------------------------------------------------------

    def _negotiate(self) -> None:
        """Agree on the versions of APIs."""
        steps = negotiation.negotiate(self.address, "ottla-pipeline", "0")
        try:
            request, version = next(steps)
            while True:
                self._post(request, ApiKey.API_VERSIONS, version)
                request, version = steps.send(self._receive())
        except StopIteration as done:
            response: ApiVersionsResponse = done.value
        self.versions = negotiation.versions_of(response)
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    def _log_in(self, credentials: Credentials) -> None:
        """Log in, at first or again before the session ends (KIP-368)."""
        pause(self._login_next - self._clock.monotonic())
        began = self._clock.monotonic()
        conversation = converse(credentials, str(self.address))
        step = next(conversation)
        try:
            while True:
                step = conversation.send(
                    self._ask_login(step) if isinstance(step, Message) else step()
                )
        except StopIteration as done:
            lifetime_ms: int = done.value
        self._login_next = self._clock.monotonic() + PAUSE_MS
        self._login_ends = began + usable_ms(lifetime_ms) if lifetime_ms else None

    def _ask_login(self, request: Message) -> Message:
        """Send a request of the login; unlike `ask` it does not log in first."""
        key = api_of(request)
        self._post(request, key, self.version_for(key))
        return self._receive()

    def _keep_logged_in(self) -> None:
        """Log in again if the session ends soon; receive the outstanding replies before it.

        Raises:
            ConnectionLost, RequestTimedOut: as `ask`. LoginFailed: as `open`; closes it.
        """
        if self._login_ends is None or self._credentials is None:
            return
        if self._clock.monotonic() < self._login_ends:
            return
        while self._under_way:
            self._received.append(self._receive())
        try:
            self._log_in(self._credentials)
        except LoginFailed:
            self.close()
            raise

    # -- bytes -----------------------------------------------------------------

    def _post(self, request: Message, key: ApiKey, version: int) -> None:
        if not self.is_open:
            raise ConnectionLost(f"{self.address}: closed")
        header = RequestHeader(key, version, self._next_id, self._client_id)
        frame = request_frame(header, request)
        try:
            self._stream.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error
        self._under_way.append((self._next_id, key, version))
        self._next_id = (self._next_id + 1) & CORRELATION_ID_MAX

    def _receive_frame(self) -> memoryview:
        head = bytearray(LENGTH_SIZE)
        self._receive_into(memoryview(head))
        length = frame_length(head, FRAME_BYTES_MAX)
        frame = bytearray(min(length, _RECEIVE_BYTES_MAX))
        received = 0
        while received < length:
            if received == len(frame):  # the buffer grows only with received bytes
                frame.extend(bytes(min(length - received, received)))
            with memoryview(frame) as view:
                self._receive_into(view[received:])
            received = len(frame)
        return memoryview(frame)

    def _receive_into(self, room: memoryview) -> None:
        position = 0
        while position < len(room):
            count = self._stream.recv_into(room[position:])
            if not count:
                raise ConnectionResetError("closed by peer")
            position += count

    def _lost(self, error: Exception) -> Exception:
        """Close the connection, and return the exception to raise."""
        self.close()
        if isinstance(error, TimeoutError):
            return RequestTimedOut(f"{self.address}: no reply in time")
        return ConnectionLost(f"{self.address}: {error}")
