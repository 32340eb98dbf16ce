"""Every curated mutant still applies: its pattern matches once, and its tests exist."""

import re
import shlex
from pathlib import Path

from tests.mutants.anchors import CURATED, load, problem_with

ROOT = Path(__file__).parents[2]
# Parameters made from the names of classes, which the files of the tests do not contain.
NAMES_OF_CLASSES = {"TopicRecord", "FetchResponse-v5"}
# Promises that generated mutants and their tests do not cover; a longer list is not maintained.
CURATED_MAX = 250


def test_every_mutant_applies() -> None:
    mutants = load()
    assert 0 < len(mutants) <= CURATED_MAX
    problems = [
        f"{mutant.label} ({CURATED.name}/{mutant.room}.toml): {problem}"
        for mutant in mutants
        if (problem := problem_with(mutant))
    ]
    assert problems == [], "\n".join(problems)


def test_every_mutant_is_in_the_file_of_its_room() -> None:
    strays = [m.label for m in load() if not re.match(rf"{m.room}[/:.]", m.at)]
    assert strays == []


def test_every_mutant_selects_tests_that_exist() -> None:
    """A word behind ``-k`` occurs in the file: a renamed test would leave a mutant without any."""
    missing = []
    for mutant in load():
        words = shlex.split(mutant.tests)
        paths = [ROOT / word.partition("::")[0] for word in words if word.startswith("tests/")]
        assert all(path.exists() for path in paths), mutant.label
        texts = [
            file.read_text().lower()
            for path in paths
            for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
        ]
        chosen = [words[index + 1] for index, word in enumerate(words) if word == "-k"]
        for name in re.findall(r"[\w-]+", " ".join(chosen)):
            if name in ("and", "or", "not") or name in NAMES_OF_CLASSES:
                continue
            # Parameters of a test are joined with dashes; their values stand apart in the file.
            parts = name.lower().split("-")
            if not any(all(part in text for part in parts) for text in texts):
                missing.append(f"{mutant.label}: {name}")
    assert missing == []
