"""Check the types with mypy: strictly with Spark installed, and with Spark's types as Any without.

    python tools/check_types.py

`make check` does not install Spark. Without it, what is derived from Spark's classes cannot be
checked strictly; CI installs Spark first.
"""

import importlib.util
import subprocess
import sys

# What mypy would otherwise report of classes, decorators and results that are Any.
WITHOUT_SPARK = (
    "--ignore-missing-imports",
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--no-warn-return-any",
    "--no-warn-unused-ignores",
)


def main() -> int:
    """Run mypy; return its exit code."""
    options: tuple[str, ...] = ()
    if importlib.util.find_spec("pyspark") is None:
        options = WITHOUT_SPARK
        sys.stderr.write("Spark is not installed: its types are not checked (`make setup`)\n")
    return subprocess.run([sys.executable, "-m", "mypy", *options]).returncode


if __name__ == "__main__":
    sys.exit(main())
