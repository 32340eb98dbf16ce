"""Fuzz every codec: python -m tests.fuzz [--seconds N] [--seed N] [--api NAME] [--step N]

Rounds over all APIs until the time is up. Anything but a ProtocolFault, and any growth of memory
after the first rounds, is a failure that is printed with the arguments that replay it.
"""

import argparse
import secrets
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.target import Tally, run_step

from ottla.protocol.api_keys import ApiKey

WARM_UP_ROUNDS = 5
GROWTH_MAX = 64 << 20
PAGE = 4096


def resident() -> int:
    """Return the resident memory of the process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def attempt(seed: int, key: ApiKey, step: int, tally: Tally) -> bool:
    try:
        run_step(seed, key, step, tally)
    except Exception:
        traceback.print_exc()
        print(f"FAILED: python -m tests.fuzz --seed {seed} --api {key.name} --step {step}")
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--api", choices=[key.name for key in ApiKey])
    parser.add_argument("--step", type=int, help="replay this one")
    arguments = parser.parse_args()
    keys = [ApiKey[arguments.api]] if arguments.api else list(ApiKey)
    tally = Tally()
    print(f"seed {arguments.seed}")
    if arguments.step is not None:
        return 0 if all(attempt(arguments.seed, k, arguments.step, tally) for k in keys) else 1
    deadline = time.monotonic() + arguments.seconds
    step, base = 0, 0
    while time.monotonic() < deadline or step <= WARM_UP_ROUNDS:
        if step == WARM_UP_ROUNDS:
            base = resident()
        if not all(attempt(arguments.seed, key, step, tally) for key in keys):
            return 1
        step += 1
    growth = resident() - base
    print(f"{step} rounds, {tally.read} read, {tally.refused} refused, memory +{growth >> 10} KiB")
    if growth > GROWTH_MAX:
        print("FAILED: memory grows")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
