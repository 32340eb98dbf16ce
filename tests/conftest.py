"""What every test shares: Hypothesis profiles, and proof of which form of the code runs."""

import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
# What starts a Spark, or uses the session of this worker.
SPARK = {
    f"tests/pipeline/test_{name}.py"
    for name in ("pipeline_checks", "pipeline_run", "sink_spark", "source_spark", "tables_spark")
}

# ci is derandomised: the same commit gives the same verdict. dev and nightly explore.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW)
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_SLOW
)
settings.register_profile(
    "nightly", max_examples=20_000, deadline=None, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def compiled_modules() -> list[str]:
    """The modules that setup.py names as having a compiled form."""
    text = (ROOT / "setup.py").read_text()
    literal = text.split("COMPILED: dict[str, str] = ", 1)[1].split("\n\n", 1)[0]
    return sorted(eval(literal))


def is_compiled(name: str) -> bool:
    return not str(importlib.import_module(name).__file__).endswith(".py")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to test the plain form while believing it is the compiled one, or the reverse."""
    wanted = os.environ.get("OTTLA_EXPECT")
    if wanted is None:
        return
    wrong = [name for name in compiled_modules() if is_compiled(name) != (wanted == "compiled")]
    if wrong:
        pytest.exit(f"expected {wanted} modules, but not so: {', '.join(wrong)}", returncode=3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With ``--dist loadgroup``, one worker runs what uses Spark: those files share a session.

    Other files go to a worker whole, so that what a module sets up is set up once. (The groups of
    xdist itself change a test's id in a way that pytest 9.2 takes no notice of.)
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "spark" if path in SPARK else path

    config.option.loadscopereorder = False  # the order is ours
    return Groups(config, log)


# What takes long begins first, so that workers end together; the rest is small change. Worlds come
# beside Spark, which wants most of the machine, and tests of many processes after them.
_LONGEST_FIRST = (
    "spark",
    "pipeline",
    "sim",
    "nemesis",
    "cluster",
    "faults",
    "clients",
    "wire",
    "storage",
)


def _rank(item: pytest.Item) -> int:
    path = item.path.relative_to(ROOT)
    room = "spark" if str(path) in SPARK else path.parts[1]
    return _LONGEST_FIRST.index(room) if room in _LONGEST_FIRST else len(_LONGEST_FIRST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by room where several workers share the work; otherwise leave the order as it is."""
    if config.getoption("dist", "no") != "no" or hasattr(config, "workerinput"):
        items.sort(key=_rank)


def pytest_report_header(config: pytest.Config) -> str:
    import ottla

    forms = {is_compiled(name) for name in compiled_modules()}
    form = "mixed" if len(forms) > 1 else "compiled" if forms == {True} else "plain"
    return (
        f"ottla: {form} modules from {Path(ottla.__file__).parent}, python {sys.version.split()[0]}"
    )
