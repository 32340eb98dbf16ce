"""The decision to add tags to a schema and remove others, as a new version of its subject."""

from ottla.registry.rules import errors
from ottla.registry.rules.decision import Decision
from ottla.registry.rules.entities import RegisterRequest, TagsRequest
from ottla.registry.rules.lookups import find_version
from ottla.registry.rules.references import stored_text
from ottla.registry.rules.registration import Registration, decide_registration, tag_pairs
from ottla.registry.rules.rule_sets import check_rule_set, merge_rule_sets, without_rules
from ottla.registry.rules.schema_work import Results, Retag
from ottla.registry.rules.settings import DEFAULTS, Defaults
from ottla.registry.rules.state import RegistryState


def decide_tags(
    state: RegistryState,
    subject: str,
    version: int,
    body: TagsRequest,
    results: Results,
    defaults: Defaults = DEFAULTS,
) -> Decision:
    """Register the tagged schema as the newest version. Raises a Rejection, or WorkNeeded."""
    schema = find_version(state, subject, version)
    rule_set = body.rule_set
    if body.rules_to_merge is not None or body.rules_to_remove is not None:
        if body.rule_set is not None:
            text = "ruleSet should be omitted if specifying rulesToMerge or rulesToRemove"
            raise errors.invalid_rule_set(text)
        check_rule_set(body.rules_to_merge)
        merged = merge_rule_sets(schema.rule_set, body.rules_to_merge)
        rule_set = without_rules(merged, body.rules_to_remove or ())
    item = Retag(
        stored_text(state, schema), tag_pairs(body.tags_to_add), tag_pairs(body.tags_to_remove)
    )
    request = RegisterRequest(
        schema=results.text(item),
        schema_type=schema.schema_type,
        references=schema.references,
        metadata=body.metadata if body.metadata is not None else schema.metadata,
        rule_set=rule_set if rule_set is not None else schema.rule_set,
        version=body.new_version,
    )
    return decide_registration(state, Registration(schema.subject, request), results, defaults)
