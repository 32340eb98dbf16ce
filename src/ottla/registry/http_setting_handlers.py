"""The handlers of settings and modes: of a subject, of a context or of the registry."""

from typing import Any, Final

import msgspec

from ottla.registry.http_call import Call, Reply, json_reply
from ottla.registry.rules import errors
from ottla.registry.rules.replies import config_reply
from ottla.registry.rules.setting_changes import (
    decide_config_deletion,
    decide_config_update,
    decide_mode_deletion,
    decide_mode_update,
)
from ottla.registry.rules.settings import (
    IMPORT,
    config_in_scope,
    mode_in_scope,
    own_config,
    own_mode,
)
from ottla.registry.service import SchemaRegistry
from ottla.security.acl import AclOperation

DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS


class ModeRequest(msgspec.Struct, frozen=True):
    """The body of PUT /mode."""

    mode: str | None = None


def _setting_subject(call: Call) -> str | None:
    return (call.subject or None) if call.names else None


async def get_config(registry: SchemaRegistry, call: Call) -> Reply:
    """Return settings."""
    subject = _setting_subject(call)
    registry.access.check_settings(call.identity, DESCRIBE_CONFIGS, subject)
    state = registry.state
    if subject is None or call.target.flag("defaultToGlobal"):
        return json_reply(config_reply(config_in_scope(state, subject, registry.defaults)))
    config = own_config(state, subject, registry.defaults)
    if config is None:
        raise errors.no_subject_config(subject)
    return json_reply(config_reply(config))


async def put_config(registry: SchemaRegistry, call: Call) -> Reply:
    """Change settings."""
    subject = _setting_subject(call)
    registry.access.check_settings(call.identity, ALTER_CONFIGS, subject)
    body = call.read(dict[str, Any])
    return await registry.change(
        call,
        lambda state, results: decide_config_update(state, subject, body),
        is_repeatable=True,
    )


async def delete_config(registry: SchemaRegistry, call: Call) -> Reply:
    """Remove settings."""
    subject = _setting_subject(call)
    registry.access.check_settings(call.identity, ALTER_CONFIGS, subject)
    return await registry.change(
        call, lambda state, results: decide_config_deletion(state, subject, registry.defaults)
    )


async def get_mode(registry: SchemaRegistry, call: Call) -> Reply:
    """Return a mode."""
    subject = _setting_subject(call)
    registry.access.check_settings(call.identity, DESCRIBE_CONFIGS, subject)
    state = registry.state
    if subject is None or call.target.flag("defaultToGlobal"):
        return json_reply({"mode": mode_in_scope(state, subject)})
    mode = own_mode(state, subject)
    if mode is None:
        raise errors.no_subject_mode(subject)
    return json_reply({"mode": mode})


async def put_mode(registry: SchemaRegistry, call: Call) -> Reply:
    """Change a mode."""
    subject = _setting_subject(call)
    registry.access.check_settings(call.identity, ALTER_CONFIGS, subject)
    mode, is_forced = call.read(ModeRequest).mode, call.target.flag("force")
    if (mode or "").upper() == IMPORT:
        # Imported ids count for the whole context: the largest one would end all registrations.
        registry.access.check_settings(call.identity, ALTER_CONFIGS, None)
    return await registry.change(
        call,
        lambda state, results: decide_mode_update(state, subject, mode, is_forced=is_forced),
        is_repeatable=True,
    )


async def delete_mode(registry: SchemaRegistry, call: Call) -> Reply:
    """Remove a mode."""
    subject = _setting_subject(call)
    registry.access.check_settings(call.identity, ALTER_CONFIGS, subject)
    is_recursive = call.target.flag("recursive")
    return await registry.change(
        call,
        lambda state, results: decide_mode_deletion(state, subject, is_recursive=is_recursive),
    )
