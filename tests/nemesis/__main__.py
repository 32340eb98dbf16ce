"""Inject faults into real clusters: python -m tests.nemesis [--seconds N] [--nodes N] [--seed N]
[--faults A,B] [--security sasl_ssl [--session-ms N]] [--mixed] [--tier]

Rounds of all faults, in an order given by the seed, until the time is up; then the history is
checked. A failed run keeps its directory: the history, and the output of every node.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.nemesis.faults import plan
from tests.nemesis.security import MODES, PLAINTEXT
from tests.nemesis.trial import Shape, catalogue, run_trial


def endless(names: list[str], seed: int, seconds: float) -> Iterator[str]:
    """Yield faults until the time is up, at least one."""
    rng, deadline = Random(seed), time.monotonic() + seconds
    while True:
        for name in plan(names, rng):
            yield name
            if time.monotonic() > deadline:
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--faults", help="names, separated by commas; all by default")
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--hold", type=float, default=6.0)
    parser.add_argument("--relays", action="store_true", help="no networks of their own")
    parser.add_argument("--security", choices=MODES, default=PLAINTEXT)
    parser.add_argument("--session-ms", type=int, default=0, help="log in again within this time")
    parser.add_argument("--mixed", action="store_true", help="some nodes run Apache Kafka")
    parser.add_argument("--tier", action="store_true", help="with tiered storage")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    root = arguments.directory or Path(tempfile.mkdtemp(prefix="nemesis-"))
    root.mkdir(parents=True, exist_ok=True)
    print(f"seed {arguments.seed}, {arguments.nodes} nodes, in {root}", flush=True)
    shape = Shape(
        nodes=arguments.nodes,
        rate=arguments.rate,
        hold_s=arguments.hold,
        is_apart=not arguments.relays,
        security=arguments.security,
        session_ms=arguments.session_ms,
        is_mixed=arguments.mixed,
        is_tiered=arguments.tier,
        has_consumer_group=arguments.mixed,
    )
    names = arguments.faults.split(",") if arguments.faults else list(catalogue(shape))
    faults = endless(names, arguments.seed, arguments.seconds)
    outcome = run_trial(shape, faults, seed=arguments.seed, directory=root)
    print(outcome)
    if outcome.is_good and arguments.directory is None:
        shutil.rmtree(root)
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
