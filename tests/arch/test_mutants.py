"""Every mutant can still be applied: a promise that moved is looked up again, not forgotten."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def runner() -> ModuleType:
    path = Path(__file__).parents[1] / "mutants" / "run.py"
    spec = importlib.util.spec_from_file_location("mutants_run", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_run"] = module
    spec.loader.exec_module(module)
    return module


RUN = runner()


@pytest.mark.parametrize("mutant", RUN.load([]), ids=lambda m: m.label)
def test_a_mutant_still_applies(mutant: object) -> None:
    assert RUN.problem_with(mutant) is None
