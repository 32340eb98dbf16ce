"""Which of Apache Kafka's tests are expected to pass, and how results compare with it. Pure.

``manifest.toml`` names the test classes that were run, and how many of their tests pass. A test is
expected to pass unless a row says otherwise: it is not applicable (it reaches into the JVM broker,
or names a Java class for it), or it is a known failure of ours. Both need a reason, and a row whose
test passes is an error: the manifest only ever says what is true.
"""

import enum
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MANIFEST = Path(__file__).with_name("manifest.toml")
ALL_TESTS = "*"
HEADING = "## Apache Kafka's own tests"
INTRODUCTION = f"""\
{HEADING}

`make kafka-tests` runs integration tests from the jars that Apache Kafka 4.2 publishes, unchanged,
against processes of Ottla (needs Java and Maven; `ONLY=TransactionsTest` runs the classes whose
name matches). `tests/kafka_suite/manifest.toml` lists the classes, how many of their tests pass,
and every test that does not, with the reason. Not applicable: the test reads objects, metrics or
files of the JVM broker, names a Java class for the broker, needs a class that is in no published
jar, or expects the order of a Java hash map; a whole class counts as one. Classes that start
brokers and are not listed have not been run (`python -m tests.kafka_suite --discover`).

| Package | Classes | Tests passed | Not applicable | Known failures |
| --- | --: | --: | --: | --: |"""


@dataclass(frozen=True, slots=True)
class TestClass:
    """A class of tests, with the tests that are not expected to pass, each with its reason."""

    __test__ = False  # pytest would collect it by its name
    name: str
    passed: int = 0
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    known_failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_applicable(self) -> bool:
        """Return whether a test of the class can be judged at all."""
        return ALL_TESTS not in self.not_applicable


@dataclass(frozen=True, slots=True)
class Result:
    """How a test ended; ``message`` is the first line of its failure."""

    test: str
    has_passed: bool
    message: str = ""
    reaches_into_broker: bool = False


class Outcome(enum.Enum):
    """What a result means."""

    PASSED = "passed"
    NOT_APPLICABLE = "not applicable"
    KNOWN_FAILURE = "known failure"
    FAILED = "FAILED"
    PASSED_UNEXPECTEDLY = "PASSED UNEXPECTEDLY"

    @property
    def is_error(self) -> bool:
        """Return whether the manifest and the result contradict each other."""
        return self in (Outcome.FAILED, Outcome.PASSED_UNEXPECTEDLY)


def load(text: str) -> list[TestClass]:
    """Return the classes of a manifest. Raises ValueError for rows that contradict each other."""
    classes = [TestClass(**row) for row in tomllib.loads(text)["class"]]
    for test_class in classes:
        if both := test_class.not_applicable.keys() & test_class.known_failures.keys():
            raise ValueError(f"{test_class.name}: both excuses for {sorted(both)}")
        excuses = [*test_class.not_applicable.values(), *test_class.known_failures.values()]
        if not all(reason.strip() for reason in excuses):
            raise ValueError(f"{test_class.name}: a row has no reason")
        if not test_class.passed and not excuses:
            raise ValueError(f"{test_class.name}: says nothing")
    names = [test_class.name for test_class in classes]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"listed twice: {sorted(repeated)}")
    return classes


def judge(test_class: TestClass, result: Result) -> Outcome:
    """Return what a result means by the manifest.

    A row names a test by its method, or one invocation of it by method and number (``m()[2]``).
    """
    method = result.test.partition("[")[0]
    is_known = bool({result.test, method} & test_class.known_failures.keys())
    is_excused = bool({result.test, method} & test_class.not_applicable.keys())
    if result.has_passed:
        # Several invocations share a row, and some of them may pass.
        is_exact = result.test in test_class.known_failures
        return Outcome.PASSED_UNEXPECTEDLY if is_exact else Outcome.PASSED
    if is_excused:
        return Outcome.NOT_APPLICABLE
    return Outcome.KNOWN_FAILURE if is_known else Outcome.FAILED


def unused_rows(test_class: TestClass, results: Iterable[Result]) -> list[str]:
    """Return the rows whose tests all passed, or do not exist."""
    failed = {result.test for result in results if not result.has_passed}
    failed |= {test.partition("[")[0] for test in failed}
    rows = [*test_class.not_applicable, *test_class.known_failures]
    return [row for row in rows if row != ALL_TESTS and row not in failed]


def page_section(classes: Iterable[TestClass]) -> str:
    """Return the section of ``docs/compatibility.md`` about Apache Kafka's own tests."""
    families: dict[str, list[TestClass]] = {}
    for test_class in classes:
        families.setdefault(test_class.name.rpartition(".")[0], []).append(test_class)
    lines = [INTRODUCTION]
    totals = [0, 0, 0, 0]
    for family, members in sorted(families.items()):
        numbers = [
            len(members),
            sum(member.passed for member in members),
            sum(len(member.not_applicable) for member in members),
            sum(len(member.known_failures) for member in members),
        ]
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        lines.append(f"| `{family}` | {' | '.join(map(str, numbers))} |")
    lines.append(f"| all | {' | '.join(map(str, totals))} |\n")
    lines += [
        f"- `{member.name}`, {test.rstrip('()')}: {reason}"
        for members in families.values()
        for member in members
        for test, reason in member.known_failures.items()
    ] or ["There is no known failure."]
    return "\n".join(lines) + "\n"
