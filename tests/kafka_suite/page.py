"""The section of ``docs/compatibility.md`` about Apache Kafka's own tests. Pure."""

from collections.abc import Iterable, Sequence

from tests.kafka_suite.manifest import PASSED_SHARE_MIN, TestClass, passed_share

HEADING = "## Apache Kafka's own tests"
INTRODUCTION = f"""\
{HEADING}

`make kafka-tests` runs the integration tests of the jars that Apache Kafka 4.2 publishes,
unchanged, against processes of Ottla (needs Java and Maven). `PART=api` (or `server`, `tools`,
`connect`, `storage`) runs one part, `ONLY=TransactionsTest` the classes whose name matches; an
interrupted run goes on where it stopped. Every class of these jars that starts brokers is listed in
`tests/kafka_suite/manifest.toml`, with the number of its tests that pass and each test that does
not; `make kafka-tests` fails if a result contradicts it. Kafka does not publish the jars of
`clients-integration-tests` and of the integration tests of Streams.

Not applicable: the test reads objects, metrics or files of the JVM broker, names a Java class for
the broker, needs a class that is in no published jar, or expects the order of a Java hash map; a
whole class counts as one.
"""


def section(classes: Sequence[TestClass]) -> str:
    """Return the section: totals by jar, a row per class, and the reasons."""
    lines = [INTRODUCTION]
    lines += _table("Jar", _by_jar(classes))
    share = passed_share(classes)
    lines += [
        "",
        f"{share:.1%} of the applicable tests pass (at least {PASSED_SHARE_MIN:.0%} must).",
        "",
    ]
    not_run = [c for c in _sorted(classes) if c.not_run]
    lines += ["### Not run", ""] if not_run else []
    lines += [f"- `{c.name}`: {c.not_run}" for c in not_run] + ([""] if not_run else [])
    lines += _reasons("### Known failures", classes, "known_failures")
    lines += ["### Classes", "", *_table("Class", [(c.name, [c]) for c in _sorted(classes)]), ""]
    lines += _reasons("### Not applicable", classes, "not_applicable")
    return "\n".join(lines).rstrip() + "\n"


def _sorted(classes: Iterable[TestClass]) -> list[TestClass]:
    return sorted(classes, key=lambda test_class: (test_class.jar, test_class.name))


def _by_jar(classes: Sequence[TestClass]) -> list[tuple[str, list[TestClass]]]:
    jars = sorted({test_class.jar for test_class in classes})
    rows = [(jar, [member for member in classes if member.jar == jar]) for jar in jars]
    return [*rows, ("all", list(classes))]


def _table(title: str, rows: Iterable[tuple[str, Sequence[TestClass]]]) -> list[str]:
    lines = [
        f"| {title} | Classes | Tests passed | Not applicable | Known failures |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, members in rows:
        numbers = [
            len(members),
            sum(member.passed for member in members),
            sum(len(member.not_applicable) for member in members),
            sum(len(member.known_failures) for member in members),
        ]
        label = name if name == "all" else f"`{name}`"
        lines.append(f"| {label} | {' | '.join(map(str, numbers))} |")
    return lines


def _reasons(heading: str, classes: Sequence[TestClass], field: str) -> list[str]:
    """Return a line per reason and class, with the tests that it applies to."""
    lines = [heading, ""]
    for test_class in _sorted(classes):
        tests_by_reason: dict[str, list[str]] = {}
        for test, reason in getattr(test_class, field).items():
            tests_by_reason.setdefault(reason, []).append(test.replace("()", ""))
        for reason, tests in tests_by_reason.items():
            named = "all tests" if tests == ["*"] else ", ".join(tests)
            lines.append(f"- `{test_class.name}`, {named}: {reason}")
    return [*(lines if len(lines) > 2 else [*lines, "None."]), ""]
