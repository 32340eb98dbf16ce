"""A script of requests, played on one peer: what is sent, and the outcome of each step."""

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.differential import wire

FRAME_BYTES_MAX = 100 << 20
CLOSED = "connection closed"
NO_ANSWER = "no answer"
PATIENCE_S = 8.0
POLL_S = 0.1
LIMITED_PATIENCE_S = 1.0
REFUSALS = (29, 30, 31, 53)

Reply = dict[str, object]


@dataclass(frozen=True, slots=True)
class Step:
    """One request and its outcome: a decoded reply, or a sentence in place of one."""

    label: str
    api: str
    version: int
    outcome: "Reply | str"


class Closed(Exception):
    """The peer closed the connection."""


LOGIN_PORTS: set[int] = set()
"""Ports of SASL listeners: connections to them log in first."""


class Connection:
    """One connection, one request at a time. Opened when first used, and again after an end."""

    def __init__(self, port: int, client_id: str = wire.CLIENT_ID) -> None:
        self.port = port
        self.client_id = client_id
        self._socket: socket.socket | None = None
        self._correlation = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, request: bytes) -> None:
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()  # readable between requests: the peer has closed it
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.port in LOGIN_PORTS:
                self._log_in(self._socket)
        self._socket.sendall(struct.pack(">i", len(request)) + request)

    def _log_in(self, opened: socket.socket) -> None:
        """Log in by PLAIN as a user without any rights."""
        token = b"\0alice\0alice-secret"
        for request in (
            struct.pack(">hhih", 17, 1, 0, -1) + struct.pack(">h", 5) + b"PLAIN",
            struct.pack(">hhih", 36, 0, 0, -1) + struct.pack(">i", len(token)) + token,
        ):
            opened.sendall(struct.pack(">i", len(request)) + request)
            reply = self.receive(10)
            assert reply[4:6] == b"\0\0", "the login failed"

    def next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def receive(self, patience_s: float) -> bytes:
        """Return one frame.

        Raises:
            Closed: the connection ended before the frame did.
            TimeoutError: nothing came in time.
        """
        deadline = time.monotonic() + patience_s
        (length,) = struct.unpack(">i", self._exactly(4, deadline))
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise wire.Malformed(f"a frame of {length} bytes")
        return self._exactly(length, deadline)

    def _exactly(self, length: int, deadline: float) -> bytes:
        assert self._socket is not None
        got = bytearray()
        while len(got) < length:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            chunk = self._socket.recv(length - len(got))
            if not chunk:
                raise Closed
            got += chunk
        return bytes(got)


@dataclass(slots=True)
class Script:
    """What a case acts on: sends requests to one peer and records the outcomes.

    ``name`` is the same on both peers and differs between cases: use it in names of topics,
    groups and transactions, so that cases do not meet. ``memory`` belongs to the family and the
    peer: what the set-up learned, such as the ids of topics.
    """

    name: str
    connection: Connection
    controller: Connection
    memory: dict[str, object]
    steps: list[Step] = field(default_factory=list)
    patience_s: float = PATIENCE_S
    setup: Connection | None = None
    """The connection of set-up requests where those of the case come from a user without rights."""

    def call(
        self,
        api: str,
        version: int,
        label: str = "",
        *,
        tail: bytes = b"",
        cut: int = 0,
        to_controller: bool = False,
        other: Connection | None = None,
        **values: object,
    ) -> Reply:
        """Send a request, record and return its reply; an empty one if there was none.

        ``tail`` is added behind the body, ``cut`` bytes are taken off it.
        """
        outcome = self.ask(
            api, version, values, tail=tail, cut=cut, to_controller=to_controller, other=other
        )
        self.steps.append(Step(label or api, api, version, outcome))
        return outcome if isinstance(outcome, dict) else {}

    def ask(
        self,
        api: str,
        version: int,
        values: dict[str, object],
        *,
        tail: bytes = b"",
        cut: int = 0,
        to_controller: bool = False,
        other: Connection | None = None,
    ) -> "Reply | str":
        """Send a request and return the outcome without recording it."""
        connection = other or (self.controller if to_controller else self.connection)
        correlation = connection.next_correlation()
        request = wire.encode_request(api, version, values, correlation, connection.client_id)
        request += tail
        request = request[: len(request) - cut]
        try:
            connection.send(request)
            raw = connection.receive(self.patience_s)
        except (Closed, ConnectionError):
            connection.close()
            return CLOSED
        except TimeoutError:
            connection.close()
            return NO_ANSWER
        return _decoded(api, version, raw, correlation)

    def until(
        self,
        condition: Callable[[Reply], bool],
        api: str,
        version: int,
        label: str = "",
        **values: object,
    ) -> Reply:
        """Repeat a request until its reply meets a condition; record the last reply only."""
        if self.setup is None:
            outcome = self._repeat(condition, api, version, values, None, self.patience_s)
        else:  # a refusal stays one, and what is filtered out does not come
            patience_s = min(self.patience_s, LIMITED_PATIENCE_S)
            outcome = self._repeat(condition, api, version, values, self.connection, patience_s)
        self.steps.append(Step(label or api, api, version, outcome))
        return outcome if isinstance(outcome, dict) else {}

    def wait(
        self, condition: Callable[[Reply], bool], api: str, version: int, **values: object
    ) -> Reply:
        """Repeat a request of the set-up until its reply meets a condition.

        Raises:
            TimeoutError: it never did.
        """
        outcome = self._repeat(condition, api, version, values, self.setup, self.patience_s)
        if isinstance(outcome, dict) and condition(outcome):
            return outcome
        raise TimeoutError(f"set-up: {api} v{version} {values}: {outcome}")

    def _repeat(
        self,
        condition: Callable[[Reply], bool],
        api: str,
        version: int,
        values: dict[str, object],
        over: Connection | None,
        patience_s: float,
    ) -> "Reply | str":
        deadline = time.monotonic() + patience_s
        while True:
            outcome = self.ask(api, version, values, other=over)
            is_met = isinstance(outcome, dict) and condition(outcome)
            if is_met or _is_refused(outcome) or time.monotonic() > deadline:
                return outcome
            time.sleep(POLL_S)

    def quietly(self, api: str, version: int, **values: object) -> Reply:
        """Send a request of the set-up: its reply is returned and not compared."""
        outcome = self.ask(api, version, values, other=self.setup)
        return outcome if isinstance(outcome, dict) else {}

    def another(self, client_id: str = wire.CLIENT_ID) -> Connection:
        """Return a second connection to the same listener."""
        return Connection(self.connection.port, client_id)

    def note(self, label: str, api: str, version: int, outcome: str) -> None:
        """Record what was found out by several requests, in words that both peers share."""
        self.steps.append(Step(label, api, version, outcome))


def _is_refused(outcome: object) -> bool:
    """Say whether a reply holds the error code of a missing right."""
    if isinstance(outcome, list):
        return any(map(_is_refused, outcome))
    return isinstance(outcome, dict) and any(
        value in REFUSALS if name.endswith("error_code") else _is_refused(value)
        for name, value in outcome.items()
    )


def _decoded(api: str, version: int, raw: bytes, correlation: int) -> "Reply | str":
    if len(raw) < 4 or struct.unpack(">i", raw[:4])[0] != correlation:
        return "a reply with another correlation id"
    try:
        return wire.decode_response(api, version, raw)
    except wire.Malformed as error:
        if api == "api_versions":
            # A version that the broker does not know is answered in version 0.
            try:
                return {"_version": 0, **wire.decode_response(api, 0, raw)}
            except wire.Malformed:
                pass
        return f"malformed reply: {error}"
