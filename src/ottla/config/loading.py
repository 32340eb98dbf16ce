"""Loads raw settings into a checked configuration, or reports every problem in them.

Precedence: OpenTelemetry's variables, then the properties file, then ``KAFKA_*`` variables, then
overrides; the last one wins. An unknown key is kept and causes a warning with the nearest known
key: it may be a typo.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ottla.config.checks import broker_problems
from ottla.config.generated import BrokerConfig
from ottla.config.key_definition import Key, Required, Scope
from ottla.config.key_table import (
    DYNAMIC_ONLY,
    KEYS,
    LISTENER_PREFIX,
    base_of_listener_key,
    fields_of,
)
from ottla.config.layers import parse_checked, shown
from ottla.config.listeners import Listeners, resolve
from ottla.config.otel_environment import from_otel_environment
from ottla.config.problems import ConfigError, ConfigWarning, Problem
from ottla.config.properties import (
    BadProperties,
    Setting,
    from_environment,
    from_overrides,
    from_text,
)
from ottla.config.unenforced import ALLOW_EVERYONE, SUPER_USERS
from ottla.config.unsupported import UNSUPPORTED_KEYS, reason_of_removal, unsupported_value
from ottla.config.values import BadValue, Value, to_text

if TYPE_CHECKING:
    from ottla.config.config_providers import FileReader

_BROKER = KEYS[Scope.BROKER]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration. Raw texts are not printed: they may be secret."""

    broker: BrokerConfig
    listeners: Listeners
    warnings: tuple[ConfigWarning, ...]
    static: Mapping[str, str] = field(repr=False)
    """Every key that was set, including unknown ones, as written."""


def load(
    properties: str = "",
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    read_file: "FileReader | None" = None,
) -> Loaded:
    """Parse, merge and check all settings. Raises `ConfigError` with every problem found.

    ``read_file`` reads the files that ``config.providers`` refer to.
    """
    try:
        settings = [
            *from_otel_environment(environment or {}),
            *from_text(properties),
            *from_environment(environment or {}),
            *from_overrides(overrides),
        ]
    except BadProperties as error:
        raise ConfigError([Problem("configuration", None, str(error))]) from error
    if any(setting.key == "config.providers" for setting in settings):
        settings = _with_references(settings, environment or {}, read_file)
    merged = {setting.key: setting for setting in settings}
    _fill_node_id(merged)
    warnings = tuple(_warnings(settings, merged))
    broker = build_broker(merged)
    listeners = resolve(broker, frozenset(merged))
    static = {key: setting.value for key, setting in merged.items()}
    loaded = Loaded(broker, listeners, warnings, MappingProxyType(static))
    if problems := [*broker_problems(broker, listeners), *_login_problems(loaded)]:
        raise ConfigError(problems)
    return loaded


def _with_references(
    settings: list[Setting], environment: Mapping[str, str], read_file: "FileReader | None"
) -> list[Setting]:
    from ottla.config.config_providers import resolve_references  # few nodes need it

    found, problems = resolve_references(settings, environment, read_file)
    if problems:
        raise ConfigError(problems)
    return found


def _login_problems(loaded: Loaded) -> Iterable[Problem]:
    """Check that a broker offers the mechanism that it uses to authenticate to its peers."""
    name = loaded.listeners.inter_broker
    if name is None or not loaded.listeners.named(name).protocol.uses_sasl:
        return
    mechanism = loaded.broker.sasl_mechanism_inter_broker_protocol
    if mechanism not in for_listener(loaded, name).sasl_enabled_mechanisms:
        rule = f"must be one of sasl.enabled.mechanisms of listener {name}"
        yield Problem("sasl.mechanism.inter.broker.protocol", mechanism, rule)


def _fill_node_id(merged: dict[str, Setting]) -> None:
    """Use ``broker.id`` for ``node.id`` and vice versa, as Kafka does."""
    for one, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if one in merged and other not in merged:
            merged[other] = replace(merged[one], key=other)


def build_broker(settings: Mapping[str, Setting]) -> BrokerConfig:
    """Parse every known key on its own. Raises `ConfigError` with all invalid ones."""
    problems: list[Problem] = []
    values: dict[str, Value | None] = {}
    for name, setting in settings.items():
        key = _BROKER.get(name) or base_of_listener_key(name)
        if key is None:
            continue
        try:
            value = _parse_setting(key, setting)
        except BadValue as error:
            text = None if setting.is_reference else shown(key, setting.value)
            problems.append(Problem(name, text, str(error), setting.origin))
        else:
            values[name] = value
    fields = fields_of(Scope.BROKER)
    problems += [
        Problem(key.name, None, "must be set")
        for key in fields
        if isinstance(key.default, Required) and key.name not in settings
    ]
    if problems:
        raise ConfigError(problems)
    arguments = {key.field: values[key.name] for key in fields if key.name in values}
    return BrokerConfig(**arguments)  # type: ignore[arg-type]


def _parse_setting(key: Key, setting: Setting) -> Value:
    if key.name in DYNAMIC_ONLY:
        raise BadValue("can only be altered at run time, not set at start")
    value = parse_checked(key, setting.value)
    if (rule := unsupported_value(key, value)) is not None:
        raise BadValue(rule)
    return value


def _warnings(
    settings: Iterable[Setting], merged: Mapping[str, Setting]
) -> Iterable[ConfigWarning]:
    seen: dict[str, str] = {}
    for setting in settings:
        if seen.get(setting.key, "").startswith("line") and setting.origin.startswith("line"):
            message = f"given on {seen[setting.key]} and {setting.origin}; the last one is used"
            yield ConfigWarning(setting.key, message)
        seen[setting.key] = setting.origin
    values = {name: setting.value for name, setting in merged.items()}
    for name, setting in merged.items():
        if name in UNSUPPORTED_KEYS:
            yield from _warn_unsupported(_BROKER[name], setting)
        elif remark := unknown_key(name, values):
            yield ConfigWarning(name, f"{remark} ({setting.origin})")


def _warn_unsupported(key: Key, setting: Setting) -> Iterable[ConfigWarning]:
    unsupported = UNSUPPORTED_KEYS[key.name]
    if not unsupported.refused and setting.value.strip() != to_text(key.default_value):
        yield ConfigWarning(key.name, f"has no effect here: {unsupported.reason}")


def unknown_key(name: str, values: Mapping[str, str]) -> str | None:
    """Return what is wrong with a key that means nothing to a node; None if it means something.

    ``values`` are all settings: they may name the prefixes of remote storage's own keys.
    """
    if name in _BROKER or name in (ALLOW_EVERYONE, SUPER_USERS):
        return None
    if base_of_listener_key(name) is not None:
        return None
    for owner in ("remote.log.metadata.manager", "remote.log.storage.manager"):
        prefix = f"{owner}.impl.prefix"
        default = to_text(_BROKER[prefix].default_value) or ""
        given = values[prefix].strip() if prefix in values else default
        if given and name.startswith(given):
            return None
    if (reason := reason_of_removal(name)) is not None:
        return f"not a key of Kafka 4: {reason}"
    import difflib  # imported here to keep it out of every start

    near = difflib.get_close_matches(name, _BROKER, n=1, cutoff=0.6)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key"


def for_listener(loaded: Loaded, listener: str, mechanism: str | None = None) -> BrokerConfig:
    """Return the settings of one listener, or for SASL of one of its mechanisms.

    ``listener.name.{listener}.{mechanism}.{key}`` takes precedence over
    ``listener.name.{listener}.{key}``, and that over ``{key}``. All were checked by `load`.
    """
    prefixes = [f"{LISTENER_PREFIX}{listener.lower()}."]
    if mechanism is not None:
        prefixes.append(f"{prefixes[0]}{mechanism.lower()}.")
    fields = {key.name for key in fields_of(Scope.BROKER)}
    changes: dict[str, Value] = {}
    for prefix in prefixes:
        for name, text in loaded.static.items():
            key = _BROKER.get(name.removeprefix(prefix))
            if name.startswith(prefix) and key is not None and key.name in fields:
                changes[key.field] = parse_checked(key, text)
    return replace(loaded.broker, **changes)
