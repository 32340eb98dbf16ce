"""`python -m simulation`: run seeds; exit 1 if an invariant broke or a replay differed.

One seed is run twice. The journal hash must be the same both times; otherwise something outside the
simulation influenced it.
"""

import argparse
import sys
import traceback

from simulation.runner import Outcome, play
from simulation.scenarios import SCENARIOS, STEPPED

SEEDS_DEFAULT = "0:100"
# Slow scenarios run only one of this many seeds.
STEPPED_ONE_IN = 50
LINES_SHOWN = 60


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    options = _parse(arguments)
    names = [options.scenario] if options.scenario else list(SCENARIOS)
    if options.seed is not None:
        return max(_replay(name, options.seed) for name in names)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last))
    return max(_play_many(name, seeds) for name in names)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play one seed, twice, and show its end")
    parser.add_argument("--seeds", default=SEEDS_DEFAULT, help="first:last, last not included")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="one scenario only")
    return parser.parse_args(arguments)


def _replay(name: str, seed: int) -> int:
    first, second = play(name, seed), play(name, seed)
    print("\n".join(first.lines[-LINES_SHOWN:]))
    _show(first)
    if first.hash != second.hash:
        print(f"  not deterministic: the second run gave journal={second.hash}")
        return 1
    print("  replayed: the same journal twice")
    return 0 if first.error is None else 1


def _play_many(name: str, seeds: range) -> int:
    if name in STEPPED:
        seeds = seeds[::STEPPED_ONE_IN]
    failures, events, simulated = 0, 0, 0.0
    for seed in seeds:
        outcome = play(name, seed)
        events += outcome.events
        simulated += outcome.seconds
        if outcome.error is not None:
            failures += 1
            _show(outcome)
    print(
        f"{name}: {len(seeds)} seeds, {failures} failed, "
        f"{events} events, {simulated:.0f} s simulated"
    )
    return 1 if failures else 0


def _show(outcome: Outcome) -> None:
    print(outcome.describe(), flush=True)
    if outcome.error is not None:
        traceback.print_exception(outcome.error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
