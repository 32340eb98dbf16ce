"""Install into ``.venv`` what a target of the Makefile needs, and show the progress.

    python3 tools/install.py node          what `make run` needs: the node and its compiled modules
    python3 tools/install.py node spark    the same with Spark and Java
    python3 tools/install.py node sql      the same with DuckDB, for `ottla sql`
    python3 tools/install.py tools         the node, and tools and clients of the tests; no Spark
    python3 tools/install.py dev           everything

Runs on a bare Python 3.11 with the standard library only. Downloads and compilers work at the same
time. What is installed is recorded in ``.venv/installed.json`` with a hash of its inputs; a second
call with the same inputs does nothing.
"""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
RECORD = VENV / "installed.json"
LOGS = ROOT / "build" / "install"
WHEELS = ROOT / "build" / "wheels"
# Only Spark and SQL use these modules; they take a third of the compile time.
SPARK_MODULES = "ottla.formats."

STAGES = {"node", "tools", "dev", "spark", "sql"}
STARTED = time.monotonic()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


class StepFailed(Exception):
    """A command of the installation failed; the text names it and ends with its output."""


def say(text: str) -> None:
    """Print one line of progress with the seconds since the start."""
    sys.stderr.write(f"[{time.monotonic() - STARTED:3.0f} s] {text}\n")  # one write: steps overlap


def run(title: str, command: list[str | Path], **environment: str) -> None:
    """Run ``command`` with its output in a log file. Raises StepFailed with the end of the log."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / (re.sub(r"\W+", "-", title) + ".log")
    say(title)
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise StepFailed(f"{title}: failed with exit code {done.returncode}\n{end}\n(log: {log})")


def pip(title: str, *arguments: str | Path, **environment: str) -> None:
    """Run pip of the virtual environment. Bytecode is written when a module is first imported."""
    options = ["--quiet", "--disable-pip-version-check"]
    run(title, [PYTHON, "-m", "pip", *options, *arguments], **environment)


def requirements(*, with_dev: bool) -> list[str]:
    """Return the requirements of a node or of the tests, without Spark's."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    found = [*project["dependencies"], *extras["fast"], *extras["registry"], *extras["console"]]
    if with_dev:
        found += [
            *PROJECT["dependency-groups"]["dev"],
            *extras["objects"],
            *extras["sql"],
        ]
    return found


def sql_requirements() -> list[str]:
    """Return the requirements of `ottla sql`."""
    found: list[str] = PROJECT["project"]["optional-dependencies"]["sql"]
    return found


def spark_requirements() -> list[str]:
    """Return the requirements of pipelines on Spark."""
    found: list[str] = PROJECT["project"]["optional-dependencies"]["spark"]
    return found


def compiled_modules(*, with_spark: bool) -> dict[str, Path]:
    """Return the modules that setup.py compiles, each with its source."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    (table,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "COMPILED"
    ]
    assert table is not None
    return {
        module: ROOT / source
        for module, source in ast.literal_eval(table).items()
        if with_spark or not module.startswith(SPARK_MODULES)
    }


def is_compiled(source: Path) -> bool:
    """Return whether an extension module lies beside ``source``."""
    return any(source.parent.glob(f"{source.stem}.*.so"))


def digest(*parts: object) -> str:
    """Return a hash of the inputs of a step."""
    return hashlib.sha256(repr((sys.version, parts)).encode()).hexdigest()[:16]


class Record:
    """Which steps are done in ``.venv``, each with the hash of its inputs."""

    def __init__(self) -> None:
        self._done: dict[str, str] = json.loads(RECORD.read_text()) if RECORD.exists() else {}

    def has(self, steps: dict[str, str]) -> bool:
        """Return whether the steps were done with these inputs."""
        return steps.items() <= self._done.items()

    def add(self, steps: dict[str, str]) -> None:
        """Record that the steps are done with these inputs."""
        self._done |= steps
        RECORD.write_text(json.dumps(self._done, indent=2) + "\n")


def module_hashes(*, with_spark: bool) -> dict[str, str]:
    """Return a hash of what the compiled modules are made from, for a node and for Spark."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    setup = (ROOT / "setup.py").read_bytes()
    return {
        f"modules{' with spark' * spark}": digest(
            compiler, setup, [p.read_bytes() for p in compiled_modules(with_spark=spark).values()]
        )
        for spark in {False, with_spark}
    }


def package_hashes(*, with_dev: bool) -> dict[str, str]:
    """Return a hash of the required packages and of our entry points, for a node and the tests."""
    own = [PROJECT["project"][key] for key in ("name", "version", "scripts", "entry-points")]
    return {
        f"packages{' with dev' * dev}": digest(requirements(with_dev=dev), own)
        for dev in {False, with_dev}
    }


def compile_modules(*, with_spark: bool) -> None:
    """Compile the modules beside their sources; without a C compiler they stay plain Python."""
    modules = compiled_modules(with_spark=with_spark)
    skip = "" if with_spark else SPARK_MODULES
    command: list[str | Path] = [PYTHON, "setup.py", "-q", "build_ext", "--inplace"]
    run(f"compiling {len(modules)} modules", command, OTTLA_SKIP_COMPILED=skip)
    plain = [module for module, source in modules.items() if not is_compiled(source)]
    if plain:
        say(f"{len(plain)} modules stay plain Python, which is slower: no working C compiler (cc)")
    else:
        say("modules compiled")


def install_java() -> None:
    """Install Java for Spark if it is missing and apt-get may install it without asking."""
    if shutil.which("java") or "JAVA_HOME" in os.environ:
        return
    run("installing Java", [ROOT / "tools" / "ensure_java"])
    say((LOGS / "installing-Java.log").read_text().strip().splitlines()[-1])


def fetch_spark() -> None:
    """Download PySpark and build its wheel: it is 450 MB and comes as sources only."""
    pyspark = next(line for line in spark_requirements() if line.startswith("pyspark"))
    pip("downloading Spark (450 MB)", "wheel", "--no-deps", f"--wheel-dir={WHEELS}", pyspark)
    say("Spark downloaded")


def at_once(steps: list[Callable[[], None]]) -> None:
    """Run the steps in parallel. Raises what the first one that failed raised."""
    with ThreadPoolExecutor(max(len(steps), 1)) as pool:
        for future in [pool.submit(step) for step in steps]:
            future.result()


def create_environment() -> Record:
    """Create the virtual environment with the build tools, unless it is there."""
    if not PYTHON.exists():
        say(f"creating a virtual environment in {VENV.name}")
        done = subprocess.run([sys.executable, "-m", "venv", VENV], cwd=ROOT)
        if done.returncode:
            raise StepFailed(
                "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"
            )
    record = Record()
    tools = PROJECT["build-system"]["requires"]
    if not record.has(step := {"build tools": digest(tools)}):
        pip("installing the build tools", "install", "--no-compile", *tools)
        record.add(step)
    return record


def install(stages: set[str]) -> None:
    """Install the stages; steps whose inputs have not changed are skipped."""
    with_dev, with_spark = bool(stages & {"dev", "tools"}), bool(stages & {"dev", "spark"})
    record = create_environment()
    steps: list[Callable[[], None]] = []
    if not record.has(modules_step := module_hashes(with_spark=with_spark)):
        steps.append(lambda: compile_modules(with_spark=with_spark))
    if not record.has(packages_step := package_hashes(with_dev=with_dev)):
        steps.append(lambda: install_packages(requirements(with_dev=with_dev)))
    spark_step = {"spark": digest(spark_requirements())}
    if with_spark:
        steps.append(install_java)
        if not record.has(spark_step):
            steps.append(fetch_spark)
    at_once(steps)
    record.add(modules_step | packages_step)
    sql_step = {"sql": digest(sql_requirements())}
    if "sql" in stages and not record.has(sql_step):
        pip("installing DuckDB and Arrow", "install", "--no-compile", *sql_requirements())
        record.add(sql_step)
    if with_spark and not record.has(spark_step):
        links = f"--find-links={WHEELS}"
        pip("installing Spark", "install", "--no-compile", links, *spark_requirements())
        record.add(spark_step)


def install_packages(wanted: list[str]) -> None:
    """Install the packages and the checkout."""
    pip(f"installing {len(wanted)} packages", "install", "--no-compile", *wanted)
    install_checkout()


def install_checkout() -> None:
    """Install the checkout itself, so that Python runs the sources in place.

    It compiles nothing: `compile_modules` does that at the same time.
    """
    options = ["--no-compile", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    pip("installing ottla", "install", *options, OTTLA_SKIP_COMPILED="ottla.")


def main() -> None:
    """Install the stages named on the command line."""
    stages = set(sys.argv[1:]) or {"node"}
    unknown = stages - STAGES
    if unknown:
        names = ", ".join(sorted(STAGES))
        sys.exit(f"unknown stage: {', '.join(sorted(unknown))}; the stages are {names}")
    try:
        install(stages)
    except StepFailed as error:
        sys.exit(str(error))
    if time.monotonic() - STARTED > 1:
        say("installed")


if __name__ == "__main__":
    main()
