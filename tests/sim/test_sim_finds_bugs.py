"""The simulator must catch broken services.

Each of these breaks the journal in a way in which real stores were broken. ``SEEDS_MAX`` is how
many seeds it may take to find it.
"""

import asyncio

import pytest

from ottla.runtime.ports import File
from simulation.__main__ import main
from simulation.append_service import AppendService
from simulation.journal_store import DIRECTORY, JournalStore
from simulation.ledger import InvariantBroken, Ledger
from simulation.log_store import LogStore
from simulation.runner import Outcome, play, play_scenario
from simulation.scenarios import SCENARIOS, STEPPED, ServiceMaker, run_store_scenario, serving
from simulation.simulation import Ports, Simulation

SEEDS_MAX = 25
# `make sim` runs hundreds; here only enough to see that the correct services pass.
SEEDS_PASSED = 8


class AcksBeforeSync(JournalStore):
    async def commit(self) -> None:
        await asyncio.sleep(0)


class ForgetsTheDirectory(JournalStore):
    def _settle_names(self) -> None:
        pass


class RetriesAFailedSync(JournalStore):
    async def commit(self) -> None:
        await asyncio.sleep(0.005)
        for file in self._files:
            try:
                file.sync()
            except OSError:
                file.sync()
        self._files = self._files[-1:]


class KeepsATornTail(JournalStore):
    def _drop_tail(self, file: File, size: int) -> None:
        self._end = size


class ChecksNoCrc(JournalStore):
    def _is_whole(self, value: bytes, length: int, crc: int) -> bool:
        return length > 0 and len(value) == length


class TrustsThePageCache(JournalStore):
    """Recovery reads from the page cache; only the last file is ever synced again."""

    def _settle(self, file: File) -> None:
        pass


class ForgetsTheFullFile(JournalStore):
    async def commit(self) -> None:
        self._files = self._files[-1:]
        await super().commit()


class WritesOnAfterAShortWrite(JournalStore):
    def append(self, value: bytes) -> int:
        try:
            return super().append(value)
        except OSError:
            self._end = self._files[-1].size()
            return super().append(value)


class AnswersForWhatCameDuringTheCommit(AppendService):
    async def _serve_some(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        if self._failure is not None:
            raise self._failure
        await self._store.commit()
        batch, self._waiting = self._waiting, []
        self._reply(batch)


class AnswersInSpiteOfAFailedCommit(AppendService):
    async def _serve_some(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        batch, self._waiting = self._waiting, []
        try:
            await self._store.commit()
        finally:
            self._reply(batch)


class LogAcksBeforeSync(LogStore):
    async def commit(self) -> None:
        await asyncio.sleep(0)


class LogSyncsTheActiveSegmentAlone(LogStore):
    """Skips sealed segments and the names of new files, which have to be synced too."""

    async def commit(self) -> None:
        plan = self._log.flush_plan()
        await self._committer.commit(plan.files[-1:])
        self._log.flushed(plan)


def on_store(store: type[JournalStore]) -> ServiceMaker:
    def make(ports: Ports, ledger: Ledger) -> AppendService:
        return AppendService(ports, ledger, store(ports.disk, ports.committer(DIRECTORY)))

    return make


def with_service(service: type[AppendService]) -> ServiceMaker:
    def make(ports: Ports, ledger: Ledger) -> AppendService:
        return service(ports, ledger, JournalStore(ports.disk, ports.committer(DIRECTORY)))

    return make


def play_many(make: ServiceMaker) -> list[Outcome]:
    """Run seeds until one fails; return all outcomes."""
    outcomes = []

    async def scenario(simulation: Simulation) -> None:
        await run_store_scenario(simulation, make)

    for seed in range(SEEDS_MAX):
        outcomes.append(play_scenario("broken", scenario, seed))
        if outcomes[-1].error is not None:
            break
    return outcomes


BROKEN: list[tuple[str, ServiceMaker]] = [
    *(
        (store.__name__, on_store(store))
        for store in (
            AcksBeforeSync,
            ForgetsTheDirectory,
            RetriesAFailedSync,
            KeepsATornTail,
            ChecksNoCrc,
            TrustsThePageCache,
            ForgetsTheFullFile,
            WritesOnAfterAShortWrite,
        )
    ),
    *(
        (store.__name__, serving(store))
        for store in (
            LogAcksBeforeSync,
            LogSyncsTheActiveSegmentAlone,
        )
    ),
    *(
        (service.__name__, with_service(service))
        for service in (AnswersForWhatCameDuringTheCommit, AnswersInSpiteOfAFailedCommit)
    ),
]


@pytest.mark.parametrize("make", [make for _, make in BROKEN], ids=[name for name, _ in BROKEN])
def test_broken_service_is_caught(make: ServiceMaker) -> None:
    outcomes = play_many(make)
    assert isinstance(outcomes[-1].error, InvariantBroken), f"not caught in {SEEDS_MAX} seeds"
    assert f"make sim SEED={outcomes[-1].seed}" in outcomes[-1].describe()


# The broken services above run in these two; all other scenarios have tests of their own, and those
# that inject a fault at every step are run by test_coordinator_steps.py.
STORES = ("journal", "partition-log")


@pytest.mark.parametrize(
    "name",
    [
        *STORES,
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in sorted(set(SCENARIOS) - STEPPED - set(STORES))
        ),
    ],
)
def test_scenarios_pass(name: str) -> None:
    outcomes = [play(name, seed) for seed in range(SEEDS_PASSED)]
    assert [outcome.describe() for outcome in outcomes if outcome.error] == []
    assert all(outcome.events > 200 for outcome in outcomes)


def test_command_replays_a_seed_and_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--scenario", "journal"]) == 0
    printed = capsys.readouterr().out
    assert "seed=7" in printed
    assert play("journal", 7).hash in printed
    assert "the same journal twice" in printed


def test_command_fails_and_names_the_failing_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(simulation: Simulation) -> None:
        await run_store_scenario(simulation, on_store(AcksBeforeSync))

    monkeypatch.setitem(SCENARIOS, "journal", broken)
    assert main(["--seeds", "0:2", "--scenario", "journal"]) == 1
    captured = capsys.readouterr()
    assert "make sim SEED=0" in captured.out
    assert "2 seeds" in captured.out
    assert "InvariantBroken" in captured.err
