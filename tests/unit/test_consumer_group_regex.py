"""Subscriptions by expression: matches, refreshes, and invalid expressions."""

from contextlib import suppress
from typing import Any

import pytest
from consumer_harness import ConsumerHarness, image_with, named
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.consumer.regex import (
    CLASSES_MAX,
    PROGRAM_MAX,
    InvalidRegularExpression,
    Matches,
    MatchingTakesLong,
    check_expression,
    compiled,
    match_steps,
    matched,
    matching,
)
from ottla.coordinators.groups.consumer.settings import ConsumerSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.internal.consumer_group_records import ConsumerGroupRegularExpressionKey


def test_an_expression_matches_whole_names() -> None:
    assert matching("a.*", ["a", "ab", "ba"]) == {"a", "ab"}
    assert matching("a|b", ["a", "b", "ab"]) == {"a", "b"}
    assert matching("(", ["("]) == frozenset()


@pytest.mark.parametrize("expression", ["a(", "*", "(?=a)b", r"(a)\1", "a{2000}", "[z-a]"])
def test_invalid_expression_is_rejected(expression: str) -> None:
    with pytest.raises(Fault) as caught:
        check_expression(expression)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_a_safe_expression(expression: str) -> None:
    with suppress(InvalidRegularExpression):
        check_expression(expression)
    matching(expression, ["t"])


def test_an_expression_that_is_slow_elsewhere_is_not_here() -> None:
    assert matching("(a+)+b", ["a" * 200]) == frozenset()


@pytest.mark.parametrize(
    "expression",
    [
        "(?:[a-z]{0,200}[a-y]{0,200}[b-z]{0,200})" * 12,
        "(?:[a-z]{0,200}[a-y]{0,200}[b-z]{0,200})" * 38,
        r"\pL" * (CLASSES_MAX + 1),
    ],
)
def test_expression_with_a_large_program_is_rejected(expression: str) -> None:
    """Such took 0.25 s for each name of 200 characters, or 1 s to compile."""
    with pytest.raises(InvalidRegularExpression):
        check_expression(expression)
    assert matching(expression, ["a"]) == frozenset()


def test_message_about_a_long_expression_fits_in_a_reply() -> None:
    with pytest.raises(InvalidRegularExpression) as caught:
        check_expression("(" + "a" * 32_000)
    assert len(str(caught.value)) < 1000


def test_ordinary_expressions_have_small_programs() -> None:
    names = [f"{number * 7919:x}-team.orders-{number}" for number in range(200)]
    for expression in ("orders-.*", ".*", "|".join(names), r"\pL+\d+", "(?i)orders|payments"):
        assert compiled(expression).programsize < PROGRAM_MAX
    assert matching("|".join(names), names) == set(names)


def test_much_work_is_done_in_steps_before_the_decision() -> None:
    expression = "(?:[a-z]{0,50}[a-y]{0,50}[b-z]{0,50}){3}"
    names = {f"{'zyx' * 50}{'a' * (number % 9)}": number for number in range(9)}
    with pytest.raises(MatchingTakesLong) as caught:
        matched([expression], {**names, **{f"{key}b": 0 for key in range(5000)}}, Matches())
    assert caught.value.expressions == [expression]
    many = [f"{'zyx' * 50}{number}" for number in range(50)]
    steps = match_steps(expression, many)
    assert sum(1 for _ in steps) > 2, "it yields between the names"
    # What was found is used for the same names alone.
    known = Matches(names, {expression: frozenset({"found"})})
    assert matched([expression], names, known) == {expression: {"found"}}
    assert matched([expression], dict(names), known) != {expression: {"found"}}


# -- in a group --------------------------------------------------------------------------


def test_a_member_reads_what_its_expression_matches() -> None:
    harness = ConsumerHarness(image=image_with(t=1, t2=1, u=1))
    reply = harness.enter("a", subscribed_topic_regex="t.*")
    assert named(reply) == {"t": [0], "t2": [0]}
    reply = harness.beat("a", 1, subscribed_topic_names=["u"])
    assert named(reply) == {"t": [0], "t2": [0], "u": [0]}
    assert harness.consumers().is_subscribed_to("t2")


def test_member_gets_the_topics_it_names_before_those_of_its_expression() -> None:
    harness = ConsumerHarness(image=image_with(t=1, t2=1, u=1))
    reply = harness.enter("a", "u", subscribed_topic_regex="t.*")
    assert (reply.member_epoch, named(reply)) == (1, {"u": [0]})
    assert not harness.consumers().regexes
    reply = harness.beat("a", 1, {"u": [0]})
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0], "t2": [0], "u": [0]})
    reply = harness.beat("a", 2, subscribed_topic_regex="t2")
    assert (reply.member_epoch, named(reply)) == (2, {"u": [0]}), "it gives up the others at once"
    reply = harness.beat("a", 2, {"u": [0]})
    assert named(reply) == {"t2": [0], "u": [0]}
    assert harness.reload().consumers() == harness.consumers()


def test_expression_that_another_member_uses_is_resolved_for_a_member_with_names() -> None:
    harness = ConsumerHarness(image=image_with(t=1, u=1))
    harness.enter("a", subscribed_topic_regex="t.*")
    harness.beat("a", -1)
    harness.enter("b", subscribed_topic_regex="t.*")
    harness.enter("c", "u", subscribed_topic_regex="t.*")
    owners = {topic for member in "bc" for topic in harness.consumers().target_of(member)}
    assert len(owners) == 2


def test_a_bad_expression_changes_nothing() -> None:
    harness = ConsumerHarness()
    with pytest.raises(Fault) as caught:
        harness.enter("a", subscribed_topic_regex="(")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not harness.machine.groups
    harness.enter("b")
    with pytest.raises(Fault):
        harness.beat("b", 1, subscribed_topic_regex="(")
    with pytest.raises(Fault):
        harness.enter("c", "t", subscribed_topic_regex="(")
    assert harness.consumers().members["b"].topic_regex == ""


def test_new_topics_are_found_after_a_while() -> None:
    harness = ConsumerHarness(image=image_with(t=1))
    harness.enter("a", subscribed_topic_regex="t.*")
    harness.image = image_with(t=1, t2=1)
    assert harness.beat("a", 1).member_epoch == 1, "not again within ten seconds"
    harness.pass_ms(10_001)
    reply = harness.beat("a", 1)
    assert (reply.member_epoch, named(reply)) == (2, {"t": [0], "t2": [0]})
    harness.image = image_with(t2=1)
    harness.pass_ms(10_001)
    assert named(harness.beat("a", 2)) == {"t2": [0]}


def test_the_same_topics_are_searched_once() -> None:
    harness = ConsumerHarness(image=image_with(t=1))
    harness.enter("a", subscribed_topic_regex="t.*")
    harness.pass_ms(10_001)
    harness.beat("a", 1)
    written = len(harness.log.batches)
    for _ in range(3):
        harness.pass_ms(10_001)
        assert harness.beat("a", 1).member_epoch == 1
    assert len(harness.log.batches) == written


def test_expressions_are_matched_again_after_the_refresh_interval() -> None:
    settings = ConsumerSettings(regex_refresh_interval_ms=30_000)
    harness = ConsumerHarness(image=image_with(t=1, t2=1), consumer=settings)
    harness.hidden.add("t2")
    assert named(harness.enter("a", subscribed_topic_regex="t.*")) == {"t": [0]}
    harness.pass_ms(10_001)
    harness.beat("a", 1)
    harness.hidden.clear()
    harness.pass_ms(20_000)
    assert harness.beat("a", 1).member_epoch == 1
    harness.pass_ms(10_002)
    assert named(harness.beat("a", 1)) == {"t": [0], "t2": [0]}


def test_unused_expressions_are_removed() -> None:
    harness = ConsumerHarness()
    harness.enter("a", subscribed_topic_regex="t")
    harness.enter("b", subscribed_topic_regex="t")
    harness.beat("a", 1, subscribed_topic_regex="u")
    assert set(harness.consumers().regexes) == {"t", "u"}
    harness.beat("b", -1)
    assert set(harness.consumers().regexes) == {"u"}
    harness.beat("a", 1, {}, subscribed_topic_regex="")
    assert not harness.consumers().regexes
    keys = [
        record.key.regular_expression
        for record in harness.records()
        if isinstance(record.key, ConsumerGroupRegularExpressionKey) and record.value is None
    ]
    assert keys == ["t", "u"]


def test_two_members_by_name_and_by_expression_share() -> None:
    harness = ConsumerHarness(image=image_with(t=4))
    harness.enter("a", "t")
    harness.enter("b", subscribed_topic_regex="t")
    owned: dict[str, Any] = {"a": {"t": [0, 1, 2, 3]}}
    harness.settle(owned)
    assert sorted(harness.assigned("a")["t"] + harness.assigned("b")["t"]) == [0, 1, 2, 3]
    assert len(harness.assigned("a")["t"]) == 2
    assert harness.reload().consumers() == harness.consumers()
