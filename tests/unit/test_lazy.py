"""Modules and values that are loaded or constructed on first use, and what a start leaves out."""

import ast
import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.patience import SECONDS_MAX

from ottla.cli.warming import PACKAGES, PAUSE_S, PAUSE_S_MAX, decide_pause_s, warm
from ottla.config.loading import load
from ottla.node.directories.format_plan import FormatOptions, plan_format
from ottla.node.directories.formatting import format_node
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.lazy import Lazy, LazyModule
from ottla.runtime.randomness import SystemRandom

pytestmark = pytest.mark.slow

SRC = Path(__file__).parents[2] / "src" / "ottla"

# -- modules ------------------------------------------------------------------------


def test_lazy_module_is_loaded_by_its_first_use() -> None:
    name = "ottla.operations.escaping"
    sys.modules.pop(name, None)
    lazy = LazyModule(name)
    assert name not in sys.modules
    assert lazy.escape("a\x1b") != "a\x1b"
    assert lazy.escape is sys.modules[name].escape
    with pytest.raises(AttributeError):
        _ = lazy.nothing_of_that_name
    assert name in sys.modules


def _lazy_names(tree: ast.AST) -> set[str]:
    return {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "LazyModule"
        and isinstance(node.args[0], ast.Constant)
    }


def _typed_names(tree: ast.AST) -> set[str]:
    """What is imported for the type checker alone, and so held to the layers."""
    return {
        f"{stated.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
        if node.test.id == "TYPE_CHECKING"
        for stated in node.body
        if isinstance(stated, ast.ImportFrom)
        for alias in stated.names
    }


LAZY = {
    path: names
    for path in sorted(SRC.rglob("*.py"))
    if (names := _lazy_names(ast.parse(path.read_text())))
}


def test_lazy_modules_are_found() -> None:
    assert sum(map(len, LAZY.values())) >= 15


@pytest.mark.parametrize("path", LAZY, ids=lambda path: path.stem)
def test_every_lazy_module_exists_is_typed_and_is_warmed(path: Path) -> None:
    assert LAZY[path] <= _typed_names(ast.parse(path.read_text()))
    for name in LAZY[path]:
        assert find_spec(name) is not None
        assert name.rpartition(".")[0] in PACKAGES


# -- values -------------------------------------------------------------------------


def test_lazy_value_is_made_once() -> None:
    made: list[int] = []
    lazy = Lazy(lambda: made.append(1) or len(made))
    assert not lazy.is_made
    assert [lazy.get(), lazy.get()] == [1, 1]
    assert lazy.is_made and made == [1]


def test_lazy_value_that_fails_is_made_anew() -> None:
    answers = iter([ValueError("no"), "yes"])

    def make() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    lazy = Lazy(make)
    with pytest.raises(ValueError, match="no"):
        lazy.get()
    assert not lazy.is_made
    assert lazy.get() == "yes"


# -- warming up ---------------------------------------------------------------------


def test_warming_loads_every_module_and_yields_to_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses a package of its own: ours, loaded twice, would have every class twice."""
    package = tmp_path / "put_off"
    package.mkdir()
    wanted = {f"put_off.part_{number}" for number in range(20)}
    for name in ("__init__", *(each.partition(".")[2] for each in wanted)):
        (package / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count())
            await warm(["put_off"])
            counting.cancel()

    asyncio.run(main())
    assert wanted <= set(sys.modules)
    assert turns > len(wanted)
    for name in ("put_off", *wanted):
        del sys.modules[name]


def test_warming_pauses_longer_while_the_loop_is_busy() -> None:
    assert decide_pause_s(0.0) == decide_pause_s(-0.001) == PAUSE_S
    assert PAUSE_S < decide_pause_s(0.001) < PAUSE_S_MAX
    assert decide_pause_s(1.0) == PAUSE_S_MAX


# -- a start ------------------------------------------------------------------------

# Modules of ours and of others that are loaded when a node serves: what is there now, and some room
# to grow. Each costs a fraction of a millisecond of every start.
MODULES_MAX = 684
# Modules that serve later requests.
PUT_OFF = ("ottla.coordinators.groups.", "ottla.coordinators.transactions.", "ottla.sharing.")
UNWANTED = {"re2", "difflib", "pathlib", "ottla.raft.rpc_codec", "ottla.api.groups.classic_groups"}

START = """
import asyncio, socket, sys
from ottla.cli.commands.serving import Node

async def main():
    properties = dict(line.split("=", 1) for line in sys.stdin.read().splitlines())
    held = socket.create_server(("127.0.0.1", 0))
    port = held.getsockname()[1]
    properties["listeners"] = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}"
    properties["controller.quorum.voters"] = f"1@127.0.0.1:{port}"
    node = await Node.start(properties, controller_listener=held)
    found = set(sys.modules)
    await node.shutdown()
    return found

print(*asyncio.run(main()))
"""
SETTINGS = """node.id=1
process.roles=broker,controller
controller.listener.names=CONTROLLER
log.dirs={}
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:1
controller.quorum.voters=1@127.0.0.1:1"""


def test_serving_node_has_loaded_few_modules(tmp_path: Path) -> None:
    text, random = SETTINGS.format(tmp_path / "data"), SystemRandom()
    options = FormatOptions(cluster_id="4L6g3nShT-eMCtK--X86sw")
    format_node(RealDisk(), random, SystemClock().now(), plan_format(load(text), options, random))
    done = subprocess.run(
        [sys.executable, "-c", START],
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.startswith(PUT_OFF)}
    assert UNWANTED & loaded == set()
    assert len(loaded) <= MODULES_MAX


def test_warming_loads_no_library_of_secure_listeners() -> None:
    code = (
        "import sys, importlib; from ottla.cli.warming import PACKAGES, _modules;"
        "[importlib.import_module(name) for name in _modules(PACKAGES)];"
        "print(*{'cryptography', 'joserfc'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
