"""Every mutant still applies: its text occurs exactly once in its file, and its tests exist."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def runner() -> ModuleType:
    path = Path(__file__).parents[1] / "mutants" / "run.py"
    spec = importlib.util.spec_from_file_location("mutants_run", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_run"] = module
    spec.loader.exec_module(module)
    return module


def test_every_mutant_applies() -> None:
    run = runner()
    mutants = run.load([])
    assert mutants
    found = [
        f"{mutant.label}: {problem}" for mutant in mutants if (problem := run.problem_with(mutant))
    ]
    assert found == []
