"""Run the tests of a room against its mutants in forks of one warm process.

pytest collects the tests once. Each mutant gets a fork that gives the live functions the code of
the mutant and runs the tests that call them, the quickest first, until one fails. Nothing is
written to the working tree. What a module computes when it is imported stays unbroken.
"""

import ast
import gc
import hashlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest
from tests.mutants.operators import Mutation, mutations
from tests.mutants.rooms import ROOT, SRC, pure_modules, test_files
from tests.mutants.trees import outer_functions

CACHE = ROOT / "build" / "mutants"
# Tests that take longer are not run, nor more tests than fit into the time per mutant.
TEST_S_MAX = 4.0
MUTANT_S_MAX = 8.0
# A fork that needs several times the CPU of its tests hangs, and so does one that waits for long
# although the machine may be busy: the mutant is caught.
PATIENCE = 5
WAITING_S_MAX = 15
BUSY = 4
# How much CPU time the tests of one file get to see what they call; those left over are not used.
MAPPING_S_MAX = 60
LiveFunctions = dict[tuple[str, str], list[FunctionType]]
CAUGHT, SURVIVED, UNFIT = 1, 0, 9
PYTEST = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly")


def hide_compiled_modules() -> None:
    """Import the plain form of every module of ours. Call it before pytest loads its plugins."""
    plain = FileFinder.path_hook((SourceFileLoader, [".py"]))

    def hook(path: str) -> FileFinder:
        if not Path(path).is_relative_to(SRC.parent):
            raise ImportError
        return plain(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
    os.environ["OTTLA_EXPECT"] = "plain"
    os.environ["HYPOTHESIS_PROFILE"] = "ci"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mutation, and the module and function that contain it."""

    path: Path
    tree: ast.Module
    name: str
    mutation: Mutation

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.mutation.line} {self.name}"

    def describe(self) -> str:
        return f"{self.place} ({self.mutation.operator})\n{self.mutation.diff()}"


@dataclass(frozen=True, slots=True)
class Order:
    """Which mutants of a room to run, and how many."""

    room: str
    match: str  # a pattern of the place: path, line and function
    seed: int
    budget_s: float
    jobs: int


@dataclass(slots=True)
class Result:
    """What became of the mutants of a room."""

    room: str
    candidates: int = 0
    caught: int = 0
    hung: int = 0  # of those caught
    uncalled: int = 0
    survivors: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def run(self) -> int:
        return self.caught + len(self.survivors)


def candidates_of(order: Order) -> list[Candidate]:
    candidates = [
        Candidate(path, tree, name, mutation)
        for path in pure_modules(order.room)
        for tree in (ast.parse(path.read_text()),)
        for name, function in outer_functions(tree)
        for mutation in mutations(function)
    ]
    return [candidate for candidate in candidates if re.search(order.match, candidate.place)]


def run_room(order: Order) -> Result:
    """Run mutants of a room in a random order until the budget is spent."""
    session = RoomSession(order)
    files = [str(path) for path in test_files(order.room)]
    markers = "not slow and not nightly and not jvm and not external"
    code = pytest.main([*PYTEST, "-m", markers, *files], plugins=[session])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.result.failing.append(f"pytest exited with {code!r}")
    return session.result


class RoomSession:
    """A pytest plugin that runs mutants instead of the tests it collected."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.result = Result(order.room)
        self.scratch = CACHE / f"scratch-{os.getpid()}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        try:
            self._run(session.items)
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
        return True

    def _run(self, items: list[pytest.Function]) -> None:
        calls = self._calls_of(items)
        callers = defaultdict(list)
        for item in items:
            seconds, functions = calls.get(item.nodeid, (TEST_S_MAX, []))
            if seconds < TEST_S_MAX:
                for function in functions:
                    callers[function].append((seconds, item))
        candidates = candidates_of(self.order)
        random.Random(self.order.seed).shuffle(candidates)
        self.result.candidates = len(candidates)
        functions = live_functions()
        gc.freeze()
        started = time.monotonic()
        forks = Forks(self.order.jobs, self.scratch)
        for candidate in candidates:
            if time.monotonic() - started > self.order.budget_s:
                break
            key = f"{candidate.path.relative_to(SRC)}:{candidate.name}"
            tests = affordable(callers[key])
            if not tests:
                self.result.uncalled += 1
                continue
            cpu_s = 2 + PATIENCE * sum(seconds for seconds, _ in tests)
            chosen = [item for _, item in tests]
            work = partial(run_mutant, candidate, chosen, functions)
            forks.start(work, cpu_s, partial(self._note, candidate))
        forks.finish()
        self.result.seconds = time.monotonic() - started

    def _note(self, candidate: Candidate, code: int) -> None:
        if code == SURVIVED:
            self.result.survivors.append(candidate.describe())
        elif code != UNFIT:
            self.result.caught += 1
            self.result.hung += code < 0

    def _calls_of(self, items: list[pytest.Function]) -> dict[str, tuple[float, list[str]]]:
        """Return how long each test takes and which functions of the product it calls."""
        by_file = defaultdict(list)
        for item in items:
            if not any("spark" in name for name in item.fixturenames):
                by_file[item.path].append(item)
        CACHE.mkdir(parents=True, exist_ok=True)
        product = digest(*sorted(SRC.rglob("*.py")))
        forks = Forks(self.order.jobs, self.scratch)
        calls: dict[str, tuple[float, list[str]]] = {}

        def read(path: Path, code: int) -> None:
            if path.exists():
                calls.update(json.loads(path.read_text()))
            else:
                self.result.failing.append(f"{path.name}: the tests did not end ({code})")

        for file, tests in by_file.items():
            path = CACHE / f"{file.stem}-{digest(file)[:12]}-{product[:12]}.json"
            if path.exists():
                read(path, 0)
            else:
                for stale in CACHE.glob(f"{file.stem}-*.json"):
                    stale.unlink()
                forks.start(partial(map_calls, tests, path), MAPPING_S_MAX, partial(read, path))
        forks.finish()
        return calls


def digest(*paths: Path) -> str:
    summed = hashlib.sha256()
    for path in paths:
        summed.update(path.read_bytes())
    return summed.hexdigest()


def affordable(tests: list[tuple[float, pytest.Item]]) -> list[tuple[float, pytest.Item]]:
    """Return the quickest tests that fit into the time of a mutant."""
    chosen, total_s = [], 0.0
    for seconds, item in sorted(tests, key=lambda test: test[0]):
        total_s += seconds
        if total_s > MUTANT_S_MAX:
            break
        chosen.append((seconds, item))
    return chosen


class Forks:
    """At most ``jobs`` forks at a time, each with a limit of CPU time."""

    def __init__(self, jobs: int, scratch: Path) -> None:
        self.jobs = jobs
        self.scratch = scratch
        self.running: dict[int, tuple[float, Callable[[int], None]]] = {}

    def start(self, work: Callable[[], int], cpu_s: float, done: Callable[[int], None]) -> None:
        while len(self.running) >= self.jobs:
            self._reap()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            code = CAUGHT
            with suppress(BaseException):
                self._isolate(cpu_s)
                code = work()
            os._exit(code)
        self.running[pid] = (time.monotonic() + WAITING_S_MAX + BUSY * cpu_s, done)

    def finish(self) -> None:
        while self.running:
            self._reap()

    def _isolate(self, cpu_s: float) -> None:
        """Give the fork its own standard files and folder, and a limit that load does not move."""
        seconds = math.ceil(cpu_s)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        self.scratch.mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"] = str(self.scratch)

    def _reap(self) -> None:
        for pid, (deadline, done) in list(self.running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended and time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, 0)
            if ended:
                del self.running[pid]
                # Processes that a test of the fork started end with it.
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                done(os.waitstatus_to_exitcode(status))
        time.sleep(0.002)


def live_functions() -> LiveFunctions:
    """Return the functions of the product by file and qualified name."""
    functions = defaultdict(list)
    for function in gc.get_objects():
        if isinstance(function, FunctionType):
            code = function.__code__
            functions[code.co_filename, code.co_qualname].append(function)
    return functions


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def run_mutant(candidate: Candidate, items: list[pytest.Item], functions: LiveFunctions) -> int:
    """Break the live functions of this process and run tests until one fails."""
    try:
        break_functions(candidate, functions)
    except (SyntaxError, ValueError):  # no valid code, or other variables of outer functions
        return UNFIT
    run_items(items, FirstFailure())
    return SURVIVED


def break_functions(candidate: Candidate, functions: LiveFunctions) -> None:
    """Give live functions, and those inside them, the code of the mutant."""
    file = str(candidate.path)
    module = compile(candidate.mutation.apply(candidate.tree), file, "exec")
    for code in codes_in(module):
        if code.co_qualname.partition(".<locals>")[0] == candidate.name:
            for function in functions.get((file, code.co_qualname), ()):
                # A property and its setter have one name; their first lines differ.
                if function.__code__.co_firstlineno == code.co_firstlineno:
                    function.__code__ = code


def run_items(items: list[pytest.Item], plugin: object, cpu_s_max: float = math.inf) -> None:
    config = items[0].config
    config.pluginmanager.register(plugin)
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp, factory._given_basetemp = None, Path(os.environ["TMPDIR"]) / str(os.getpid())
    for index, item in enumerate(items):
        if time.process_time() > cpu_s_max:
            break
        following = items[index + 1] if index + 1 < len(items) else None
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class FirstFailure:
    """Ends the process as soon as a test fails."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os._exit(CAUGHT)


def map_calls(items: list[pytest.Item], path: Path) -> int:
    """Run tests unbroken and write what each calls; leave out those that fail or are skipped."""
    recorder = CallRecorder()
    run_items(items, recorder, time.process_time() + MAPPING_S_MAX / 2)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(recorder.calls))
    temporary.rename(path)
    return 0


class CallRecorder:
    """Records which functions of the product a test calls."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[float, list[str]]] = {}
        self.codes: set[CodeType] = set()
        self.started = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.codes = set()
        self.started = time.process_time()
        sys.settrace(self._trace)
        threading.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        self.codes.add(frame.f_code)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" or not report.passed:
            return
        names = {
            f"{path.relative_to(SRC)}:{code.co_qualname.partition('.<locals>')[0]}"
            for code in list(self.codes)  # other threads may add some
            if (path := Path(code.co_filename)).is_relative_to(SRC)
        }
        self.calls[report.nodeid] = (time.process_time() - self.started, sorted(names))
