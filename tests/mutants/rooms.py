"""Which modules of a room are pure, and which fast tests use the room."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.arch.test_architecture import (
    GENERATED,
    PRODUCT,
    ROOT,
    SRC,
    is_asynchronous,
    is_script,
    name_of,
    uses_of_environment,
)
from tests.spark_files import SPARK

# Folders whose tests are fast, mostly; those that take long are left out (warm.py).
FAST = ("tests/unit", "tests/storage")
PIPELINE = ("formats", "spark", "tables", "sql")  # tested in tests/pipeline, too


def is_pure(path: Path) -> bool:
    return (
        not name_of(path).startswith(GENERATED)
        and not is_asynchronous(path)
        and not is_script(path)
        and not any(uses_of_environment(path))
    )


def rooms() -> list[str]:
    return sorted({path.relative_to(SRC).parts[0] for path in PRODUCT if path.parent != SRC})


def pure_modules(room: str) -> list[Path]:
    return [path for path in PRODUCT if path.is_relative_to(SRC / room) and is_pure(path)]


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Return the dotted names that a module imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def rooms_used_by(path: Path, known: set[Path] | None = None) -> Iterator[str]:
    """Yield the rooms that a test imports, itself or through helpers of the tests."""
    known = known if known is not None else set()
    if path in known:
        return
    known.add(path)
    for name in imports_of(path):
        package, _, rest = name.partition(".")
        if package == "ottla":
            yield rest.partition(".")[0]
        for helper in (ROOT / f"{name.replace('.', '/')}.py", path.parent / f"{name}.py"):
            if helper.exists():
                yield from rooms_used_by(helper, known)


def test_files(room: str) -> list[Path]:
    """Return the files of tests that use a room; without those that start Spark."""
    folders = (*FAST, "tests/pipeline") if room in PIPELINE else FAST
    files = [path for folder in folders for path in sorted((ROOT / folder).glob("test_*.py"))]
    files = [path for path in files if str(path.relative_to(ROOT)) not in SPARK]
    return [path for path in files if room in rooms_used_by(path)]
