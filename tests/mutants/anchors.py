"""Curated mutants: a promise, where it is kept, and the code that breaks it.

    [[mutant]]
    promise = "A replica votes once per epoch."
    at = "raft/core/voting.py:may_grant"     # a function, method, class or constant
    find = "role.voted == candidate"         # an expression, or statements
    replace = "True"                         # left out: the statements are removed
    tests = "tests/unit/test_raft_simulation.py"

`find` is compared with the syntax tree, so neither layout nor comments matter. It must occur once
below `at`. A line `...` stands for any statements; in `replace` it stands for those it matched.
If the module has no such name, it is looked for in the other modules of the room.
"""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutants.trees import Replacements, definitions, rewrite

ROOT = Path(__file__).parents[2]
CURATED = Path(__file__).parent / "curated"
# The folders that a mutant may change, in the order in which a module is looked for.
TREES = (ROOT / "src" / "ottla", ROOT)
ADVICE = "see tests/mutants/anchors.py; if the promise is gone, delete the mutant"


class AnchorError(Exception):
    """A mutant does not fit the code: says what to change."""


@dataclass(frozen=True, slots=True)
class Mutant:
    room: str
    promise: str
    at: str
    find: str
    tests: str
    replace: str = ""

    @property
    def label(self) -> str:
        return f"{self.room}: {self.promise}"


@dataclass(frozen=True, slots=True)
class Match:
    """The nodes that a pattern matched, and the statements that each `...` stands for."""

    nodes: tuple[ast.AST, ...]
    gaps: tuple[tuple[ast.stmt, ...], ...] = ()


def load(rooms: list[str] | None = None) -> list[Mutant]:
    return [
        Mutant(room=path.stem, **entry)
        for path in sorted(CURATED.glob("*.toml"))
        if not rooms or path.stem in rooms
        for entry in tomllib.loads(path.read_text())["mutant"]
    ]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def names_of(path: Path) -> dict[str, list[ast.AST]]:
    names: dict[str, list[ast.AST]] = {}
    for name, node in definitions(parsed(path)):
        names.setdefault(name, []).append(node)
    return names


def locate(at: str) -> tuple[Path, list[ast.AST]]:
    """Return the module that defines a qualified name, and its definitions (overloads, branches).

    Raises:
        AnchorError: no module of the room, or several of them, define it.
    """
    module, _, name = at.partition(":")
    tree = next((tree for tree in TREES if (tree / module.partition("/")[0]).exists()), ROOT)
    path = tree / module
    if path.exists() and name in names_of(path):
        return path, names_of(path)[name]
    room = sorted((tree / module.partition("/")[0]).rglob("*.py"))
    owners = [other for other in room if name in names_of(other)]
    if len(owners) == 1:
        return owners[0], names_of(owners[0])[name]
    places = ", ".join(str(owner.relative_to(ROOT)) for owner in owners) or "no module of the room"
    raise AnchorError(f"`at`: {module} does not define {name}, but {places}: correct it; {ADVICE}")


def match_of(mutant: Mutant) -> tuple[Path, Match]:
    """Return the module that a mutant changes, and what its pattern matches there.

    Raises:
        AnchorError: the pattern does not match exactly once, or nothing would change.
    """
    path, owners = locate(mutant.at)
    pattern, replacement = parse(mutant.find), parse(mutant.replace)
    if [ast.dump(node) for node in pattern] == [ast.dump(node) for node in replacement]:
        raise AnchorError("`replace` changes nothing")
    is_expression = all(is_one_expression(code) for code in (pattern, replacement))
    matches_of = expression_matches if is_expression else statement_matches
    matches = [match for owner in owners for match in matches_of(pattern, owner)]
    if len(matches) != 1:
        name = mutant.at.partition(":")[2]
        raise AnchorError(
            f"`find` matches {len(matches)} times in {name} of {path.relative_to(ROOT)}, want "
            f"once: copy the expression or statements as they are now; {ADVICE}"
        )
    return path, matches[0]


def broken(mutant: Mutant) -> tuple[Path, str]:
    """Return the module that a mutant changes, and its broken source."""
    path, match = match_of(mutant)
    changed = rewrite(parsed(path), replacements_for(match, parse(mutant.replace)))
    return path, ast.unparse(changed) + "\n"


def parse(code: str) -> list[ast.stmt]:
    # A wrapper lets `return`, `await` and `yield` parse.
    body = textwrap.indent(textwrap.dedent(code), "    ") if code.strip() else "    pass"
    wrapper = ast.parse(f"async def wrapper():\n{body}\n").body[0]
    assert isinstance(wrapper, ast.AsyncFunctionDef)
    return wrapper.body if code.strip() else []


def is_one_expression(code: list[ast.stmt]) -> bool:
    return len(code) == 1 and isinstance(code[0], ast.Expr)


def expression_matches(pattern: list[ast.stmt], owner: ast.AST) -> Iterator[Match]:
    assert isinstance(pattern[0], ast.Expr)
    dump = ast.dump(_loaded(pattern[0].value))
    for node in ast.walk(owner):
        if isinstance(node, ast.expr) and ast.dump(_loaded(node)) == dump:
            yield Match((node,))


def _loaded(node: ast.expr) -> ast.expr:
    """Return an expression as if it was read, so that a target matches, too."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        fields = dict(ast.iter_fields(node)) | {"ctx": ast.Load()}
        return type(node)(**fields)
    return node


def statement_matches(pattern: list[ast.stmt], owner: ast.AST) -> Iterator[Match]:
    for node in ast.walk(owner):
        for _, value in ast.iter_fields(node):
            if not isinstance(value, list) or not value or not isinstance(value[0], ast.stmt):
                continue
            for start in range(len(value)):
                ending = value[start : start + len(pattern)]
                gaps: list[tuple[ast.stmt, ...]] = []
                if len(ending) == len(pattern) and _same(pattern, ending, gaps):
                    yield Match(tuple(ending), tuple(gaps))


def _same(pattern: object, node: object, gaps: list[tuple[ast.stmt, ...]]) -> bool:
    """Compare two trees; a body `...` of the pattern equals any body, which is added to gaps."""
    if isinstance(pattern, list):
        assert isinstance(node, list)
        if len(pattern) == 1 and is_gap(pattern[0]):
            gaps.append(tuple(node))
            return True
        return len(pattern) == len(node) and all(
            _same(*pair, gaps) for pair in zip(pattern, node, strict=True)
        )
    if not isinstance(pattern, ast.AST):
        return pattern == node and type(pattern) is type(node)
    return type(pattern) is type(node) and all(
        _same(value, getattr(node, name, None), gaps) for name, value in ast.iter_fields(pattern)
    )


def is_gap(node: object) -> bool:
    return isinstance(node, ast.Expr) and (
        isinstance(node.value, ast.Constant) and node.value.value is Ellipsis
    )


def replacements_for(match: Match, replacement: list[ast.stmt]) -> Replacements:
    first, *others = match.nodes
    if isinstance(first, ast.expr):
        assert isinstance(replacement[0], ast.Expr)
        return {first: [replacement[0].value]}
    gaps = iter(match.gaps)
    filled = [
        rewrite(
            statement,
            {node: list(next(gaps, ())) for node in ast.walk(statement) if is_gap(node)},
        )
        for statement in replacement
    ]
    return {first: list(filled)} | {other: [] for other in others}


def problem_with(mutant: Mutant) -> str | None:
    """Return why a mutant cannot be applied, or None."""
    try:
        match_of(mutant)
    except (AnchorError, SyntaxError) as error:
        return str(error)
    missing = [test for test in mutant.tests.split() if not exists(test)]
    return f"`tests` names what does not exist: {missing}" if missing else None


def exists(test: str) -> bool:
    """Return whether a path or test id exists; options of pytest count as existing."""
    if not test.startswith("tests/"):
        return True
    path, *names = re.sub(r"\[.*", "", test).split("::")
    file = ROOT / path
    return file.exists() and all(
        re.search(rf"(def|class) {name}\b|^{name} = ", file.read_text(), re.M) for name in names
    )
