"""Shared by all tests: Hypothesis profiles, and a check that the expected modules are tested."""

import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.spark_files import SPARK

ROOT = Path(__file__).parents[1]
# ci is derandomised: the same commit gives the same result. dev and nightly explore.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=10, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW)
settings.register_profile(
    "ci", max_examples=50, deadline=None, derandomize=True, suppress_health_check=_SLOW
)
settings.register_profile(
    "nightly", max_examples=20_000, deadline=None, suppress_health_check=_SLOW
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def compiled_modules() -> list[str]:
    """Return the modules that setup.py compiles."""
    text = (ROOT / "setup.py").read_text()
    literal = text.split("COMPILED: dict[str, str] = ", 1)[1].split("\n\n", 1)[0]
    return sorted(eval(literal))


def is_compiled(name: str) -> bool:
    return not str(importlib.import_module(name).__file__).endswith(".py")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Exit if plain modules run where compiled ones are expected, or the reverse."""
    wanted = os.environ.get("OTTLA_EXPECT")
    if wanted is None:
        return
    wrong = [name for name in compiled_modules() if is_compiled(name) != (wanted == "compiled")]
    if wrong:
        pytest.exit(
            f"expected {wanted} modules, but these are not: {', '.join(wrong)}", returncode=3
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With ``--dist loadgroup``, run all Spark files on one worker, so that they share a session.

    Other files stay whole, so that module fixtures are set up once. (xdist's own groups change test
    ids in a way that pytest 9.2 ignores.)
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


# Long folders start first, so that the workers end at the same time. Simulations run beside Spark,
# which needs most of the machine, and tests with many processes after them.
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
    """Sort by folder if there are several workers; otherwise keep the order."""
    if config.getoption("dist", "no") != "no" or hasattr(config, "workerinput"):
        items.sort(key=_rank)


def pytest_report_header(config: pytest.Config) -> str:
    import ottla

    forms = {is_compiled(name) for name in compiled_modules()}
    form = "mixed" if len(forms) > 1 else "compiled" if forms == {True} else "plain"
    return (
        f"ottla: {form} modules from {Path(ottla.__file__).parent}, python {sys.version.split()[0]}"
    )
