"""What is loaded or made on first use: modules, values, routes; and what a start leaves out."""

import ast
import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.api.late_routes import Promise, late_routes
from ottla.api.routes import Route
from ottla.cli.warming import PACKAGES, PAUSE_S, PAUSE_S_MAX, decide_pause_s, warm
from ottla.config.loading import load
from ottla.node.format_plan import FormatOptions, plan_format
from ottla.node.formatting import format_node
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.lazy import Lazy, LazyModule
from ottla.runtime.randomness import SystemRandom

SRC = Path(__file__).parents[2] / "src" / "ottla"

# -- modules ------------------------------------------------------------------------


def test_a_late_module_is_loaded_by_its_first_use() -> None:
    name = "ottla.cli.escaping"
    sys.modules.pop(name, None)
    late = LazyModule(name)
    assert name not in sys.modules
    assert late.escape("a\x1b") != "a\x1b"
    assert late.escape is sys.modules[name].escape
    with pytest.raises(AttributeError):
        _ = late.nothing_of_that_name
    assert name in sys.modules


def _late_names(tree: ast.AST) -> set[str]:
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


LATE = {
    path: names
    for path in sorted(SRC.rglob("*.py"))
    if (names := _late_names(ast.parse(path.read_text())))
}


def test_there_are_late_modules() -> None:
    assert sum(map(len, LATE.values())) > 20


@pytest.mark.parametrize("path", LATE, ids=lambda path: path.stem)
def test_every_late_module_exists_is_typed_and_is_warmed_up(path: Path) -> None:
    assert LATE[path] <= _typed_names(ast.parse(path.read_text()))
    for name in LATE[path]:
        assert find_spec(name) is not None
        assert name.rpartition(".")[0] in PACKAGES


# -- values -------------------------------------------------------------------------


def test_a_late_value_is_made_once() -> None:
    made: list[int] = []
    late = Lazy(lambda: made.append(1) or len(made))
    assert not late.is_made
    assert [late.get(), late.get()] == [1, 1]
    assert late.is_made and made == [1]


def test_a_late_value_that_fails_is_not_made() -> None:
    answers = iter([ValueError("no"), "yes"])

    def make() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    late = Lazy(make)
    with pytest.raises(ValueError, match="no"):
        late.get()
    assert not late.is_made
    assert late.get() == "yes"


# -- routes -------------------------------------------------------------------------


def answer(caller: object, request: object, version: object) -> object:
    return (caller, request, version)


def test_late_routes_make_their_handlers_with_the_first_call() -> None:
    made: list[str] = []

    def make() -> list[Route]:
        made.append("made")
        waits = Route(ApiKey.SHARE_FETCH, answer, cancel_when_gone=True)
        return [Route(ApiKey.LIST_GROUPS, answer), waits]

    routes = late_routes(
        make, ApiKey.LIST_GROUPS, Promise(ApiKey.SHARE_FETCH, cancel_when_gone=True)
    )
    assert [(route.api_key, route.cancel_when_gone) for route in routes] == [
        (ApiKey.LIST_GROUPS, False),
        (ApiKey.SHARE_FETCH, True),
    ]
    assert made == []
    assert routes[1].handle("caller", "request", 3) == ("caller", "request", 3)
    assert routes[0].handle("caller", "request", 4) == ("caller", "request", 4)
    assert made == ["made"]


@pytest.mark.parametrize(
    "made",
    [
        [],
        [Route(ApiKey.HEARTBEAT, answer)],
        [Route(ApiKey.LIST_GROUPS, answer), Route(ApiKey.HEARTBEAT, answer)],
        [Route(ApiKey.LIST_GROUPS, answer, cancel_when_gone=True)],
        [Route(ApiKey.LIST_GROUPS, answer, versions=(0, 1))],
        [Route(ApiKey.LIST_GROUPS, answer, raw=True)],
    ],
)
def test_a_promise_that_is_not_kept_is_told(made: list[Route]) -> None:
    (route,) = late_routes(lambda: made, ApiKey.LIST_GROUPS)
    with pytest.raises(ValueError, match="promised"):
        route.handle("caller", "request", 0)


# -- warming up ---------------------------------------------------------------------


def test_warming_up_loads_all_with_turns_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of its own: ours, loaded twice, would have every class twice."""
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


def test_warming_up_waits_longer_while_others_are_busy() -> None:
    assert decide_pause_s(0.0) == decide_pause_s(-0.001) == PAUSE_S
    assert PAUSE_S < decide_pause_s(0.001) < PAUSE_S_MAX
    assert decide_pause_s(1.0) == PAUSE_S_MAX


# -- a start ------------------------------------------------------------------------

# Modules of ours and of others that are loaded when a node serves: what is there now, and some room
# to grow. Each costs a fraction of a millisecond of every start.
MODULES_MAX = 585
# What serves requests that come later, or never.
PUT_OFF = ("ottla.coordinators.groups.", "ottla.coordinators.transactions.", "ottla.sharing.")
UNWANTED = {"re2", "difflib", "pathlib", "ottla.raft.rpc_codec", "ottla.api.groups"}

START = """
import asyncio, socket, sys
from ottla.cli.serving import Node

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


def test_a_node_that_serves_has_loaded_little(tmp_path: Path) -> None:
    text, random = SETTINGS.format(tmp_path / "data"), SystemRandom()
    options = FormatOptions(cluster_id="4L6g3nShT-eMCtK--X86sw")
    format_node(RealDisk(), random, SystemClock().now(), plan_format(load(text), options, random))
    done = subprocess.run(
        [sys.executable, "-c", START], input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert not {name for name in loaded if name.startswith(PUT_OFF)}
    assert UNWANTED & loaded == set()
    assert len(loaded) <= MODULES_MAX
