"""Run a project twice in one process: ``pipeline_runs.py PROJECT host:port``.

The first run has the definition ``missing.py``, which fails; it is removed before the second one.
Both use one JVM, so that the second starts fast. Prints a JSON list: exit status, standard output
and standard error of each run.
"""

import json
import sys
from pathlib import Path

from typer.testing import CliRunner

from ottla.cli.app import app


def run(root: Path, bootstrap: str) -> dict[str, object]:
    words = ["pipeline", "run", str(root), "--master", "local[2]", "-o", "json"]
    done = CliRunner().invoke(app, [*words, "--set", f"ottla.bootstrap={bootstrap}"])
    return {"status": done.exit_code, "out": done.stdout, "messages": done.stderr}


def main() -> None:
    root, bootstrap = Path(sys.argv[1]), sys.argv[2]
    runs = [run(root, bootstrap)]
    (root / "transformations" / "missing.py").unlink()
    runs.append(run(root, bootstrap))
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
