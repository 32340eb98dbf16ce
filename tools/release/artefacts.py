"""The contents of wheels and sdist, compared with the source."""

import tarfile
import zipfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from tools.release.report import Problem


def names_in(path: Path) -> set[str]:
    """Return the names of the files in an artefact, those of an sdist without its folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return set(wheel.namelist())
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def check_wheel(
    name: str, contents: Collection[str], sources: Collection[str], compiled: Collection[str]
) -> None:
    """Refuse a wheel without a module, a licence or a compiled form, or with one too many."""
    if missing := sorted(set(sources) - set(contents)):
        raise Problem(f"{name} lacks {len(missing)} files: {', '.join(missing[:3])}")
    if not any(PurePosixPath(each).name == "LICENSE" for each in contents):
        raise Problem(f"{name} has no LICENSE")
    libraries = {each.partition(".")[0] for each in contents if each.endswith((".so", ".pyd"))}
    if "none-any" in name:
        if libraries:
            raise Problem(
                f"{name} is for every machine and has compiled files: {sorted(libraries)}"
            )
        return
    if "manylinux" not in name:
        raise Problem(f"{name} is not tagged manylinux: package indexes refuse it")
    if lacking := sorted({each.replace(".", "/") for each in compiled} - libraries):
        raise Problem(f"{name} has no compiled {', '.join(lacking)}: is there a C compiler?")


def check_sdist(name: str, contents: Collection[str], sources: Collection[str]) -> None:
    """Refuse an sdist that cannot be built."""
    needed = {f"src/{each}" for each in sources} | {"pyproject.toml", "setup.py", "LICENSE"}
    if missing := sorted(needed - set(contents)):
        raise Problem(f"{name} lacks {len(missing)} files: {', '.join(missing[:3])}")
