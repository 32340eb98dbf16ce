"""Audit lines of authorization: one for many names, and few per principal."""

import logging

import pytest

from ottla.node.security.audit_log import AuditLog
from ottla.security.acl import AclOperation, ResourceType, Subject
from ottla.security.audit import (
    ENTRIES_MAX,
    GROWING_TICKS_MAX,
    LINES_PER_TICK,
    LINES_SAVED_MAX,
    NAMES_MAX,
    AuditTrail,
)
from ottla.security.authorizer import AclAuthorizer

ALICE = Subject("User:alice", "192.0.2.1")
READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC


def deny(trail: AuditTrail, *names: str, subject: Subject = ALICE) -> None:
    for name in names:
        trail.record(subject, READ, TOPIC, name, is_allowed=False)


def lines(trail: AuditTrail) -> list[str]:
    return [line for _, line in trail.drain()]


def settled(trail: AuditTrail) -> list[str]:
    """Return the lines of two ticks: an entry is due once it has stopped growing."""
    return lines(trail) + lines(trail)


def test_many_denied_names_are_one_line_with_the_first_names_and_a_count() -> None:
    trail = AuditTrail()
    deny(trail, *(f"t{number}" for number in range(1000)))
    (line,) = settled(trail)
    names = ",".join(f"'t{number}'" for number in range(NAMES_MAX))
    assert line == (
        f"principal='User:alice' outcome=denied operation=READ resource=TOPIC:{names}"
        " count=1000 host=192.0.2.1"
    )
    assert settled(trail) == []


def test_request_that_is_served_in_steps_is_one_line() -> None:
    trail = AuditTrail()
    for tick in range(GROWING_TICKS_MAX - 1):
        deny(trail, f"t{tick}")
        assert lines(trail) == []
    (line,) = lines(trail)
    assert f"count={GROWING_TICKS_MAX - 1}" in line


def test_endless_denials_have_a_line_every_few_ticks() -> None:
    trail, written = AuditTrail(), 0
    for _ in range(5 * GROWING_TICKS_MAX):
        deny(trail, "t")
        written += len(lines(trail))
    assert written == 5


def test_lines_of_one_principal_are_limited_and_those_of_others_are_not() -> None:
    trail = AuditTrail()
    flooded, ticks = 0, 200
    for tick in range(ticks):
        for host in range(10):
            deny(trail, "t", subject=Subject("User:mallory", f"192.0.2.{tick % 20}.{host}"))
        flooded += len(lines(trail))
    assert flooded <= LINES_SAVED_MAX + LINES_PER_TICK * ticks
    deny(trail, "t")
    assert any("alice" in line for line in settled(trail))


def test_entries_are_bounded_and_what_exceeds_the_bound_is_counted() -> None:
    trail = AuditTrail()
    for number in range(ENTRIES_MAX + 7):
        deny(trail, "t", subject=Subject("User:mallory", str(number)))
    assert "decisions without a line count=7" in lines(trail)


def test_long_names_are_shortened() -> None:
    trail = AuditTrail()
    deny(trail, *["x" * 30_000] * NAMES_MAX, subject=Subject("p" * 30_000, "h"))
    (line,) = settled(trail)
    assert len(line) < 2000


def test_denials_are_logged_at_info_and_permissions_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorizer = AclAuthorizer(["User:root"])
    authorizer.load([])
    writer = AuditLog(authorizer.trail)
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        authorizer.allows(Subject("User:root", "h"), READ, TOPIC, "t")
        authorizer.allows(ALICE, READ, TOPIC, "t")
        authorizer.allows(ALICE, WRITE, TOPIC, "t", is_audited=False)
        writer._write(is_final=True)
    assert [(record.levelname, "alice" in record.message) for record in caplog.records] == [
        ("INFO", True)
    ]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ottla.authorizer"):
        authorizer.allows(Subject("User:root", "h"), READ, TOPIC, "t")
        writer._write(is_final=True)
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
