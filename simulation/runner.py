"""Run scenarios on seeds and report the outcome."""

from dataclasses import dataclass

from simulation.scenarios import SCENARIOS, Scenario
from simulation.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario run on one seed. ``lines`` is the end of the journal."""

    scenario: str
    seed: int
    hash: str
    events: int
    seconds: float
    error: BaseException | None
    lines: tuple[str, ...]

    def describe(self) -> str:
        """Return one line for a person, with the command to replay a failure."""
        result = "ok" if self.error is None else f"FAILED: {self.error!r}"
        line = (
            f"{self.scenario} seed={self.seed} events={self.events} "
            f"simulated={self.seconds:.1f}s journal={self.hash} {result}"
        )
        return line if self.error is None else f"{line}\n  replay: make sim SEED={self.seed}"


def play(name: str, seed: int) -> Outcome:
    """Run the scenario called ``name`` on ``seed``."""
    return play_scenario(name, SCENARIOS[name], seed)


def play_scenario(name: str, scenario: Scenario, seed: int) -> Outcome:
    """Run ``scenario`` in a fresh simulation. What it raises is part of the outcome."""
    simulation = Simulation(seed)
    error: BaseException | None = None

    async def director() -> None:
        await scenario(simulation)

    try:
        simulation.run(director)
    except Exception as caught:  # noqa: BLE001 - a failing seed is a result, reported whole
        error = caught
    journal = simulation.journal
    return Outcome(
        name,
        seed,
        journal.hash(),
        journal.count,
        simulation.loop.time(),
        error,
        tuple(journal.lines),
    )
