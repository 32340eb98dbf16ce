"""Validates dynamic changes of a broker's configuration, as in Kafka (KIP-226).

Pure. A change is validated against the settings in effect before and after it, both including the
broker's own file: only the broker itself knows that. Each value is already known to be valid for
its type and scope. `WITHOUT_EFFECT` names the dynamic keys that are accepted and validated as in
Kafka although nothing here uses them.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ottla.config.checks import copy_lag_problems, dynamic_broker_problems
from ottla.config.key_definition import Scope, Update
from ottla.config.key_table import KEYS, LISTENER_PREFIX, base_of_listener_key
from ottla.config.layers import Layers, broker_config, effective_broker_value, parse_checked
from ottla.config.listeners import Listener, Listeners, resolve
from ottla.config.problems import ConfigError, Problem
from ottla.config.unenforced import LOGIN_KEYS, unenforced_problems
from ottla.config.unsupported import UNSUPPORTED_KEYS, unsupported_value
from ottla.config.values import parse_list

_BROKER = KEYS[Scope.BROKER]

# The size of each may at most double or halve in one step.
THREAD_POOLS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
# Names of classes that Kafka would load now, so that a wrong one is rejected now.
_REPORTERS: Final = "metric.reporters"
_LISTENER_KEYS: Final = ("listeners", "listener.security.protocol.map")

_NO_TLS: Final = "only the stores of a listener can be altered, as listener.name.{name}.ssl."


def _without_effect() -> dict[str, str]:
    dynamic = [key.name for key in _BROKER.values() if key.update is not Update.READ_ONLY]
    found = {name: UNSUPPORTED_KEYS[name].reason for name in dynamic if name in UNSUPPORTED_KEYS}
    for name in dynamic:
        if name.startswith("ssl."):
            found.setdefault(name, _NO_TLS)
    found["log.cleaner.threads"] = "one log is compacted at a time, on the event loop"
    found["log.cleaner.io.buffer.size"] = "compaction uses buffers of a fixed size"
    found["num.recovery.threads.per.data.dir"] = "logs are recovered sequentially"
    return found


WITHOUT_EFFECT: Final[Mapping[str, str]] = MappingProxyType(_without_effect())
"""Dynamic broker keys without effect here, each with the reason."""


def dynamic_problems(old: Layers, new: Layers) -> list[Problem]:
    """Return what is wrong with changing from ``old`` to ``new``, apart from listeners."""
    try:
        config = broker_config(new)
    except ConfigError as error:
        return list(error.problems)
    return [
        *_refused_values(new),
        *_pool_problems(old, new),
        *dynamic_broker_problems(config),
        *_local_retention_problems(old, new),
        *_copy_lag_problems(old, new),
    ]


def _refused_values(new: Layers) -> Iterator[Problem]:
    for level in (new.dynamic_broker, new.dynamic_cluster):
        yield from unenforced_problems(level, is_dynamic=True)
        for name, text in level.items():
            key = _BROKER.get(name) or base_of_listener_key(name)
            if key is None:
                continue
            if (rule := unsupported_value(key, parse_checked(key, text))) is not None:
                yield Problem(name, None if key.is_sensitive else text, rule)
        default = _BROKER[_REPORTERS].default_value
        assert isinstance(default, tuple)
        if set(parse_list(level.get(_REPORTERS, ""))) - set(default):
            yield Problem(_REPORTERS, level[_REPORTERS], "must not contain a custom class")


def _pool_problems(old: Layers, new: Layers) -> Iterator[Problem]:
    for name in THREAD_POOLS:
        yield from _pool_problem(name, _int_of(old, name), _int_of(new, name))
    pool = "num.network.threads"
    for level in (new.dynamic_broker, new.dynamic_cluster):
        for name in level:
            if name.startswith(LISTENER_PREFIX) and name.endswith(f".{pool}"):
                yield from _pool_problem(name, _of_listener(old, name), _of_listener(new, name))


def _pool_problem(name: str, before: int, after: int) -> Iterator[Problem]:
    if after == before:
        return
    if after < 1:
        yield Problem(name, str(after), "must be at least 1")
    elif after < before // 2:
        yield Problem(name, str(after), f"must be at least half of the current value {before}")
    elif after > before * 2:
        rule = f"must be at most double the current value {before}"
        yield Problem(name, str(after), rule)


def _of_listener(layers: Layers, name: str) -> int:
    found = layers.find([name])
    if found is None:
        return _int_of(layers, "num.network.threads")
    value = parse_checked(_BROKER["num.network.threads"], found[1])
    assert isinstance(value, int)
    return value


def _local_retention_problems(old: Layers, new: Layers) -> Iterator[Problem]:
    for unit in ("ms", "bytes"):
        whole_key, local_key = f"log.retention.{unit}", f"log.local.retention.{unit}"
        whole, local = _int_of(new, whole_key), _int_of(new, local_key)
        if (whole, local) == (_int_of(old, whole_key), _int_of(old, local_key)):
            continue
        # -2 follows the total retention; a negative total is unlimited.
        if local != -2 and whole >= 0 and (local == -1 or local > whole):
            rule = f"must be at most {whole_key}={whole}, or -2 to follow it"
            yield Problem(local_key, str(local), rule)


def _copy_lag_problems(old: Layers, new: Layers) -> Iterator[Problem]:
    for unit in ("ms", "bytes"):
        keys = [
            f"log.{name}.{unit}" for name in ("remote.copy.lag", "local.retention", "retention")
        ]
        values = [_int_of(new, key) for key in keys]
        if values != [_int_of(old, key) for key in keys]:
            lag, local, whole = values
            yield from copy_lag_problems("log.", unit, lag, whole if local == -2 else local)


def _int_of(layers: Layers, name: str) -> int:
    value = effective_broker_value(layers, name)
    assert isinstance(value, int), name
    return value


# -- listeners -----------------------------------------------------------------------------------


def listeners_of(layers: Layers) -> Listeners:
    """Return the listeners of a broker from its file and from changes at run time.

    Raises:
        ConfigError: they contradict each other.
    """
    explicit = frozenset(name for level in layers.strongest_first() for name in level)
    return resolve(broker_config(layers), explicit)


def changes_listeners(old: Layers, new: Layers) -> bool:
    """Return whether a change affects the listeners."""
    return any(old.find([key]) != new.find([key]) for key in _LISTENER_KEYS)


def changed_listeners(old: Layers, new: Layers, keys: frozenset[str]) -> frozenset[str]:
    """Return the listeners, in lower case, some of whose ``keys`` a change of a broker affects."""
    found = set()
    for name in {*old.dynamic_broker, *new.dynamic_broker}:
        key = base_of_listener_key(name)
        is_changed = old.dynamic_broker.get(name) != new.dynamic_broker.get(name)
        if key is not None and key.name in keys and is_changed:
            # A key of a mechanism has its name after that of the listener.
            found.add(name.removeprefix(LISTENER_PREFIX).partition(".")[0])
    return frozenset(found)


def changed_logins(old: Layers, new: Layers) -> frozenset[str]:
    """Return the listeners, in lower case, whose logins a change of a broker may affect."""
    own = changed_listeners(old, new, LOGIN_KEYS)
    if all(old.dynamic_broker.get(key) == new.dynamic_broker.get(key) for key in LOGIN_KEYS):
        return own
    return own | {each.name.lower() for each in listeners_of(new).all if each.protocol.uses_sasl}


def listener_problems(old: Listeners, new: Listeners) -> list[Problem]:
    """Return why listeners cannot be changed this way while a broker is running.

    Client listeners can be added and removed. Listeners between nodes must stay, and no listener
    may change its address or protocol: open connections depend on them.
    """
    before = {listener.name: listener for listener in old.all}
    after = {listener.name: listener for listener in new.all}
    problems: list[Problem] = []
    for name, listener in before.items():
        if name in after:
            problems += _kept_problems(listener, after[name])
        elif listener.is_controller or name == old.inter_broker:
            rule = "must keep the listeners that nodes use to reach each other"
            problems.append(Problem("listeners", name, rule))
    for name, listener in after.items():
        if name not in before and listener.is_controller:
            rule = "must not get a controller listener while the node is running"
            problems.append(Problem("listeners", name, rule))
    return problems


def _kept_problems(before: Listener, after: Listener) -> Iterator[Problem]:
    if before.bind != after.bind:
        rule = f"must stay at {before.bind} while running; add a listener with another name"
        yield Problem("listeners", f"{after.name}://{after.bind}", rule)
    if before.protocol is not after.protocol:
        rule = f"must keep {before.protocol.name} while the listener is open"
        yield Problem("listener.security.protocol.map", after.name, rule)
