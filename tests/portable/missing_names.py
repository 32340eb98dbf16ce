"""Names of the standard library that Linux has and another operating system has not.

They are read from typeshed, the type stubs that mypy brings along: a stub declares a name below
``if sys.platform == "linux":`` if it exists on Linux only.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PLATFORMS = {"macos": "darwin", "windows": "win32"}
# Modules whose stubs differ by platform, with the stub that declares the names.
MODULES = {
    "os": "os/__init__",
    "socket": "socket",
    "signal": "signal",
    "select": "select",
    "mmap": "mmap",
}
# Modules that a platform does not have, or that the fixtures' users may not have installed.
ABSENT = {
    "macos": ("uvloop", "msvcrt"),
    "windows": ("uvloop", "fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog"),
}
# Missing although typeshed declares them, or hidden so that their fallback runs, too.
ALSO_HIDDEN = {"macos": {"os": {"sendfile"}}, "windows": {"os": {"posix_spawn", "fchmod"}}}


@cache
def missing_names(profile: str) -> dict[str, frozenset[str]]:
    """Return the names that are missing in a profile, by module."""
    found = {}
    for module, stub in MODULES.items():
        here, there = names_of(stub, "linux"), names_of(stub, PLATFORMS[profile])
        found[module] = (here - there) | ALSO_HIDDEN[profile].get(module, set())
    return found


@cache
def names_of(stub: str, platform: str) -> frozenset[str]:
    """Return the names that a stub declares for a platform."""
    return frozenset(_declared(ast.parse(_path(stub).read_text()).body, platform))


def _path(stub: str) -> Path:
    spec = importlib.util.find_spec("mypy")
    assert spec is not None and spec.origin is not None, "typeshed comes with mypy"
    return Path(spec.origin).parent / "typeshed/stdlib" / f"{stub}.pyi"


def _declared(body: list[ast.stmt], platform: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.If():
                chosen = node.body if _holds(node.test, platform) else node.orelse
                yield from _declared(chosen, platform)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    if alias.name == "*":
                        yield from names_of(str(module), platform)
                    else:
                        yield alias.asname or alias.name
            case _:
                pass


def _holds(test: ast.expr, platform: str) -> bool:
    class System:
        version_info = sys.version_info

    System.platform = platform  # type: ignore[attr-defined]
    return bool(eval(ast.unparse(test), {"sys": System}))


def description(profile: str) -> dict[str, object]:
    """Return what `site/sitecustomize.py` needs to hide the names."""
    names = {module: sorted(each) for module, each in missing_names(profile).items()}
    return {"profile": profile, "names": names, "absent": ABSENT[profile]}
