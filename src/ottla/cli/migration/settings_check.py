"""What becomes of each setting of a Kafka node's ``server.properties``. Pure.

supported   it has the effect that it has in Kafka
ignored     it has no effect here; the detail says what there is instead
different   it has an effect that is not quite Kafka's
problem     the node would not start with it, or would do less than the setting demands
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ottla.cli.migration.findings import Area, Finding, State
from ottla.config.config_providers import FileReader, resolve_references
from ottla.config.key_definition import Key, Scope
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.layers import parse_checked
from ottla.config.loading import load
from ottla.config.problems import ConfigError, Problem
from ottla.config.properties import BadProperties, Setting, from_text
from ottla.config.unenforced import ALLOW_EVERYONE, SUPER_USERS
from ottla.config.unsupported import UNSUPPORTED_KEYS, reason_of_removal, unsupported_value
from ottla.config.values import BadValue, Type, to_text

_BROKER: Final = KEYS[Scope.BROKER]
_LINE: Final = re.compile(r"line (\d+)")

# Keys of the authorizer: not in Kafka's table, read by StandardAuthorizer and by ours.
_AUTHORIZER_KEYS: Final = frozenset({ALLOW_EVERYONE, SUPER_USERS})
# Keys that Kafka 4.3 has and 4.2 has not, apart from those that have an effect here.
_NEWER: Final = re.compile(
    r"controller\.quorum\.fetch\.(snapshot\.)?max\.bytes"
    r"|follower\.fetch\.last\.tiered\.offset\.enable"
    r"|group\.(consumer|share|streams)\.((min|max)\.)?assignment\.interval\.ms"
    r"|group\.(consumer|share|streams)\.assignor\.offload\.enable"
    r"|group\.coordinator\.(background\.threads|cached\.buffer\.max\.bytes)"
    r"|group\.share\.(min|max)\.(delivery\.count\.limit|partition\.max\.record\.locks)"
    r"|share\.coordinator\.cached\.buffer\.max\.bytes"
)
# Read by Kafka's start scripts or by the providers of `config.providers`.
_PROVIDERS: Final = "config.providers"

WHAT_TO_DO: Final[Mapping[str, str]] = {
    "authorizer.class.name": (
        "Move the rules to ACLs of StandardAuthorizer (`ottla acl add`) before the migration, or "
        "keep this cluster on Kafka: without the class its rules would not be enforced."
    ),
    "principal.builder.class": (
        "Name principals by ssl.principal.mapping.rules or sasl.kerberos.principal.to.local.rules."
    ),
    "create.topic.policy.class.name": "Restrict topic creation with ACLs (Create on topics).",
    "alter.config.policy.class.name": "Restrict changes with ACLs (AlterConfigs on topics).",
    "client.quota.callback.class": "Set client quotas instead: `ottla quota set`.",
    "replica.selector.class": "Use RackAwareReplicaSelector or the default.",
    "sasl.server.callback.handler.class": "Use SCRAM, OAUTHBEARER with a JWKS endpoint, or mTLS.",
    "ssl.engine.factory.class": "Use key stores in PEM or PKCS12 (ssl.keystore.*).",
    "config.providers": "Use Kafka's file, directory or environment provider.",
    "metric.reporters": "Scrape the Prometheus page of ottla.metrics.listener (docs/metrics.md).",
    "kafka.metrics.reporters": "Scrape the Prometheus page of ottla.metrics.listener.",
    "transaction.two.phase.commit.enable": "Turn it off; no prepared transaction may be open.",
}
"""What an operator does about a setting that is refused or ignored."""

DIFFERENT: Final[Mapping[str, str]] = {
    "quota.window.num": "quotas have no samples: a client over its quota pays off a debt",
    "num.replica.fetchers": "one event loop runs all fetchers; more do not use more cores",
    "log.cleaner.threads": "one log is compacted at a time, on the event loop",
    "log.cleaner.io.buffer.size": "compaction uses buffers of a fixed size",
    "num.recovery.threads.per.data.dir": "logs are recovered sequentially",
}
"""Keys with an effect that is not quite Kafka's, and how it differs."""


def check_settings(
    text: str, environment: Mapping[str, str], read_file: FileReader | None = None
) -> list[Finding]:
    """Return what becomes of each setting, in the order of the file.

    Values are never in a finding: they may be secret.
    """
    try:
        written = from_text(text)
    except BadProperties as error:
        return [_finding("file", State.PROBLEM, str(error), "Correct the line.")]
    settings, problems = written, list[Problem]()
    if any(each.key == _PROVIDERS for each in written):
        settings, problems = resolve_references(written, environment, read_file)
    last = {each.key: each for each in settings}
    found = [_check_setting(each) for each in settings if last[each.key] is each]
    found += [_check_repeated(each) for each in settings if last[each.key] is not each]
    found += _check_providers(written, problems)
    together = list(_check_together(text, environment, read_file, found))
    wrong = {each.subject for each in together}
    return [*(each for each in found if each.subject not in wrong), *together]


def _check_setting(setting: Setting) -> Finding:
    name = setting.key
    key = _BROKER.get(name) or base_of_listener_key(name)
    line = _line_of(setting)
    if key is None:
        return _check_unknown(name, line)
    unsupported = UNSUPPORTED_KEYS.get(key.name)
    fix = WHAT_TO_DO.get(key.name, "")
    try:
        value = parse_checked(key, setting.value)
    except BadValue as error:
        return _finding(name, State.PROBLEM, str(error), fix or "Correct the value.", line)
    if (reason := unsupported_value(key, value)) is not None:
        return _finding(name, State.PROBLEM, reason, fix or "Remove the setting.", line)
    is_default = setting.value.strip() == (to_text(key.default_value) or "")
    if unsupported is not None and not unsupported.refused and not is_default:
        return _finding(name, State.IGNORED, unsupported.reason, fix, line)
    if (difference := _difference(key, setting)) is not None and not is_default:
        return _finding(name, State.DIFFERENT, difference, "", line)
    return _finding(name, State.SUPPORTED, line=line)


def _difference(key: Key, setting: Setting) -> str | None:
    if key.name in DIFFERENT:
        return DIFFERENT[key.name]
    if key.type is Type.CLASS and setting.value.strip() and key.name not in UNSUPPORTED_KEYS:
        return "no class is loaded: the name only selects what is built in"
    return None


def _check_unknown(name: str, line: int) -> Finding:
    if name in _AUTHORIZER_KEYS:
        return _finding(name, State.SUPPORTED, line=line)
    if (reason := reason_of_removal(name)) is not None:
        return _finding(name, State.IGNORED, f"Kafka 4 ignores it, too: {reason}", "", line)
    if _NEWER.fullmatch(name):
        detail = "a key of Kafka 4.3 that has no effect here: settings are those of Kafka 4.2"
        return _finding(name, State.IGNORED, detail, "", line)
    detail = "not a key of Kafka 4.2; a plugin may have read it in Kafka, nothing reads it here"
    return _finding(name, State.IGNORED, detail, "Check that nothing depends on it.", line)


def _check_repeated(setting: Setting) -> Finding:
    detail = "given again further down; the last one is used, as in Kafka"
    return _finding(setting.key, State.IGNORED, detail, "", _line_of(setting))


def _check_providers(written: Sequence[Setting], problems: Iterable[Problem]) -> Iterator[Finding]:
    refused = {each.key: each for each in problems}
    for setting in written:
        problem = refused.get(setting.key)
        if problem is not None:
            fix = WHAT_TO_DO[_PROVIDERS]
            yield _finding(setting.key, State.PROBLEM, problem.rule, fix, _line_of(setting))
        elif setting.key == _PROVIDERS or setting.key.startswith(f"{_PROVIDERS}."):
            yield _finding(setting.key, State.SUPPORTED, line=_line_of(setting))


def _check_together(
    text: str,
    environment: Mapping[str, str],
    read_file: FileReader | None,
    found: Sequence[Finding],
) -> Iterator[Finding]:
    """Yield what is wrong with the settings as a whole, unless it was found with one of them."""
    known = {each.subject for each in found if each.state is State.PROBLEM}
    lines = {each.subject: each.line for each in found}
    try:
        load(text, environment, (), read_file)
    except ConfigError as error:
        for each in error.problems:
            if each.key not in known:
                line = lines.get(each.key, 0)
                yield _finding(each.key, State.PROBLEM, each.rule, "Correct the settings.", line)


def _line_of(setting: Setting) -> int:
    matched = _LINE.fullmatch(setting.origin)
    return int(matched[1]) if matched else 0


def _finding(subject: str, state: State, detail: str = "", fix: str = "", line: int = 0) -> Finding:
    return Finding(
        area=Area.SETTING, subject=subject, state=state, detail=detail, fix=fix, line=line
    )
