"""Python environments with other versions of Spark, made from PyPI and kept in ``build``.

Each installs the requirements that ``pyproject.toml`` declares for an extra, so that a test with it
also proves that the extra's versions fit together. Ottla itself is used from the source tree, with
its compiled modules.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "environments"
INSTALL_S = 900


class Unavailable(Exception):
    """PyPI could not provide an environment; the message says why."""


def requirements_of(extra: str, *more: str) -> list[str]:
    """Return the requirements of ottla with an extra; ``more`` pins versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = [*project["dependencies"]]
    for each in extras[extra]:
        found += extras[each[6:-1]] if each.startswith("ottla[") else [each]
    return [*found, *more]


def environment_python(name: str, requirements: list[str]) -> Path:
    """Return the Python of an environment, which is made first if its requirements changed.

    Raises:
        Unavailable: the packages cannot be installed.
    """
    home = ENVIRONMENTS / name
    python, done = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(requirements)
    if done.exists() and done.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    home.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=INSTALL_S)
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    installed = subprocess.run(
        [*command, *requirements], capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if installed.returncode:
        raise Unavailable(f"PyPI could not provide {name}: {installed.stderr[-300:]}")
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "ottla.pth").write_text(f"{ROOT / 'src'}\n")
    done.write_text(wanted)
    return python
