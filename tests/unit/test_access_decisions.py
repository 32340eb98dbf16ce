"""Decisions of an authorizer, kept for the fast paths until its rules change."""

from ottla.api.security.access_decisions import ALLOWED_MAX, AccessDecisions
from ottla.api.surface.routes import Caller
from ottla.runtime.ports import Address

ALICE = Caller("User:alice", "c", Address("10.0.0.1", 5), "PLAINTEXT")
BOB = Caller("User:bob", "c", Address("10.0.0.1", 5), "PLAINTEXT")
ELSEWHERE = Caller("User:alice", "c", Address("10.0.0.2", 5), "PLAINTEXT")


class Rules:
    """Allows alice, and counts the questions."""

    def __init__(self) -> None:
        self.version = 0
        self.questions = 0

    def may(self, caller: Caller, name: str) -> bool:
        self.questions += 1
        return caller.principal == "User:alice"


def decisions_of(rules: Rules) -> AccessDecisions:
    return AccessDecisions(rules.may, lambda: rules.version)


def test_without_an_authorizer_every_caller_is_allowed() -> None:
    decisions = AccessDecisions()
    assert decisions.is_open
    assert decisions.ask(BOB, "orders")
    assert decisions.is_allowed(BOB, "orders")


def test_only_what_was_asked_for_and_allowed_is_kept() -> None:
    rules = Rules()
    decisions = decisions_of(rules)
    assert not decisions.is_allowed(ALICE, "orders"), "not asked yet"
    assert decisions.ask(ALICE, "orders")
    assert not decisions.ask(BOB, "orders")
    assert rules.questions == 2
    assert decisions.is_allowed(ALICE, "orders")
    assert not decisions.is_allowed(BOB, "orders")
    assert not decisions.is_allowed(ALICE, "payments")
    assert not decisions.is_allowed(ELSEWHERE, "orders"), "ACLs may name hosts"
    assert rules.questions == 2, "the fast path does not ask the authorizer"


def test_change_of_the_rules_drops_every_decision() -> None:
    rules = Rules()
    decisions = decisions_of(rules)
    decisions.ask(ALICE, "orders")
    rules.version += 1
    assert not decisions.is_allowed(ALICE, "orders")
    assert decisions.ask(ALICE, "orders")
    assert decisions.is_allowed(ALICE, "orders")


def test_kept_decisions_are_bounded() -> None:
    decisions = decisions_of(Rules())
    for number in range(ALLOWED_MAX + 1):
        decisions.ask(ALICE, str(number))
    assert not decisions.is_allowed(ALICE, "0")
    assert decisions.is_allowed(ALICE, str(ALLOWED_MAX))
