"""The figures measured so far, in a JSON file, so that a run can be interrupted and resumed."""

import json
import statistics
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.broker.brokers import ROOT

PATH = ROOT / "docs" / "growth" / "figures.json"

Figures = dict[str, float]
"""Figures of one broker at one size, by name."""


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of one broker at one size, and what else the machine did meanwhile.

    ``more_than`` names the figures that are the time limit at which the measurement was given up.
    ``load_average`` is that of the minute before, ``others_percent`` the CPU time of all other
    processes during the measurement in percent of one core; None if they were not recorded.
    """

    figures: Figures
    more_than: list[str] = field(default_factory=list)
    seconds: float | None = None
    load_average: float | None = None
    others_percent: float | None = None


Saved = dict[str, dict[str, dict[int, list[Round]]]]
"""Rounds by dimension, broker and size."""


@dataclass(frozen=True, slots=True)
class Value:
    """A figure over all rounds. ``is_limit`` if it is the limit at which it was given up."""

    median: float
    least: float
    most: float
    is_limit: bool


def load(path: Path = PATH) -> Saved:
    """Return what was measured so far; nothing if there is no file."""
    raw = json.loads(path.read_text()) if path.exists() else {}
    return {
        dimension: {
            broker: {
                int(size): [Round(**each) for each in rounds] for size, rounds in sizes.items()
            }
            for broker, sizes in brokers.items()
        }
        for dimension, brokers in raw.items()
    }


def add(saved: Saved, dimension: str, broker: str, size: int, measured: Round) -> None:
    """Add a round of one size."""
    saved.setdefault(dimension, {}).setdefault(broker, {}).setdefault(size, []).append(measured)


def without(saved: Saved, dimensions: Container[str], brokers: Container[str]) -> Saved:
    """Return a copy that lacks all rounds of these dimensions of these brokers."""
    return {
        dimension: {
            broker: {size: list(measured) for size, measured in sizes.items()}
            for broker, sizes in found.items()
            if dimension not in dimensions or broker not in brokers
        }
        for dimension, found in saved.items()
    }


def rounds(saved: Saved, dimension: str, broker: str, size: int) -> list[Round]:
    """Return the rounds in which a size was measured."""
    return saved.get(dimension, {}).get(broker, {}).get(size, [])


def store(saved: Saved, path: Path = PATH) -> None:
    """Write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = {
        dimension: {
            broker: {str(size): [_written(each) for each in found] for size, found in sizes.items()}
            for broker, sizes in brokers.items()
        }
        for dimension, brokers in saved.items()
    }
    path.write_text(json.dumps(raw, indent=1, sort_keys=True) + "\n")


def _written(measured: Round) -> dict[str, object]:
    """Return a round for the file, with figures in six digits."""
    figures = {key: float(f"{value:.6g}") for key, value in measured.figures.items()}
    return asdict(measured) | {"figures": figures}


def values(saved: Saved, dimension: str, broker: str, figure: str) -> dict[int, Value]:
    """Return a figure by size, ascending: the median of its rounds, and their spread."""
    found = {}
    for size, measured in sorted(saved.get(dimension, {}).get(broker, {}).items()):
        with_it = [each for each in measured if figure in each.figures]
        if with_it:
            every = [each.figures[figure] for each in with_it]
            is_limit = any(figure in each.more_than for each in with_it)
            found[size] = Value(statistics.median(every), min(every), max(every), is_limit)
    return found


def recorded(saved: Saved, broker: str, what: Callable[[Round], float | None]) -> list[float]:
    """Return what was recorded with every round of a broker."""
    every = (
        what(each)
        for brokers in saved.values()
        for sizes in [brokers.get(broker, {})]
        for measured in sizes.values()
        for each in measured
    )
    return [each for each in every if each is not None]
