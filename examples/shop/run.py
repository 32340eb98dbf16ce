"""A shop's pipeline from end to end, in one command:

    make run                                      # in one terminal
    .venv/bin/python examples/shop/run.py         # in another

It fills two topics with orders and clicks, runs the pipeline beside this file on them, and shows
what came back in a topic. Run it again: the pipeline goes on where it ended.
"""

import argparse
import json
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
PRODUCTS = ("lamp", "chair", "desk", "ink", "paper")
PAGES = ("home", "search", "product", "basket")
START = datetime(2026, 11, 16, 9, tzinfo=UTC)


def ottla(*words: str, given: str | None = None) -> None:
    """Run an ``ottla`` command, as in a shell."""
    print("$ ottla", *words, file=sys.stderr)
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    done = subprocess.run(command, input=given, text=True)  # noqa: S603 - our own words
    if done.returncode:
        sys.exit(done.returncode)  # it has said why


def stamp(seconds: float) -> str:
    """Return a moment of the day as text."""
    return (START + timedelta(seconds=seconds)).isoformat()


def make_orders(count: int, draw: random.Random) -> str:
    """Return ``count`` orders within twenty minutes, a line each."""
    lines = []
    for number in range(count):
        order = {
            "id": number,
            "user": f"user-{draw.randrange(50)}",
            "product": draw.choice(PRODUCTS),
            "amount": round(draw.uniform(1, 200), 2),
            "at": stamp(1200 * number / count),
        }
        lines.append(json.dumps(order))
    return "\n".join(lines) + "\n"


def make_clicks(count: int, draw: random.Random) -> str:
    """Return ``count`` clicks within the same twenty minutes, a line each."""
    lines = []
    for number in range(count):
        user, page = f"user-{draw.randrange(50)}", draw.choice(PAGES)
        lines.append(json.dumps({"user": user, "page": page, "at": stamp(1200 * number / count)}))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fill the topics, run the pipeline, show its results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--orders", type=int, default=500)
    given = parser.parse_args()
    draw = random.Random(given.orders)  # noqa: S311 - made-up data
    at = ("--bootstrap", given.bootstrap)
    for topic in ("shop-orders", "shop-clicks", "shop-revenue"):
        ottla("topic", "create", topic, "--partitions", "2", "--if-not-exists", *at)
    ottla("produce", "shop-orders", *at, given=make_orders(given.orders, draw))
    ottla("produce", "shop-clicks", *at, given=make_clicks(given.orders * 3, draw))
    brokers = f"ottla.bootstrap={given.bootstrap}"
    ottla("pipeline", "run", str(HERE), "--master", given.master, "--set", brokers)
    ottla("pipeline", "status", str(HERE), *at)
    ottla("consume", "shop-revenue", "--offset", "beginning", "--exit", *at)


if __name__ == "__main__":
    main()
