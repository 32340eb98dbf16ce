"""Build the documentation as a site into ``build/site``, with search; broken links fail.

    python3 tools/site.py

mkdocs-material is in ``build/site-tools``, apart from the project's environment. Pages are copied
first, since links between pages of different directories must stay below one root.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "build" / "site-tools"
SOURCE = ROOT / "build" / "site-source"
REQUIREMENT = "mkdocs-material>=9.6,<10"
# Files that pages link to; a site shows them as they are.
LINKED = ("docs", "deploy", "examples", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")


def main() -> None:
    """Install the generator if it is missing, copy the pages, and build."""
    python = TOOLS / "bin" / "python"
    if not (TOOLS / "bin" / "mkdocs").exists():
        sys.stderr.write("installing mkdocs-material\n")
        venv.create(TOOLS, with_pip=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, REQUIREMENT], check=True)
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for name in (*LINKED, "CHANGELOG.md", "LICENSE"):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, SOURCE / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, SOURCE / name)
    subprocess.run(
        [TOOLS / "bin" / "mkdocs", "build", "--strict"],
        cwd=ROOT,
        check=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    sys.stdout.write(f"{ROOT / 'build' / 'site' / 'index.html'}\n")


if __name__ == "__main__":
    main()
