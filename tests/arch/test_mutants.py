"""Every mutant still applies: its text occurs exactly once in its file, and its tests exist."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

# Parameters made from the names of classes, which the files of the tests do not contain.
NAMES_OF_CLASSES = {"TopicRecord", "FetchResponse-v5"}


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


def test_every_mutant_selects_tests_that_exist() -> None:
    """A word behind ``-k`` occurs in the file: a renamed test would leave a mutant without any."""
    root = Path(__file__).parents[2]
    missing = []
    for mutant in runner().load([]):
        words = shlex.split(mutant.tests)
        paths = [root / word.partition("::")[0] for word in words if word.startswith("tests/")]
        assert all(path.exists() for path in paths), mutant.label
        texts = [
            path.read_text().lower()
            for each in paths
            for path in (sorted(each.rglob("test_*.py")) if each.is_dir() else [each])
        ]
        chosen = [words[at + 1] for at, word in enumerate(words) if word == "-k"]
        for name in re.findall(r"[\w-]+", " ".join(chosen)):
            if name in ("and", "or", "not") or name in NAMES_OF_CLASSES:
                continue
            # Parameters of a test are joined with dashes; their values stand apart in the file.
            parts = name.lower().split("-")
            if not any(all(part in text for part in parts) for text in texts):
                missing.append(f"{mutant.label}: {name}")
    assert missing == []
