"""`make release-check`: what it refuses, and what it does not call checked."""

from pathlib import Path

import pytest
from tests.unit.test_evidence import PROOF, commit, git, record
from tools.release import __main__ as release
from tools.release.artefacts import check_sdist, check_wheel
from tools.release.environments import read_audit
from tools.release.licences import Dependency, is_compatible, licence_of, refused
from tools.release.licences import render as render_licences
from tools.release.report import Outcome, Problem, Report, Unchecked, render
from tools.release.version import check_changelog, check_tag, check_version

CHANGELOG = """# Changelog

## Unreleased

## 0.2.0 - 2026-11-18

### Features
- One.

## 0.1.0 - 2026-01-01
Nothing is listed here.

## 0.0.9
- It has no date.
"""


@pytest.mark.parametrize("version", ["0.1.0", "1.12.3", "0.1.0rc1", "2.0.0b2"])
def test_released_versions_are_accepted(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["0.1.0.dev0", "0.1", "1.0.0+local", "v1.0.0", ""])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(Problem, match="development version"):
        check_version(version)


def test_changelog_needs_an_entry_with_a_date_and_changes() -> None:
    assert check_changelog(CHANGELOG, "0.2.0") == "### Features\n- One."
    with pytest.raises(Problem, match="lists no change"):
        check_changelog(CHANGELOG, "0.1.0")
    with pytest.raises(Problem, match="no date"):
        check_changelog(CHANGELOG, "0.0.9")
    with pytest.raises(Problem, match="no entry"):
        check_changelog(CHANGELOG, "0.3.0")
    with pytest.raises(Problem, match="no entry"):
        check_changelog(CHANGELOG, "0.2")


def test_version_with_a_tag_is_refused() -> None:
    check_tag(["v0.1.0"], "0.1.1")
    with pytest.raises(Problem, match=r"v0\.1\.0 exists"):
        check_tag(["v0.0.9", "v0.1.0"], "0.1.0")


# -- proofs --------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "evidence").mkdir()
    declared = [PROOF.format(name=name, command="true") for name in ("one", "two", "three")]
    optional = PROOF.format(name="four", command="true").replace("required = true", "")
    (tmp_path / "evidence/proofs.toml").write_text("".join(declared) + optional)
    for name in ("one", "two", "three", "four"):
        (tmp_path / f"{name}.txt").write_text("yes\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_release_is_refused_while_a_required_proof_does_not_hold(repository: Path) -> None:
    record(repository, "one", "failed")
    record(repository, "two")
    (repository / "two.txt").write_text("changed\n")
    report = Report()
    release.check_proofs(report)
    assert report.has(Outcome.FAILED)
    (finding,) = report.findings
    assert finding.detail.splitlines() == [
        "3 of 3 do not hold; run `make evidence RUN=stale`",
        "one is failed: no",
        "two is stale: two.txt",
        "three is never run",
    ]
    assert "NOT ready: 1 of 1 steps failed" in render(report.findings)


def test_release_needs_no_proof_that_is_not_required(repository: Path) -> None:
    for name in ("one", "two", "three"):
        record(repository, name)
    report = Report()
    release.check_proofs(report)
    assert not report.has(Outcome.FAILED)


# -- artefacts -----------------------------------------------------------------------------

SOURCES = ["ottla/__init__.py", "ottla/a.py"]
WHEEL = [*SOURCES, "ottla-1.dist-info/licenses/LICENSE"]
PURE, COMPILED = "ottla-1-py3-none-any.whl", "ottla-1-cp311-cp311-manylinux_2_28_x86_64.whl"
LIBRARY = "ottla/a.cpython-311-x86_64-linux-gnu.so"


def test_whole_wheels_are_accepted() -> None:
    check_wheel(PURE, WHEEL, SOURCES, ["ottla.a"])
    check_wheel(COMPILED, [*WHEEL, LIBRARY], SOURCES, ["ottla.a"])


@pytest.mark.parametrize(
    ("name", "contents", "reason"),
    [
        (PURE, WHEEL[1:], "lacks 1 files"),
        (PURE, SOURCES, "no LICENSE"),
        (PURE, [*WHEEL, LIBRARY], "has compiled"),
        (COMPILED, WHEEL, "no compiled ottla/a"),
        ("ottla-1-cp311-cp311-linux_x86_64.whl", [*WHEEL, LIBRARY], "not tagged manylinux"),
    ],
    ids=["module-missing", "licence-missing", "pure-with-library", "not-compiled", "local-tag"],
)
def test_defective_wheels_are_refused(name: str, contents: list[str], reason: str) -> None:
    with pytest.raises(Problem, match=reason):
        check_wheel(name, contents, SOURCES, ["ottla.a"])


def test_sdist_without_a_module_is_refused() -> None:
    files = ["src/ottla/__init__.py", "src/ottla/a.py", "pyproject.toml", "setup.py", "LICENSE"]
    check_sdist("x", files, SOURCES)
    with pytest.raises(Problem, match=r"src/ottla/a\.py"):
        check_sdist("x", [each for each in files if "a.py" not in each], SOURCES)


def test_compiled_modules_are_those_of_setup() -> None:
    assert "ottla.storage.log.log_tail" in release.compiled_modules()


# -- dependencies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("Apache-2.0 AND GPL-3.0-only", False),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("GPL-3.0-or-later", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("", False),
        ("Proprietary", False),
    ],
)
def test_licence_expressions(expression: str, is_allowed: bool) -> None:
    assert is_compatible(expression) is is_allowed


def test_unknown_and_incompatible_licences_are_refused() -> None:
    spelled = Dependency("a", "1", text="Apache License 2.0")
    classified = Dependency("b", "1", classifiers=("License :: OSI Approved :: MIT License",))
    silent, viral = Dependency("c", "1"), Dependency("d", "2", expression="AGPL-3.0-only")
    assert [licence_of(each) for each in (spelled, classified)] == ["Apache-2.0", "MIT"]
    assert refused([spelled, classified]) == []
    assert refused([silent, viral]) == ["c 1: unknown licence", "d 2: AGPL-3.0-only"]
    assert "| c | 1 | **unknown** |" in render_licences([silent, viral])


def test_vulnerability_is_a_problem() -> None:
    output = """{"dependencies": [{"name": "a", "version": "1",
        "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}"""
    with pytest.raises(Problem, match="a 1: CVE-1, fixed in 2"):
        read_audit(output, "", 1)


@pytest.mark.parametrize(
    "output",
    ["", "no JSON", '{"dependencies": [{"name": "a", "skip_reason": "not found"}]}', "[]"],
    ids=["empty", "text", "package-skipped", "other-document"],
)
def test_missing_report_of_vulnerabilities_is_not_called_ok(output: str) -> None:
    with pytest.raises(Unchecked):
        read_audit(output, "connection refused", 1)
    report = Report()
    with report.step("vulnerabilities"):
        read_audit(output, "connection refused", 1)
    assert render(report.findings).startswith("not checked")
    assert render(report.findings).endswith("1 not checked, see above")


def test_step_that_fails_does_not_end_the_others() -> None:
    report = Report()
    with report.step("a"):
        raise Problem("because")
    with report.step("b") as tell:
        tell("3 files")
    assert render(report.findings).splitlines() == [
        "FAILED       a  because",
        "ok           b  3 files",
        "NOT ready: 1 of 2 steps failed",
    ]
    assert render([]) == "NOT ready: nothing was checked"
