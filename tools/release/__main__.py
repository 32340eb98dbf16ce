"""``make release-check``: do everything that a release needs, short of uploading.

python3 -m tools.release    exit with 1 unless every step succeeded

Runs on bare Python. Artefacts, the list of licences and the bill of materials go to ``dist/``.
"""

import ast
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools import dist
from tools.evidence.__main__ import survey
from tools.evidence.proof import LedgerFault
from tools.evidence.status import release_blockers
from tools.release import licences
from tools.release.artefacts import check_sdist, check_wheel, names_in
from tools.release.environments import Environment, audit, check_extra_builds
from tools.release.licences import Dependency
from tools.release.report import Outcome, Problem, Report, render
from tools.release.version import check_changelog, check_tag, check_version

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
TOOLS = ("twine>=6", "cyclonedx-bom>=6", "pip-audit>=2.8")
SYSTEM_EXTRAS = {"gssapi": "krb5-config"}
"""Extras that are compiled against a system library, and the program that shows it is there."""


def main() -> int:
    """Run every step, print the table, and return the exit code."""
    report = Report()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version: str = project["version"]
    check_declarations(report, version)
    check_proofs(report)
    artefacts: list[Path] = []
    with report.step("build sdist and wheels") as tell:
        artefacts = _build()
        tell(", ".join(path.name for path in artefacts))
    if artefacts:
        extras = list(project["optional-dependencies"])
        check_artefacts(report, artefacts)
        dependencies = check_installations(report, artefacts, version, extras)
        check_dependencies(report, dependencies, version)
    print(render(report.findings))
    return 1 if report.has(Outcome.FAILED) else 0


def check_declarations(report: Report, version: str) -> None:
    """Compare the version with changelog, tags and working tree."""
    with report.step("version"):
        check_version(version)
    with report.step("changelog"):
        check_changelog((ROOT / "CHANGELOG.md").read_text(), version)
    with report.step("tag"):
        check_tag(_git("tag", "--list").split(), version)
    with report.step("working tree"):
        if changed := _git("status", "--porcelain").splitlines():
            raise Problem(f"{len(changed)} files are not committed: {changed[0][3:]}")


def check_proofs(report: Report) -> None:
    """Refuse while a required proof is stale, failed or was never run."""
    with report.step("required proofs") as tell:
        try:
            statuses = survey(ROOT)
        except LedgerFault as fault:
            raise Problem(str(fault)) from fault
        required = sum(status.proof.required for status in statuses)
        if blockers := release_blockers(statuses):
            lines = [
                f"{status.proof.name} is {status.state.value}"
                + (f": {status.reason}" if status.reason else "")
                for status in blockers
            ]
            head = f"{len(blockers)} of {required} do not hold; run `make evidence RUN=stale`"
            raise Problem("\n".join([head, *lines]))
        if not required:
            raise Problem("evidence/proofs.toml requires no proof")
        tell(f"{required} hold at this commit")


def check_artefacts(report: Report, artefacts: list[Path]) -> None:
    """Check the metadata and contents of each artefact."""
    with report.step("metadata"):
        _run(dist.TOOLS / "bin/python", "-m", "twine", "check", "--strict", *artefacts)
    sources = [
        path.relative_to(ROOT / "src").as_posix()
        for package in ("ottla", "pyspark_ottla")
        for path in (ROOT / "src" / package).rglob("*.py")
    ]
    for artefact in artefacts:
        with report.step(f"contents of {artefact.name}") as tell:
            contents = names_in(artefact)
            if artefact.suffix == ".whl":
                check_wheel(artefact.name, contents, sources, compiled_modules())
            else:
                check_sdist(artefact.name, contents, sources)
            tell(f"{len(contents)} files, {artefact.stat().st_size >> 10} KiB")


def compiled_modules() -> list[str]:
    """Return the modules that setup.py compiles."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "COMPILED":
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    raise Problem("setup.py has no list COMPILED")


def check_installations(
    report: Report, artefacts: list[Path], version: str, extras: list[str]
) -> list[Dependency]:
    """Install each artefact with every extra and try it; return what the last one brought."""
    plain = ",".join(extra for extra in extras if extra not in SYSTEM_EXTRAS)
    dependencies: list[Dependency] = []
    for artefact in artefacts:
        with tempfile.TemporaryDirectory(prefix="ottla-release-") as directory:
            with report.step(f"install {artefact.name}[{plain}]") as tell:
                environment = Environment(Path(directory))
                environment.install(f"{artefact}[{plain}]")
                dependencies = environment.dependencies()
                if "manylinux" in artefact.name:
                    _write_bill(environment, version)
                environment.install("pytest")
                environment.try_out(version, is_compiled="none-any" not in artefact.name)
                tell(f"{len(dependencies)} packages; a node, a record, the fixture")
            if artefact.suffix != ".whl" or "none-any" not in artefact.name:
                continue
            for extra, program in SYSTEM_EXTRAS.items():
                with report.step(f"install {artefact.name}[{extra}]"):
                    check_extra_builds(environment, artefact, extra, program)
    return dependencies


def check_dependencies(report: Report, dependencies: list[Dependency], version: str) -> None:
    """Check licences and known vulnerabilities, and that the bill of materials was written."""
    with report.step("licences") as tell:
        if not dependencies:
            raise Problem("nothing was installed")
        page = DIST / f"ottla-{version}-licences.md"
        page.write_text(licences.render(dependencies))
        if lines := licences.refused(dependencies):
            raise Problem("\n".join(["unknown, or not compatible with Apache-2.0:", *lines]))
        tell(f"{len(dependencies)} packages, {page.name}")
    with report.step("bill of materials") as tell:
        bill = DIST / f"ottla-{version}.cdx.json"
        if not bill.exists():
            raise Problem("no compiled wheel was installed, so there is none")
        tell(bill.name)
    with report.step("vulnerabilities") as tell, tempfile.TemporaryDirectory() as directory:
        if not dependencies:
            raise Problem("nothing was installed")
        tell(audit(dist.TOOLS / "bin/python", dependencies, Path(directory)))


def _write_bill(environment: Environment, version: str) -> None:
    """Write a bill of materials in CycloneDX's JSON."""
    target = DIST / f"ottla-{version}.cdx.json"
    options = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--of", "JSON")
    python = environment.bin / "python"
    tool = (dist.TOOLS / "bin/python", "-m", "cyclonedx_py", "environment")
    _run(*tool, *options, "--output-file", target, python)


def _build() -> list[Path]:
    try:
        python = dist.make_tools()
        dist.run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *TOOLS)
        return dist.build(DIST)
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        raise Problem(f"the build failed: {error}") from error


def _run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip().splitlines()[-8:]
        raise Problem("\n".join([f"{' '.join(map(str, command[:4]))} failed:", *tail]))
    return done.stdout


def _git(*arguments: str) -> str:
    return _run("git", *arguments)


if __name__ == "__main__":
    sys.exit(main())
