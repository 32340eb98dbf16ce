"""``make test-portable``: run tests with what macOS and Windows lack hidden from the product.

python -m tests.portable macos windows                all of unit, storage, wire, cluster, testing
python -m tests.portable windows --short              what `make test` runs
python -m tests.portable macos -- tests/wire -k fetch

It needs the pure build in ``build/plain`` (`make test-portable` makes it) and asyncio's own loop.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.portable.missing_names import PLATFORMS, description

ROOT = Path(__file__).parents[2]
SITE = ROOT / "tests/portable/site"
PLAIN = ROOT / "build/plain"
FOLDERS = ("tests/unit", "tests/storage", "tests/wire", "tests/cluster", "tests/testing")
SHORT = (
    "tests/portable",
    "tests/unit/test_runtime_disk.py",
    "tests/unit/test_runtime_system_calls.py",
    "tests/unit/test_server_send_queue.py",
    "tests/testing/test_testing_plugin.py",
)
MARKS = "not jvm and not external and not nightly"


def environment(profile: str) -> dict[str, str]:
    """Return the environment variables of processes from which a profile hides names."""
    return {
        **os.environ,
        "OTTLA_HIDES": json.dumps(description(profile)),
        "OTTLA_EXPECT": "plain",
        "PYTHONPATH": os.pathsep.join((str(SITE), str(PLAIN))),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def run(profile: str, tests: list[str], jobs: int) -> int:
    """Run pytest in a profile; return its exit code."""
    print(f"== {profile}", flush=True)
    workers = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.portable.plugin", "-m", MARKS]
    done = subprocess.run([*command, *workers, *tests], cwd=ROOT, env=environment(profile))
    return done.returncode


def main() -> int:
    """Run the profiles; return 1 unless the tests of all passed."""
    parser = argparse.ArgumentParser(prog="make test-portable")
    parser.add_argument("profiles", nargs="+", choices=sorted(PLATFORMS))
    parser.add_argument("--short", action="store_true", help="run a selection")
    parser.add_argument("--jobs", type=int, default=1)
    own, _, tests = " ".join(sys.argv[1:]).partition(" -- ")
    arguments = parser.parse_args(own.split())
    if not (PLAIN / "ottla").is_dir():
        sys.exit(f"{PLAIN} is missing: run `make plain` first")
    chosen = tests.split() or [*(SHORT if arguments.short else FOLDERS)]
    codes = [run(profile, chosen, arguments.jobs) for profile in arguments.profiles]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
