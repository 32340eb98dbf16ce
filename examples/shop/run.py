"""Run a shop's pipeline from end to end.

    make run      # in one terminal: a node
    make shop     # in another one: installs Spark if it is missing, and runs this file

Fills two topics with orders and clicks, runs the pipeline in this folder on them, and prints the
results from a topic. A second run continues where the first one ended.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
PRODUCTS = ("lamp", "chair", "desk", "ink", "paper")
PAGES = ("home", "search", "product", "basket")
SIGN_OF_LIFE_S = 5
START = datetime(2026, 11, 16, 9, tzinfo=UTC)


def ottla(*words: str, given: str | None = None) -> None:
    """Run an ``ottla`` command as a shell would; exit if it fails."""
    print("$ ottla", *words, file=sys.stderr)
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    done = subprocess.run(command, input=given, text=True)  # noqa: S603 - arguments are our own
    if done.returncode:
        sys.exit(done.returncode)  # the command printed the reason


def run_pipeline(*words: str) -> None:
    """Run the pipeline with short names of tables, and a sign of life every few seconds."""
    print("$ ottla", *words, file=sys.stderr)
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    began = time.monotonic()
    running = subprocess.Popen(  # noqa: S603 - arguments are our own
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    printer = threading.Thread(target=print_lines, args=(running,))
    printer.start()
    while printer.is_alive():
        printer.join(SIGN_OF_LIFE_S)
        if printer.is_alive():
            print(f"  ... {time.monotonic() - began:.0f} s", file=sys.stderr)
    if running.wait():
        sys.exit(running.returncode)


def print_lines(running: "subprocess.Popen[str]") -> None:
    """Print what the pipeline prints: ``clicks`` for ``spark_catalog.default.clicks.clicks``."""
    assert running.stdout is not None
    for line in running.stdout:
        short = line.replace("spark_catalog.default.", "")
        print(re.sub(r"^(\w+)\.\1:", r"\1:", short), end="", file=sys.stderr)


def print_results(*words: str) -> None:
    """Print the records of a topic in the order of their text, which begins with the minute."""
    print("$ ottla", *words, "| sort", file=sys.stderr)
    command = [sys.executable, "-m", "ottla.cli.main", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    print("\n".join(sorted(done.stdout.splitlines())))
    if done.returncode:
        sys.exit(done.returncode)


def stamp(seconds: float) -> str:
    """Return the time ``seconds`` after the start, as ISO 8601 text."""
    return (START + timedelta(seconds=seconds)).isoformat()


def make_orders(count: int, draw: random.Random) -> str:
    """Return ``count`` orders spread over twenty minutes, one JSON line each."""
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
    """Return ``count`` clicks spread over the same twenty minutes, one JSON line each."""
    lines = []
    for number in range(count):
        user, page = f"user-{draw.randrange(50)}", draw.choice(PAGES)
        lines.append(json.dumps({"user": user, "page": page, "at": stamp(1200 * number / count)}))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fill the topics, run the pipeline and print its results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--orders", type=int, default=500)
    given = parser.parse_args()
    draw = random.Random(given.orders)  # noqa: S311 - example data
    at = ("--bootstrap", given.bootstrap)
    for topic in ("shop-orders", "shop-clicks", "shop-revenue"):
        ottla("topic", "create", topic, "--partitions", "2", "--if-not-exists", *at)
    ottla("produce", "shop-orders", *at, given=make_orders(given.orders, draw))
    ottla("produce", "shop-clicks", *at, given=make_clicks(given.orders * 3, draw))
    brokers = f"ottla.bootstrap={given.bootstrap}"
    run_pipeline("pipeline", "run", str(HERE), "--master", given.master, "--set", brokers)
    ottla("pipeline", "status", str(HERE), *at)
    print_results("consume", "shop-revenue", "--offset", "beginning", "--exit", *at)


if __name__ == "__main__":
    main()
