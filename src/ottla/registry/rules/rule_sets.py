"""Rule sets and metadata: checked when they arrive, and merged with a subject's settings."""

import re
from collections.abc import Iterable
from typing import Final

from ottla.registry.rules.entities import Metadata, Rule, RuleSet
from ottla.registry.rules.errors import Rejection, invalid_rule_set

NAME_LENGTH_MAX: Final = 64
RULES_MAX: Final = 1_000
CONFLUENT_VERSION: Final = "confluent:version"
_KINDS: Final = ("TRANSFORM", "CONDITION")
_MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
_NAME_START: Final = re.compile(r"[^\W\d]")
_NAME: Final = re.compile(r"[\w-]+\Z")


def check_rule_set(rule_set: RuleSet | None) -> None:
    """Check the rules of a request. Raises a Rejection."""
    if rule_set is None:
        return
    names: set[str] = set()
    for rules, modes, kind in (
        (rule_set.migration_rules, _MIGRATION_MODES, "Migration"),
        (rule_set.domain_rules, _DOMAIN_MODES, "Domain"),
        (rule_set.encoding_rules, _DOMAIN_MODES, "Encoding"),
    ):
        if rules is not None and len(rules) > RULES_MAX:
            raise invalid_rule_set(f"A rule set may have {RULES_MAX} rules of a kind")
        for rule in rules or ():
            _check_rule(rule, modes, kind)
            if rule.name in names:
                raise _rejected(rule, f"Found rule with duplicate name '{rule.name}'")
            names.add(rule.name or "")


def _check_rule(rule: Rule, modes: tuple[str, ...], kind: str) -> None:
    if rule.name is None:
        raise _rejected(rule, "Missing rule name")
    if not rule.name:
        raise _rejected(rule, "Empty rule name")
    if len(rule.name) > NAME_LENGTH_MAX:
        raise _rejected(rule, "Rule name too long")
    if not _NAME_START.match(rule.name):
        raise _rejected(rule, f"Illegal initial character in rule name: {rule.name}")
    if not _NAME.match(rule.name):
        raise _rejected(rule, f"Illegal character in rule name: {rule.name}")
    if rule.type is None:
        raise _rejected(rule, "Missing rule type")
    if rule.kind is not None and rule.kind not in _KINDS:
        raise _rejected(rule, f"Rule kind must be {' or '.join(_KINDS)}")
    if rule.mode is not None and rule.mode not in modes:
        raise _rejected(rule, f"{kind} rules can only be {', '.join(modes)}")
    if rule.mode not in (None, "WRITEREAD", "UPDOWN"):
        for action in (rule.on_success, rule.on_failure):
            if action is not None and "," in action:
                text = "Multiple actions only valid with WRITEREAD and UPDOWN"
                raise _rejected(rule, text)


def _rejected(rule: Rule, text: str) -> Rejection:
    name = "" if rule.name is None else rule.name[:NAME_LENGTH_MAX]
    return invalid_rule_set(f"Rule '{name}': {text}" if name else text)


def merge_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """Return both; where both have a member, the new one counts."""
    if old is None or new is None:
        return new if old is None else old
    return Metadata(
        tags=_merge(old.tags, new.tags),
        properties=_merge(old.properties, new.properties),
        sensitive=sorted({*(old.sensitive or ()), *(new.sensitive or ())}) or None,
    )


def _merge(old: dict | None, new: dict | None) -> dict | None:  # type: ignore[type-arg]
    if old is None or new is None:
        return new if old is None else old
    return dict(sorted({**old, **new}.items()))


def merge_rule_sets(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """Return both; a new rule replaces an old one of the same name and moves to the end."""
    if old is None or new is None:
        return new if old is None else old
    return RuleSet(
        migration_rules=_merge_rules(old.migration_rules, new.migration_rules),
        domain_rules=_merge_rules(old.domain_rules, new.domain_rules),
        encoding_rules=_merge_rules(old.encoding_rules, new.encoding_rules),
        enable_at=new.enable_at or old.enable_at,
    )


def _merge_rules(old: list[Rule] | None, new: list[Rule] | None) -> list[Rule] | None:
    if not old or not new:
        return new or old
    names = {rule.name for rule in new}
    return [*(rule for rule in old if rule.name not in names), *new]


def without_rules(rule_set: RuleSet | None, names: Iterable[str]) -> RuleSet | None:
    """Return a rule set without the rules of these names."""
    if rule_set is None:
        return None
    removed = frozenset(names)

    def left(rules: list[Rule] | None) -> list[Rule] | None:
        return None if rules is None else [rule for rule in rules if rule.name not in removed]

    return RuleSet(
        migration_rules=left(rule_set.migration_rules),
        domain_rules=left(rule_set.domain_rules),
        encoding_rules=left(rule_set.encoding_rules),
        enable_at=rule_set.enable_at,
    )


def version_in(metadata: Metadata | None) -> str | None:
    """Return the version that metadata says it belongs to."""
    properties = None if metadata is None else metadata.properties
    return None if properties is None else properties.get(CONFLUENT_VERSION)


def with_version(metadata: Metadata | None, version: int) -> Metadata:
    """Return metadata that says which version it belongs to."""
    own = Metadata(properties={CONFLUENT_VERSION: str(version)})
    merged = merge_metadata(metadata, own)
    assert merged is not None
    return merged


def without_version(metadata: Metadata | None) -> Metadata | None:
    """Return metadata that does not say which version it belongs to; None if nothing is left."""
    if metadata is None or version_in(metadata) is None:
        return metadata
    properties = {
        key: value for key, value in (metadata.properties or {}).items() if key != CONFLUENT_VERSION
    }
    left = Metadata(metadata.tags, properties or None, metadata.sensitive)
    return None if left == Metadata() else left
