"""The rules of ARCHITECTURE.md that no linter checks. Each test lists every violation at once.

Import directions are checked by import-linter, docstrings and banned functions by ruff
(pyproject.toml).
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "ottla"
PRODUCT = sorted(SRC.rglob("*.py"))
MODULES = [*PRODUCT, *sorted((ROOT / "simulation").rglob("*.py"))]

# Rooms that may use the operating system directly (`security` reads keys and certificates). All
# others use the ports of `runtime`.
OUTER_ROOMS = {
    "runtime",
    "security",
    "server",
    "observability",
    "node",
    "spark",
    "tables",
    "sql",
    "registry",
    "cli",
    "console",
    "testing",
}
ENVIRONMENT_MODULES = {"os", "pathlib", "random", "socket", "subprocess", "time", "uuid"}
OUTSIDE_CALLS = {"open", "print", "input"}

# Packages that hold rules: synchronous functions and state machines. A shell among them, which
# awaits and carries out what the rules decide, has one of these names.
RULES = (
    "protocol",
    "config",
    "quotas",
    "storage",
    "metadata",
    "raft/core",
    "registry/rules",
    "controller",
    "coordinators/groups",
    "sharing",
    "schemas",
    "testing/history",
)
SHELL_NAMES = ("service", "driver", "ports", "_loop", "_watch", "_polls", "_controller")

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 700
# Declarations without logic, written by our own generators.
GENERATED = ("protocol/messages/", "config/generated.py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(SRC if path.is_relative_to(SRC) else ROOT).as_posix()


def imported_packages(tree: ast.AST) -> set[str]:
    """Return the top-level package of every import."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def is_script(path: Path) -> bool:
    """Return whether the module is a command, such as a generator."""
    return 'if __name__ == "__main__":' in path.read_text()


def uses_of_environment(path: Path) -> Iterator[str]:
    tree = parsed(path)
    yield from sorted(imported_packages(tree) & ENVIRONMENT_MODULES)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in OUTSIDE_CALLS:
                yield f"{name}()"


def is_asynchronous(path: Path) -> bool:
    tree = parsed(path)
    return "asyncio" in imported_packages(tree) or any(
        isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree)
    )


def test_only_outer_rooms_use_the_operating_system() -> None:
    found = [
        f"{name_of(path)}: {use}"
        for path in PRODUCT
        if path.relative_to(SRC).parts[0] not in OUTER_ROOMS and not is_script(path)
        for use in uses_of_environment(path)
    ]
    assert found == [], "take a port of ottla.runtime.ports by constructor"


def test_rules_are_synchronous() -> None:
    found = [
        name_of(path)
        for path in PRODUCT
        if name_of(path).startswith(tuple(f"{package}/" for package in RULES))
        and not path.stem.endswith(SHELL_NAMES)
        and is_asynchronous(path)
    ]
    assert found == [], f"move the awaiting part to a module whose name ends in {SHELL_NAMES}"


def test_tasks_belong_to_the_supervisor_or_to_a_task_group() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in PRODUCT
        if name_of(path) != "runtime/supervisor.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and node.attr in {"create_task", "ensure_future"}
        and ast.unparse(node.value).endswith(("asyncio", "loop", "loop()"))
    ]
    assert found == [], "nobody awaits such a task: use a TaskGroup, or add a service"


def test_product_has_no_test_hooks() -> None:
    found = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in PRODUCT
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.lower().startswith("test_")
        | node.name.lower().endswith(("_for_test", "_for_tests", "fortest", "fortests"))
    ]
    assert found == []


def test_files_and_functions_are_short() -> None:
    found = []
    for path in MODULES:
        name = name_of(path)
        if name.startswith(GENERATED):
            continue
        if (lines := path.read_text().count("\n")) > FILE_LINES_MAX:
            found.append(f"{name}: {lines} lines")
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    found.append(f"{name}:{node.lineno} {node.name}: {length} lines")
    assert found == [], f"limits: {FILE_LINES_MAX} lines, {FUNCTION_LINES_MAX} per function"
