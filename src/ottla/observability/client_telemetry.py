"""Instances of clients that push metrics: their subscriptions and the pace of pushes (KIP-714).

    client                                    broker
    GetTelemetrySubscriptions(instance 0) ->  a new instance id, metrics, interval, subscription id
    PushTelemetry(instance, subscription) ->  accepted, or the reason why not
    PushTelemetry(terminating)            ->  the last one of this instance

Pure: times are passed in, in milliseconds of a monotonic clock. An instance is removed when its
connection closes, as in Kafka, and when it was silent for three intervals and `SILENT_MS_MIN`.
At most `INSTANCES_MAX` are kept; the one unused for longest goes first.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ottla.observability.telemetry_subscriptions import Selection, SubscriptionTable
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Address

INSTANCES_MAX: Final = 16_384
SILENT_MS_MIN: Final = 600_000
CODECS: Final = (4, 3, 1, 2)
"""The accepted codecs in order of preference: zstd, lz4, gzip, snappy."""

_CODECS_KNOWN: Final = frozenset({0, *CODECS})
_RESERVED_IDS: Final = frozenset({ZERO_UUID, Uuid((1).to_bytes(16, "big"))})
# After these errors a client asks for its subscription again without waiting.
_ASKS_AGAIN: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)


class Connection(msgspec.Struct, frozen=True):
    """The connection of a client: its listener and the peer's address."""

    listener: str
    peer: Address


class Subscribed(msgspec.Struct, frozen=True):
    """The answer to a client: what it pushes, and as which instance."""

    instance: Uuid
    subscription_id: int
    selection: Selection


class Push(msgspec.Struct, frozen=True):
    """One push, without its metrics."""

    instance: Uuid
    subscription_id: int
    codec: int
    size: int
    is_terminating: bool = False


class _Instance(msgspec.Struct):
    """What is known about one client instance. Times are None before the first request."""

    selection: Selection
    subscription_id: int
    version: int
    connection: Connection
    used_ms: int
    got_ms: int | None = None
    pushed_ms: int | None = None
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        """Say whether an interval has passed since the last request, and count this one."""
        times = [time for time in (self.got_ms, self.pushed_ms) if time is not None]
        if times and now_ms - max(times) < self.selection.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """As `may_get`, but the first push after a subscription is accepted at any time: clients
        spread their first pushes over half an interval before and after.
        """
        is_first = self.got_ms is not None and (
            self.pushed_ms is None or self.got_ms > self.pushed_ms
        )
        is_due = self.pushed_ms is None or now_ms - self.pushed_ms >= self.selection.interval_ms
        if not is_first and not is_due:
            return False
        self.pushed_ms = now_ms
        return True

    def expires_ms(self) -> int:
        """Return when a silent instance is removed."""
        return self.used_ms + _silent_ms_max(self.selection)


def _silent_ms_max(selection: Selection) -> int:
    return max(SILENT_MS_MIN, 3 * selection.interval_ms)


class ClientTelemetry:
    """All client instances of a broker, and the subscriptions in force."""

    def __init__(self, bytes_max: int, new_id: Callable[[], Uuid]) -> None:
        self._bytes_max = bytes_max
        self._new_id = new_id
        self._table = SubscriptionTable()
        self._version = 0
        self._instances: OrderedDict[Uuid, _Instance] = OrderedDict()
        self._of_connection: dict[Connection, Uuid] = {}
        self.throttled = 0
        self.unknown_subscriptions = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, table: SubscriptionTable) -> None:
        """Replace the subscriptions; each client gets its new one with its next request."""
        self._table = table
        self._version += 1

    def get(
        self, instance: Uuid, client: Mapping[str, str], connection: Connection, now_ms: int
    ) -> Subscribed | ErrorCode:
        """Return the subscription of a client, THROTTLING_QUOTA_EXCEEDED if it asks too early."""
        if instance == ZERO_UUID:
            instance = self._unused_id()
        found = self._instance(instance, client, connection, now_ms)
        if not found.may_get(now_ms) and found.last_error not in _ASKS_AGAIN:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        found.last_error = ErrorCode.NONE
        return Subscribed(instance, found.subscription_id, found.selection)

    def push(
        self, push: Push, client: Mapping[str, str], connection: Connection, now_ms: int
    ) -> ErrorCode:
        """Return NONE if the metrics of a push are accepted, else the error to answer."""
        if push.instance in _RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        found = self._instance(push.instance, client, connection, now_ms)
        found.last_error = self._refusal(found, push, now_ms)
        found.is_terminating = push.is_terminating
        return found.last_error

    def _refusal(self, found: _Instance, push: Push, now_ms: int) -> ErrorCode:
        if found.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not found.may_push(now_ms) and not push.is_terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if push.subscription_id != found.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if push.codec not in _CODECS_KNOWN:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if push.size > self._bytes_max:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def silent_ms_max(self, instance: Uuid) -> int:
        """Return how long a client may be silent before its metrics are dropped."""
        found = self._instances.get(instance)
        return _silent_ms_max(Selection() if found is None else found.selection)

    def failed(self, instance: Uuid, error: ErrorCode) -> None:
        """Record that the metrics of an accepted push could not be read."""
        if instance in self._instances:
            self._instances[instance].last_error = error

    def connection_closed(self, connection: Connection) -> None:
        """Remove the instance that used a connection."""
        instance = self._of_connection.get(connection)
        if instance is not None:
            self._remove(instance)

    def evict(self, now_ms: int) -> list[Uuid]:
        """Remove the instances that were silent for too long; return their ids."""
        silent = [key for key, each in self._instances.items() if each.expires_ms() <= now_ms]
        for instance in silent:
            self._remove(instance)
        return silent

    # -- instances -------------------------------------------------------------------

    def _unused_id(self) -> Uuid:
        while True:
            instance = self._new_id()
            if instance not in self._instances and instance not in _RESERVED_IDS:
                return instance

    def _instance(
        self, instance: Uuid, client: Mapping[str, str], connection: Connection, now_ms: int
    ) -> _Instance:
        """Return an instance with its subscription up to date; a new one if it is unknown.

        A changed subscription is a new start: the client learns about it without a wait.
        """
        found = self._instances.get(instance)
        if found is None or found.version != self._version:
            selection = self._table.select(client)
            number = selection.subscription_id(instance)
            found = _Instance(selection, number, self._version, connection, now_ms)
            self._instances[instance] = found
        if found.connection != connection:
            self._of_connection.pop(found.connection, None)
            found.connection = connection
        self._of_connection[connection] = instance
        found.used_ms = now_ms
        self._instances.move_to_end(instance)
        while len(self._instances) > INSTANCES_MAX:
            self._remove(next(iter(self._instances)))
        return found

    def _remove(self, instance: Uuid) -> None:
        removed = self._instances.pop(instance)
        if self._of_connection.get(removed.connection) == instance:
            del self._of_connection[removed.connection]
