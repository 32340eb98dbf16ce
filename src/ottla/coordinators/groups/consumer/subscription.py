"""The subscriptions of a consumer group, and when they begin another epoch."""

from collections.abc import Callable
from typing import Final

from ottla.coordinators.groups.consumer.context import ConsumerContext
from ottla.coordinators.groups.consumer.draft import ConsumerDraft
from ottla.coordinators.groups.consumer.group import ResolvedRegex
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.consumer.records import regex_record
from ottla.coordinators.groups.consumer.regex import Matches, check_expression, matched
from ottla.protocol.internal.consumer_group_records import ConsumerGroupRegularExpressionKey
from ottla.protocol.internal.framing import CoordinatorRecord
from ottla.protocol.types import Millis

# The expressions of a group are matched again at most this often, however many topics change.
REGEX_REFRESH_MIN_INTERVAL_MS: Final = 10_000


def raise_epoch_if_changed(
    context: ConsumerContext, draft: ConsumerDraft, *, is_changed: bool
) -> None:
    """Begin another epoch if subscriptions changed, or the topics that members read did."""
    group = draft.group
    must_rise = is_changed or group.epoch == 0
    if not must_rise and context.is_compared(group.group_id):
        return
    metadata_hash = context.metadata_hash(group)
    if must_rise or metadata_hash != group.metadata_hash:
        draft.raise_epoch(metadata_hash)
    else:
        context.note_compared(group.group_id)


def drop_unused_expressions(draft: ConsumerDraft) -> None:
    """Remove the topics matched by expressions that no member uses any more."""
    group = draft.group
    for expression in sorted(group.regexes):
        if expression not in group.expressions:
            key = ConsumerGroupRegularExpressionKey(group.group_id, expression)
            draft.add(CoordinatorRecord(key, None))


def is_resolved_later(draft: ConsumerDraft, member: ConsumerMember) -> bool:
    """Say whether the new expression of a member is first matched by the next heartbeat.

    A member that names topics, too, gets these first, as in Kafka: clients rely on it. One that has
    nothing but the expression would wait for a heartbeat with nothing to read.

    Raises `InvalidRegularExpression` for an expression that cannot be used.
    """
    expression = member.topic_regex
    if not expression or not member.topic_names or expression in draft.group.regexes:
        return False
    check_expression(expression)
    return True


def resolve_expressions(
    context: ConsumerContext,
    draft: ConsumerDraft,
    may_see: Callable[[str], bool],
    now: Millis,
    matches: Matches,
) -> bool:
    """Match new expressions, or all of them if the set of topics has changed.

    Returns whether one of them matches other topics than before. ``may_see`` says which topics the
    client may see, ``matches`` what was found before. Raises `InvalidRegularExpression` for a new
    one that cannot be used, and `MatchingTakesLong`.
    """
    group = draft.group
    if not group.expressions:
        return False
    fresh = [each for each in sorted(group.expressions) if each not in group.regexes]
    for expression in fresh:
        check_expression(expression)
    stale = _stale(context, draft, now)
    is_changed = bool(fresh)
    found = matched((*fresh, *stale), context.image().topics.ids, matches)
    for expression, names in found.items():
        topics = frozenset(filter(may_see, names))
        version = context.image().provenance.offset
        before = group.regexes.get(expression)
        is_changed = is_changed or before is None or before.topics != topics
        resolved = ResolvedRegex(topics, version, now)
        draft.add(regex_record(group.group_id, expression, resolved))
    if stale and not is_changed:
        context.note_searched(group.group_id)
    return is_changed


def _stale(context: ConsumerContext, draft: ConsumerDraft, now: Millis) -> list[str]:
    """Return the expressions to match again: topics have changed, or the last match is old."""
    group = draft.group
    known = [each for each in sorted(group.expressions) if each in group.regexes]
    if not known:
        return []
    age_ms = now - max(group.regexes[each].timestamp for each in known)
    if 0 <= age_ms <= REGEX_REFRESH_MIN_INTERVAL_MS:
        return []
    # A match in the future is from a clock that was set back: its age is unknown.
    is_old = age_ms < 0 or age_ms > context.settings.regex_refresh_interval_ms
    return known if is_old or not context.is_searched(group.group_id) else []
