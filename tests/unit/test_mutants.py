"""Mutants: patterns of curated ones, operators of generated ones, and forks that run them."""

import ast
import signal
import textwrap
from pathlib import Path

import pytest
from tests.mutants import anchors
from tests.mutants.anchors import AnchorError, Mutant, broken
from tests.mutants.operators import mutations
from tests.mutants.rooms import SRC, is_pure, rooms_used_by
from tests.mutants.trees import outer_functions, rewrite
from tests.mutants.warm import CAUGHT, Candidate, Forks, break_functions, live_functions

pytestmark = pytest.mark.slow

SOURCE = '''
class Log:
    def append(self, batch):
        """Append a batch."""
        if batch.epoch < self.epoch:  # fenced
            return None
        self.sync()
        return self.end

    def close(self):
        self.sync()
'''
REFORMATTED = """
class Log:
    def append(
        self,
        batch,
    ):
        # Another comment.
        if (
            batch.epoch
            < self.epoch
        ):
            return None

        (self.sync())
        return self.end

    def close(self): self.sync()
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "storage" / "log").mkdir(parents=True)
    monkeypatch.setattr(anchors, "TREES", (tmp_path,))
    monkeypatch.setattr(anchors, "ROOT", tmp_path)
    (tmp_path / "storage/log/log.py").write_text(SOURCE)
    return tmp_path / "storage"


def mutant(find: str, replace: str = "", at: str = "storage/log/log.py:Log.append") -> Mutant:
    return Mutant("storage", "p", at, find, "tests/unit/test_mutants.py", replace)


@pytest.mark.parametrize("source", [SOURCE, REFORMATTED], ids=["as-written", "reformatted"])
def test_pattern_matches_whatever_the_layout(room: Path, source: str) -> None:
    (room / "log" / "log.py").write_text(source)
    _, text = broken(mutant("batch.epoch<self.epoch", "False"))
    assert "if False:" in text
    _, text = broken(mutant("self.sync()"))
    assert text.count("self.sync()") == 1
    assert "self.sync()" in text.partition("def close")[2]


def test_removing_the_only_statement_leaves_pass(room: Path) -> None:
    _, text = broken(mutant("self.sync()", at="storage/log/log.py:Log.close"))
    assert text.rstrip().endswith("def close(self):\n        pass")


def test_ellipsis_stands_for_any_statements(room: Path) -> None:
    find = "if batch.epoch < self.epoch:\n    ..."
    _, text = broken(mutant(find, "for _ in ():\n    ...\nself.end = 0"))
    assert "for _ in ():\n            return None\n        self.end = 0\n" in text


def test_function_that_moved_within_its_room_is_found(room: Path) -> None:
    (room / "log" / "log.py").rename(room / "appending.py")
    path, _ = broken(mutant("batch.epoch < self.epoch", "False"))
    assert path == room / "appending.py"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            mutant("self.start", "0"),
            "matches 0 times in Log.append of storage/log/log.py, want once",
        ),
        (mutant("self", "None"), "matches 3 times"),
        (mutant("self.end", "self.end"), "changes nothing"),
        (mutant("self.end", "0", "storage/log/log.py:Log.extend"), "does not define Log.extend"),
    ],
    ids=["no-match", "several", "unchanged", "no-function"],
)
def test_anchor_that_does_not_fit_says_what_to_change(room: Path, wrong: Mutant, says: str) -> None:
    with pytest.raises(AnchorError, match=says):
        broken(wrong)


def changes(body: str, returns: str = "int") -> set[tuple[str, str]]:
    """Return the operator and the new code of every mutant of a function."""
    code = f"def f(a, b) -> {returns}:\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    ((_, function),) = outer_functions(ast.parse(code))
    return {(m.operator, m.diff().partition("\n+ ")[2]) for m in mutations(function)}


@pytest.mark.parametrize(
    ("body", "returns", "expected"),
    [
        ("return a < b", "bool", {("comparison", "a <= b")}),
        ("return a and b", "bool", {("boolean", "a or b")}),
        ("x = not a", "bool", {("boolean", "a")}),
        ("x = a + b", "int", {("arithmetic", "a - b")}),
        ("x = 7", "int", {("constant", "8"), ("constant", "6")}),
        ("if a:\n    ...", "int", {("condition", "True"), ("condition", "False")}),
        ("a.sync()", "int", {("removed call", "pass")}),
        ("a.x = b", "int", {("removed assignment", "pass")}),
        ("return a", "bool", {("return value", "return not a")}),
        ("return a", "int", {("return value", "return a + 1")}),
        ("return a", "str | None", {("return value", "return None")}),
        ("return a", "list[str]", {("return value", "return []")}),
    ],
)
def test_operator(body: str, returns: str, expected: set[tuple[str, str]]) -> None:
    assert changes(body, returns) == expected


@pytest.mark.parametrize(
    "body",
    ['"""Text."""', "assert a < 1", 'raise ValueError(f"{a + 1}")', "logger.info(a)", "x: int"],
)
def test_what_no_test_sees_is_left_alone(body: str) -> None:
    assert changes(body) == set()


def test_rewriting_leaves_the_tree_as_it_was() -> None:
    tree = ast.parse(SOURCE)
    before = ast.dump(tree)
    (first,) = tree.body
    rewrite(tree, {first: []})
    assert ast.dump(tree) == before


def double(number: int) -> int:
    return number * 2


@pytest.fixture
def forks(tmp_path: Path) -> Forks:
    return Forks(2, tmp_path / "scratch")


def test_fork_breaks_live_functions_and_leaves_its_parent_alone(forks: Forks) -> None:
    tree = ast.parse(Path(__file__).read_text())
    (function,) = (node for name, node in outer_functions(tree) if name == "double")
    mutation = next(m for m in mutations(function) if m.operator == "arithmetic")
    candidate = Candidate(Path(__file__), tree, "double", mutation)
    functions = live_functions()

    def work() -> int:
        break_functions(candidate, functions)
        return 10 + double(8)

    codes: list[int] = []
    forks.start(work, 60, codes.append)
    forks.finish()
    assert codes == [10 + 8 // 2]
    assert double(8) == 16


def test_fork_that_raises_or_hangs_counts_as_caught(forks: Forks) -> None:
    def hang() -> int:
        while True:
            pass

    codes: list[int] = []
    forks.start(lambda: 1 // 0, 60, codes.append)
    forks.start(hang, 0.1, codes.append)
    forks.finish()
    assert sorted(codes) == [-signal.SIGXCPU, CAUGHT]


def test_pure_modules_are_those_without_environment() -> None:
    assert is_pure(SRC / "raft/core/voting.py")
    assert not is_pure(SRC / "raft/driver.py")
    assert not is_pure(SRC / "security/tls.py")


def test_rooms_of_a_test_include_those_of_its_helpers() -> None:
    path = Path(__file__).with_name("test_raft_scenarios.py")
    assert "raft" in set(rooms_used_by(path))
