"""Which of Apache Kafka's tests are expected to pass, and how results compare with it. Pure.

``manifest.toml`` names every test class of the jars that starts brokers, and how many of its tests
pass. A test is
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
PASSED_SHARE_MIN = 0.95  # of the tests that are applicable
# A part runs in less than an hour. Classes of `kafka_2.13` are divided by their package.
PARTS = {
    "api": ("kafka_2.13",),
    "server": ("kafka_2.13", "kafka-server"),
    "tools": ("kafka-tools",),
    "connect": ("connect-runtime", "connect-mirror"),
    "storage": ("kafka-storage",),
}


@dataclass(frozen=True, slots=True)
class TestClass:
    """A class of tests, with the tests that are not expected to pass, each with its reason."""

    __test__ = False  # pytest would collect it by its name
    name: str
    jar: str = ""
    passed: int = 0
    not_run: str = ""  # why the class has no outcome yet
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    known_failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_applicable(self) -> bool:
        """Return whether a test of the class can be judged at all."""
        return ALL_TESTS not in self.not_applicable and not self.not_run

    @property
    def part(self) -> str:
        """Return the part of the run that the class belongs to."""
        if self.jar == "kafka_2.13":
            return "api" if "kafka.api." in self.name else "server"
        return next(part for part, jars in PARTS.items() if self.jar in jars)


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
        if bool(test_class.passed or excuses) == bool(test_class.not_run):
            raise ValueError(f"{test_class.name}: must have an outcome, or a reason for none")
        if not any(test_class.jar in jars for jars in PARTS.values()):
            raise ValueError(f"{test_class.name}: no part has the jar {test_class.jar!r}")
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


def pending(classes: Iterable[TestClass]) -> list[str]:
    """Return the classes that the manifest lists without an outcome, with the reasons."""
    return [f"{c.name} ({c.jar}) has no outcome: {c.not_run}" for c in classes if c.not_run]


def uncovered(classes: Iterable[TestClass], found: Mapping[str, str]) -> list[str]:
    """Return the classes without an outcome, by the classes of the jars (name to jar)."""
    classes = list(classes)
    listed = {test_class.name: test_class.jar for test_class in classes}
    return [
        *(f"{name} ({jar}) has no outcome" for name, jar in found.items() if name not in listed),
        *pending(classes),
        *(f"{name} is in no jar" for name in listed if name not in found),
        *(
            f"{name} is in {found[name]}, not in {jar}"
            for name, jar in listed.items()
            if found.get(name, jar) != jar
        ),
    ]


def passed_share(classes: Iterable[TestClass]) -> float:
    """Return which share of the applicable tests passes."""
    members = list(classes)
    passed = sum(member.passed for member in members)
    return passed / (passed + sum(len(member.known_failures) for member in members))
