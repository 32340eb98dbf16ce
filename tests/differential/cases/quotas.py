"""Client quotas: which one applies, and what a client over its quota is answered.

Each case has a client id of its own. Amounts are far above what can be saved up, so that the first
request over a quota is throttled on both peers for longer than the case takes.
"""

import time
from collections.abc import Callable, Iterator

from tests.differential.batches import Batch
from tests.differential.catalogue import Case, Play, Ranges
from tests.differential.script import Connection, Reply, Script
from tests.differential.steps import fill, make_topic, settle

TOPIC = "quotas-topic"
SMALL, LARGE = 1000.0, 1e9
BYTES = Batch(count=2000).encode()  # half a minute of the small quota
TRIES_MAX = 30
PAUSE_S = 0.1
MUTED_MS_MIN = 300

Entity = dict[str, "str | None"]


def setup(script: Script) -> None:
    make_topic(script, TOPIC)
    fill(script, TOPIC, batches=4, count=1000)


def cases(ranges: Ranges) -> Iterator[Case]:
    for kind in ("producer_byte_rate", "consumer_byte_rate"):
        for index in range(8):
            yield Case(f"quotas/precedence/{kind}/{index}", _precedence(kind, index))
    yield Case("quotas/request time", _request_time)
    yield Case("quotas/produce is answered, then muted", _muted)
    yield Case("quotas/a burst of nine seconds passes", _burst)


# -- quotas ----------------------------------------------------------------------------


def _user(script: Script) -> str:
    """Return the user of the requests of a case."""
    return "ANONYMOUS" if script.setup is None else "alice"


def _levels(script: Script) -> list[Entity]:
    """Return the entities that apply to a client, the most specific first."""
    user, client_id = _user(script), script.name
    return [
        {"user": user, "client-id": client_id},
        {"user": user, "client-id": None},
        {"user": user},
        {"user": None, "client-id": client_id},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": client_id},
        {"client-id": None},
    ]


def _set(script: Script, key: str, rates: "list[tuple[Entity, float | None]]") -> None:
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in who.items()],
            "ops": [{"key": key, "value": rate or 0.0, "remove": rate is None}],
        }
        for who, rate in rates
    ]
    reply = script.quietly("alter_client_quotas", 1, entries=entries, validate_only=False)
    assert not any(row["error_code"] for row in reply["entries"]), reply
    settle(script)


def _throttle_ms(reply: "Reply | str") -> int:
    assert isinstance(reply, dict), reply
    return int(str(reply["throttle_time"]))


def _produce(script: Script, over: Connection, records: bytes = BYTES) -> int:
    topics = [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}]
    values = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": topics}
    return _throttle_ms(script.ask("produce", 11, values, other=over))


def _fetch(script: Script, over: Connection) -> int:
    part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
    part |= {"last_fetched_epoch": -1, "partition_max_bytes": 1 << 20}
    values = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    values |= {"isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": ""}
    values |= {"topics": [{"topic": TOPIC, "partitions": [part]}], "forgotten_topics_data": []}
    return _throttle_ms(script.ask("fetch", 11, values, other=over))


def _becomes(script: Script, ask: Callable[[Connection], int], *, throttled: bool) -> str:
    """Repeat a request on new connections until its reply is throttled, or is not."""
    is_throttled = False
    for _ in range(TRIES_MAX):
        over = script.another(script.name)
        is_throttled = ask(over) > 0
        over.close()
        if is_throttled is throttled:
            break
        time.sleep(PAUSE_S)  # the quota may take effect after it is described
    return "throttled" if is_throttled else "not throttled"


# -- cases -----------------------------------------------------------------------------


def _precedence(key: str, index: int) -> Play:
    """A quota counts where no more specific one is set, and hides less specific ones."""

    def play(script: Script) -> None:
        levels = _levels(script)[index:]
        api = "produce" if key == "producer_byte_rate" else "fetch"
        ask = (lambda over: _produce(script, over)) if api == "produce" else None
        ask = ask or (lambda over: _fetch(script, over))
        try:
            _set(script, key, [(levels[0], SMALL), *((each, LARGE) for each in levels[1:])])
            script.note("of the most specific", api, 11, _becomes(script, ask, throttled=True))
            _set(script, key, [(levels[0], LARGE), *((each, SMALL) for each in levels[1:])])
            script.note("of the others", api, 11, _becomes(script, ask, throttled=False))
        finally:
            _set(script, key, [(each, None) for each in levels])

    return play


def _request_time(script: Script) -> None:
    who: Entity = {"user": _user(script), "client-id": script.name}
    key, over = "request_percentage", script.another(script.name)
    _set(script, key, [(who, 0.0001)])
    values = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
    longest = 0
    for _ in range(TRIES_MAX):
        longest = max(longest, _throttle_ms(script.ask("metadata", 9, values, other=over)))
        if longest:
            break
    over.close()
    _set(script, key, [(who, None)])
    is_bounded = 0 < longest <= 1000
    words = "throttled for one window at most" if is_bounded else f"{longest} ms"
    script.note("metadata", "metadata", 9, words)


def _muted(script: Script) -> None:
    """The reply comes at once and says how long; the next request waits for that long."""
    who: Entity = {"user": _user(script), "client-id": script.name}
    key = "producer_byte_rate"
    # A rate at which one batch over the saved-up ten seconds is about a second.
    _set(script, key, [(who, float(len(BYTES) // 11))])
    over = script.another(script.name)
    began, throttle_ms = time.monotonic(), 0
    for _ in range(TRIES_MAX):
        began = time.monotonic()
        throttle_ms = _produce(script, over)
        if throttle_ms:
            break
    answered_ms = (time.monotonic() - began) * 1000
    values = {"topics": [], "allow_auto_topic_creation": False}
    script.ask("metadata", 9, values, other=over)
    waited_ms = (time.monotonic() - began) * 1000
    over.close()
    _set(script, key, [(who, None)])
    words = "muted" if waited_ms >= min(throttle_ms, MUTED_MS_MIN) else "served at once"
    late = "late" if answered_ms > max(MUTED_MS_MIN, throttle_ms) else "at once"
    script.note("a reply over the quota", "produce", 11, f"{late} {throttle_ms > 0}")
    script.note("the next request", "metadata", 9, words)


def _burst(script: Script) -> None:
    """With eleven windows of a second an idle client may use ten seconds of its quota."""
    who: Entity = {"user": _user(script), "client-id": script.name}
    key = "producer_byte_rate"
    _set(script, key, [(who, float(len(BYTES) // 9))])
    over = script.another(script.name)
    first = _produce(script, over)
    over.close()
    script.note("nine seconds at once", "produce", 11, "throttled" if first else "passes")
    last = _becomes(script, lambda over: _produce(script, over), throttled=True)
    script.note("nine seconds more", "produce", 11, last)
    _set(script, key, [(who, None)])
