"""The figures measured so far, in a JSON file, so that a run can be interrupted and resumed."""

import json
from pathlib import Path

from benchmarks.broker.brokers import ROOT

PATH = ROOT / "docs" / "growth" / "figures.json"

Figures = dict[str, float]
"""Figures of one broker at one size, by name."""
Saved = dict[str, dict[str, dict[str, Figures]]]
"""Figures by dimension, broker and size."""


def load(path: Path = PATH) -> Saved:
    """Return what was measured so far; nothing if there is no file."""
    found: Saved = json.loads(path.read_text()) if path.exists() else {}
    return found


def add(saved: Saved, dimension: str, broker: str, size: int, figures: Figures) -> None:
    """Add the figures of one size."""
    saved.setdefault(dimension, {}).setdefault(broker, {})[str(size)] = figures


def has(saved: Saved, dimension: str, broker: str, size: int) -> bool:
    """Whether a size was measured."""
    return str(size) in saved.get(dimension, {}).get(broker, {})


def store(saved: Saved, path: Path = PATH) -> None:
    """Write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")


def series(saved: Saved, dimension: str, broker: str, figure: str) -> list[tuple[int, float]]:
    """Return a figure by size, ascending."""
    sizes = saved.get(dimension, {}).get(broker, {})
    points = ((int(size), each[figure]) for size, each in sizes.items() if figure in each)
    return sorted(points)
