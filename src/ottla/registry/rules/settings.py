"""Modes and settings in force for a subject: its own, else its context's, else the registry's."""

from typing import Final

from msgspec import structs

from ottla.registry.rules.entities import SubjectConfig
from ottla.registry.rules.state import RegistryState
from ottla.registry.rules.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    context_prefix,
    parse_subject,
)

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
POLICIES: Final = ("STRICT", "LENIENT", "LOGICAL")
READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
FORWARD: Final = "FORWARD"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD)
_GLOBAL: Final = context_prefix(GLOBAL_CONTEXT)
_INHERITED: Final = (
    "normalize",
    "validate_fields",
    "validate_new_schemas",
    "validate_rules",
    "compatibility_policy",
    "compatibility_group",
)


class Defaults:
    """What applies where nothing is set."""

    def __init__(self, level: str = "BACKWARD") -> None:
        self.level = level


DEFAULTS: Final = Defaults()


def own_config(
    state: RegistryState, subject: str | None, defaults: Defaults = DEFAULTS
) -> SubjectConfig | None:
    """Return the settings of a subject itself; the registry always has some."""
    config = state.configs.get(subject or None)
    if config is not None:
        return _with_level(config, defaults)
    is_global = not subject or parse_subject(subject).context == GLOBAL_CONTEXT
    return SubjectConfig(compatibility_level=defaults.level) if is_global else None


def config_in_scope(
    state: RegistryState, subject: str | None, defaults: Defaults = DEFAULTS
) -> SubjectConfig:
    """Return the settings in force for a subject.

    Settings of its own inherit what they leave open, except for the level, from the registry's.
    """
    own = state.configs.get(subject or None) if subject else None
    if own is None:
        return _inherited(state, subject, defaults)
    top = state.configs.get(None)
    merged = own
    if top is not None:
        missing = {name: getattr(top, name) for name in _INHERITED if getattr(own, name) is None}
        merged = structs.replace(own, **missing)
    return _with_level(merged, defaults)


def _inherited(state: RegistryState, subject: str | None, defaults: Defaults) -> SubjectConfig:
    context = DEFAULT_CONTEXT if not subject else parse_subject(subject).context
    for key in (context_prefix(context) or None, _GLOBAL):
        config = state.configs.get(key)
        if config is not None:
            return _with_level(config, defaults)
    return SubjectConfig(compatibility_level=defaults.level)


def _with_level(config: SubjectConfig, defaults: Defaults) -> SubjectConfig:
    if config.compatibility_level is not None:
        return config
    return structs.replace(config, compatibility_level=defaults.level)


def own_mode(state: RegistryState, subject: str | None) -> str | None:
    """Return the mode of a subject itself; the registry always has one."""
    mode = state.modes.get(subject or None)
    if mode is not None:
        return mode
    is_global = not subject or parse_subject(subject).context == GLOBAL_CONTEXT
    return READWRITE if is_global else None


def mode_in_scope(state: RegistryState, subject: str | None) -> str:
    """Return the mode in force for a subject. The registry's READONLY_OVERRIDE beats all others."""
    if READONLY_OVERRIDE in (state.modes.get(None), state.modes.get(_GLOBAL)):
        return READONLY_OVERRIDE
    context = DEFAULT_CONTEXT if not subject else parse_subject(subject).context
    for key in (subject or None, context_prefix(context) or None, _GLOBAL):
        mode = state.modes.get(key)
        if mode is not None:
            return mode
    return READWRITE


def is_read_only(mode: str) -> bool:
    """Say whether a mode forbids every change."""
    return mode in (READONLY, READONLY_OVERRIDE)


def replace_alias(state: RegistryState, subject: str) -> str:
    """Return the subject that a name stands for: its own unless an alias is set for it."""
    config = state.configs.get(subject)
    if config is None or not config.alias:
        return subject
    alias = parse_subject(config.alias)
    if alias.context != DEFAULT_CONTEXT:
        return str(alias)
    return parse_subject(subject).prefix + alias.subject
