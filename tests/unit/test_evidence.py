"""The ledger of proofs: what holds at this commit, what does not, and what runs next."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.evidence.output import counts_of, figures_of, result_of
from tools.evidence.page import render_page
from tools.evidence.proof import Proof, Run, load_proofs, load_run, save_run
from tools.evidence.status import State, judge, plan

ROOT = Path(__file__).parents[2]
PROOF = """
[[proof]]
name = "{name}"
promise = "The file says yes."
command = '{command}'
paths = ["{name}.txt"]
minutes = 1
required = true
"""


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two proofs, each of which reads a file of its own."""
    (tmp_path / "evidence").mkdir()
    (tmp_path / "docs").mkdir()
    declared = [PROOF.format(name=name, command=f"grep yes {name}.txt") for name in ("one", "two")]
    (tmp_path / "evidence/proofs.toml").write_text("".join(declared))
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("yes\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", "change")


def evidence(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tools.evidence", "--root", str(root), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)


def states(root: Path) -> dict[str, str]:
    lines = evidence(root).stdout.splitlines()
    return {words[1]: words[2] for line in lines if (words := line.split()) and words[0] == "*"}


def record(root: Path, name: str, result: str = "passed") -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()
    save_run(root, name, Run(head, "2026-11-18T03:00:00Z", 5, 0.1, result, ending=("no",)))


def test_proof_is_stale_once_its_path_changed_and_the_change_is_named(repository: Path) -> None:
    record(repository, "one")
    record(repository, "two")
    assert states(repository) == {"one": "proven", "two": "proven"}
    (repository / "two.txt").write_text("yes, still\n")
    assert states(repository) == {"one": "proven", "two": "stale"}
    commit(repository)
    assert states(repository) == {"one": "proven", "two": "stale"}
    assert "two.txt" in evidence(repository).stdout
    (repository / "two.txt").write_text("yes\n")
    commit(repository)
    assert states(repository) == {"one": "proven", "two": "proven"}


def test_failed_and_missing_runs_are_shown_and_block_a_release(repository: Path) -> None:
    record(repository, "one", "failed")
    assert states(repository) == {"one": "failed", "two": "never"}
    release = evidence(repository, "--release")
    assert release.returncode == 1
    assert "one is failed: no" in release.stdout
    assert "0 of 2 required proofs hold" in release.stdout
    record(repository, "one")
    record(repository, "two")
    assert evidence(repository, "--release").returncode == 0


def test_run_of_an_unknown_commit_is_stale(repository: Path) -> None:
    save_run(repository, "one", Run("0" * 40, "2026-11-18T03:00:00Z", 5, 0.1, "passed"))
    assert states(repository)["one"] == "stale"
    assert "is not in this history" in evidence(repository).stdout


@pytest.fixture
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.evidence.runner.QUIET_WAIT_S_MAX", 0)


@pytest.mark.usefixtures("quiet_machine")
def test_each_run_is_recorded_with_its_result(repository: Path) -> None:
    from tools.evidence.runner import run_proof

    (repository / "two.txt").write_text("no\n")
    commit(repository)
    one, two = load_proofs(repository)
    said: list[str] = []
    run_proof(repository, one, said.append)
    run_proof(repository, two, said.append)
    first, second = load_run(repository, "one"), load_run(repository, "two")
    assert first is not None and second is not None
    assert (first.result, second.result) == ("passed", "failed")
    assert states(repository) == {"one": "proven", "two": "failed"}


@pytest.mark.usefixtures("quiet_machine")
def test_uncommitted_change_is_not_run(repository: Path) -> None:
    from tools.evidence.runner import run_proof

    (repository / "one.txt").write_text("yes, but uncommitted\n")
    assert run_proof(repository, load_proofs(repository)[0], print) is None
    assert load_run(repository, "one") is None


def proof(name: str, minutes: float, *, required: bool = False, value: int = 1) -> Proof:
    return Proof(name, "p", "true", ("x",), minutes, required, value)


def test_plan_takes_required_proofs_of_most_value_per_minute_that_fit() -> None:
    passed = Run("c", "d", 300, 0.1, "passed")
    statuses = [
        judge(proof("optional", 1, value=9), None, []),
        judge(proof("long", 50, required=True, value=5), None, []),
        judge(proof("holds", 1, required=True, value=9), passed, []),
        judge(proof("short", 5, required=True), passed, ["changed"]),
        judge(proof("too-long", 7, required=True), None, []),
    ]
    chosen = [each.name for each in plan(statuses, 60 * 63)]
    assert chosen == ["short", "too-long", "long", "optional"]
    assert [each.name for each in plan(statuses, 60 * 61)] == ["short", "too-long", "optional"]
    assert [each.name for each in plan(statuses, 60 * 6)] == ["short", "optional"]


def test_plan_uses_the_measured_time_of_the_last_run_that_passed() -> None:
    quick = Run("c", "d", 30, 0.1, "passed")
    ended_early = Run("c", "d", 30, 0.1, "failed")
    statuses = [
        judge(proof("measured", 60), quick, ["changed"]),
        judge(proof("failed", 60), ended_early, []),
    ]
    assert [each.name for each in plan(statuses, 60)] == ["measured"]


@pytest.mark.parametrize(
    ("exit_code", "lines", "result"),
    [
        (0, ["3 passed, 1 skipped in 2.00s"], "passed"),
        (1, ["3 passed in 2.00s"], "failed"),
        (0, ["2 skipped in 2.00s"], "skipped"),
        (0, ["skipped: Java is missing"], "skipped"),
        (0, ["all is well"], "passed"),
    ],
    ids=["passed", "exit-code", "all-tests-skipped", "skipped-as-a-whole", "no-pytest"],
)
def test_result_counts_only_what_ran(exit_code: int, lines: list[str], result: str) -> None:
    assert result_of(exit_code, lines, counts_of(lines)) == result


def test_counts_of_several_pytest_runs_are_added() -> None:
    lines = ["= 10 passed, 2 skipped in 1.00s =", "noise 7 passed", "5 passed in 61.00s (0:01:01)"]
    assert counts_of(lines) == {"passed": 15, "skipped": 2}


def test_figures_are_those_of_the_last_match() -> None:
    lines = ["10 mutants, 3 problems", "12 mutants, 0 problems"]
    pattern = r"(?P<mutants>\d+) mutants, (?P<problems>\d+) problems"
    assert figures_of(lines, [pattern]) == {"mutants": "12", "problems": "0"}


def test_recorded_run_is_read_back(tmp_path: Path) -> None:
    run = Run(
        "c" * 40,
        "2026-11-18T03:00:00Z",
        5,
        0.25,
        "failed",
        {"passed": 1},
        {"a": '"b"\t'},
        ("é\x7f",),
    )
    save_run(tmp_path, "one", run)
    assert load_run(tmp_path, "one") == run


def test_page_equals_the_ledger() -> None:
    statuses = [judge(p, load_run(ROOT, p.name), []) for p in load_proofs(ROOT)]
    written = (ROOT / "docs/evidence.md").read_text()
    assert written == render_page(statuses), "run: python3 -m tools.evidence --write-page"


def test_every_declared_path_exists_and_no_proof_takes_over_three_hours() -> None:
    for declared in load_proofs(ROOT):
        assert declared.minutes <= 180, declared.name
        for path in declared.paths:
            assert path.startswith(":!") or (ROOT / path).exists(), (declared.name, path)


def test_state_of_a_skipped_run_is_not_proven() -> None:
    run = Run("c", "d", 1, 0.1, "skipped", ending=("skipped: no Java",))
    assert judge(proof("one", 1), run, []).state is State.SKIPPED
