"""The workflow files of the forges: valid, and they call the same commands as a developer."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = sorted((ROOT / ".github/workflows").glob("*.yml"))
GITLAB = ROOT / ".gitlab-ci.yml"
TOOLS = Path(sys.executable).parent


def run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_are_clean_yaml() -> None:
    run(TOOLS / "yamllint", "--strict", "-c", ".yamllint.yml", *GITHUB, GITLAB)


def test_files_fit_the_schemas_of_the_forges() -> None:
    check = (TOOLS / "check-jsonschema", "--builtin-schema")
    run(*check, "vendor.github-workflows", *GITHUB)
    run(*check, "vendor.gitlab-ci", GITLAB)


def test_actionlint_finds_nothing() -> None:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    run(program, *GITHUB)


def commands(path: Path) -> str:
    """Return all commands of a file, one per line."""
    loaded = yaml.safe_load(path.read_text())
    if path == GITLAB:
        lists = [job["script"] for job in loaded.values() if "script" in job]
        return "\n".join(line for lines in lists for line in lines)
    steps = [step for job in loaded["jobs"].values() for step in job["steps"]]
    return "\n".join(step["run"] for step in steps if "run" in step)


def test_both_forges_run_the_tests_and_the_release_check() -> None:
    github = "\n".join(map(commands, GITHUB))
    for found in (github, commands(GITLAB)):
        assert ".ci/run" in found.splitlines()
        assert "make release-check" in found.splitlines()


def test_both_forges_test_every_python_version_that_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    start = "Programming Language :: Python :: 3."
    declared = [f"3.{c.removeprefix(start)}" for c in project["classifiers"] if c.startswith(start)]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == declared
    pipeline = yaml.safe_load(GITLAB.read_text())
    assert pipeline["test"]["parallel"]["matrix"][0]["PYTHON"] == declared


def test_no_workflow_may_write_to_the_repository_or_to_an_index() -> None:
    for path in GITHUB:
        assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
        assert "twine upload" not in path.read_text() and "pypi-publish" not in path.read_text()
