"""Charges requests to the quotas of their clients, and says how long to throttle them (KIP-219).

By the `Throttle` column of the API surface: request time for every API that is not exempt, the size
of a Produce request, the size of a Fetch reply. The throttle time is the longest of those and of
what the handler returned; it is set in the reply, and the connection is muted for as long once the
reply is sent.

Request time is the time that a request keeps the event loop busy: decoding, and the handler without
what it waits for. A reply is encoded and sent after its throttle time is known; as in Kafka, that
time is charged as well, and the next request is throttled for it. The active controller charges a
forwarded request, too, for its own time, and the client is throttled for the longer of both.

As in Kafka, Produce with acks=0 is exempt from request time (its bytes count), and a request
between nodes is exempt only for a client that may send it.
"""

from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from ottla.api.surface.replies import Answer, NoReply, Result, length_of
from ottla.api.surface.routes import Caller
from ottla.api.surface.row import Throttle
from ottla.api.surface.table import SURFACE
from ottla.api.surface.throttle_field import with_throttle
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.codec import encode
from ottla.protocol.frames import Request
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis
from ottla.quotas.client_quotas import ClientQuotas, QuotaKind, quota_client
from ottla.server.authenticator import SASL_KEYS

T = TypeVar("T")


def no_stopwatch() -> float:
    """Measure nothing: request time costs nothing."""
    return 0.0


def no_clock() -> Millis:
    """Return the time of a server without quotas."""
    return Millis(0)


class Throttling:
    """The quotas of one node as its servers apply them.

    ``stopwatch`` returns seconds, precise to microseconds; ``now`` is monotonic.
    """

    __slots__ = ("_now", "quotas", "stopwatch")

    def __init__(
        self,
        quotas: ClientQuotas | None = None,
        now: Callable[[], Millis] = no_clock,
        stopwatch: Callable[[], float] = no_stopwatch,
    ) -> None:
        self.quotas = quotas or ClientQuotas()
        self._now = now
        self.stopwatch = stopwatch

    def applies(self, caller: Caller) -> bool:
        """Say whether any quota applies to a client."""
        return self.quotas.applies(caller.principal, caller.client_id)

    @property
    def is_active(self) -> bool:
        """Whether any quota is set."""
        return self.quotas.is_active

    async def measure(self, work: Awaitable[T]) -> tuple[T, float]:
        """Await ``work``; return its result, and for how many seconds it kept the loop busy."""
        spent_s = 0.0

        def spend(seconds: float) -> None:
            nonlocal spent_s
            spent_s += seconds

        result = await metered_await(work, self.stopwatch, spend)
        return result, spent_s

    def charge_forwarded(self, caller: Caller, spent_s: float) -> int:
        """Charge a client for a request inside an Envelope; return its throttle time in ms."""
        if not self.applies(caller):
            return 0
        client = quota_client(caller.principal, caller.client_id)
        return self.quotas.charge(QuotaKind.REQUEST, client, spent_s * 1000, self._now())

    def charge_sending(
        self, caller: Caller, request: Request, spent_s: float, result: Result, *, is_denied: bool
    ) -> None:
        """Charge a client for the encoding and sending of a reply; it is throttled for it later."""
        if self.applies(caller) and not _is_exempt(request.key, result, is_denied=is_denied):
            client = quota_client(caller.principal, caller.client_id)
            self.quotas.record(QuotaKind.REQUEST, client, spent_s * 1000, self._now())

    def charge(
        self,
        caller: Caller,
        request: Request,
        size: int,
        spent_s: float,
        result: Result,
        *,
        is_denied: bool = False,
    ) -> Result:
        """Charge a request of ``size`` bytes; return its result with the throttle time, if any.

        ``is_denied``: its client may not act as a node.
        """
        if not self.quotas.applies(caller.principal, caller.client_id):
            return result
        row = SURFACE.get(request.key)
        if row is None or _is_node_request(request.key, result, is_denied=is_denied):
            return result
        answer = result if isinstance(result, Answer) else None
        client, now = quota_client(caller.principal, caller.client_id), self._now()
        body = result.body if isinstance(result, Answer) else result
        throttle_ms = 0 if answer is None else answer.throttle_ms
        charge = self.quotas.charge
        if row.throttle is Throttle.PRODUCE:
            throttle_ms = max(throttle_ms, charge(QuotaKind.PRODUCE, client, size, now))
        elif row.throttle is Throttle.FETCH and self.quotas.is_limited(QuotaKind.FETCH):
            sent = _size_of(body, request.version)
            throttle_ms = max(throttle_ms, charge(QuotaKind.FETCH, client, sent, now))
        if not _is_exempt(request.key, result, is_denied=is_denied):
            spent_ms = spent_s * 1000
            throttle_ms = max(throttle_ms, charge(QuotaKind.REQUEST, client, spent_ms, now))
        if throttle_ms <= 0:
            return result
        if not isinstance(body, NoReply):
            body = with_throttle(request.key, request.version, body, throttle_ms)
        if answer is not None:
            return replace(answer, body=body, throttle_ms=throttle_ms)
        return Answer(body, throttle_ms)


def _is_node_request(key: ApiKey, result: Result, *, is_denied: bool) -> bool:
    """Say whether a request counts against no quota: logins, and requests of other nodes."""
    row = SURFACE.get(key)
    if row is None or key in SASL_KEYS or (isinstance(result, Answer) and result.is_exempt):
        return True
    return row.throttle is Throttle.EXEMPT and not is_denied


def _is_exempt(key: ApiKey, result: Result, *, is_denied: bool) -> bool:
    """Say whether a request is not charged for its time; acks=0 is not, as in Kafka."""
    body = result.body if isinstance(result, Answer) else result
    return isinstance(body, NoReply) or _is_node_request(key, result, is_denied=is_denied)


def _size_of(body: Any, version: int) -> int:  # noqa: ANN401 - a body of any form
    if isinstance(body, Message):
        return len(encode(body, version))
    return 0 if isinstance(body, NoReply) else sum(map(length_of, body))


def metered(
    work: Generator[Any, Any, T], stopwatch: Callable[[], float], spend: Callable[[float], None]
) -> Generator[Any, Any, T]:
    """Run ``work``; ``spend`` gets the time of each of its steps."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        began = stopwatch()
        try:
            yielded = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            spend(stopwatch() - began)
        try:
            value = yield yielded
            step = work.send
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 - such as a cancellation: passed on
            value, step = error, work.throw


@coroutine
def metered_await(
    work: Awaitable[T], stopwatch: Callable[[], float], spend: Callable[[float], None]
) -> Generator[Any, Any, T]:
    """Await ``work``; ``spend`` gets the time that it keeps the event loop busy."""
    return (yield from metered(work.__await__(), stopwatch, spend))
