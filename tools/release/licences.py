"""The licences of all dependencies, and whether the product may be given away with them. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Licences that put no condition on the code that uses a library. LGPL and MPL concern changes of
# the library itself, which is installed beside the product and not changed.
COMPATIBLE = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "HPND",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",
    "LGPL-2.1-or-later",
    "LGPL-3.0-or-later",
    "NCSA",
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}
# What packages write that do not use SPDX's names.
_SPELLINGS = {
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "http://www.apache.org/licenses/license-2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd-3": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "the mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "psf": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
# Packages whose metadata says nothing usable; each was looked up in its own repository.
KNOWN: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Dependency:
    """An installed package, and what its metadata says of its licence."""

    name: str
    version: str
    expression: str = ""
    text: str = ""
    classifiers: tuple[str, ...] = ()


def licence_of(dependency: Dependency) -> str:
    """Return an SPDX expression; empty if the metadata does not say."""
    if dependency.expression:
        return dependency.expression
    if dependency.name.lower() in KNOWN:
        return KNOWN[dependency.name.lower()]
    first = dependency.text.strip().splitlines()[0].strip() if dependency.text.strip() else ""
    found = [_spdx(each.rpartition(" :: ")[2]) for each in dependency.classifiers]
    known = [each for each in (_spdx(first), *found) if is_compatible(each)]
    if known:
        return known[0]
    return first if len(first) < 60 else next(iter(found), "")


def _spdx(text: str) -> str:
    return _SPELLINGS.get(text.lower().rstrip("."), text)


def is_compatible(expression: str) -> bool:
    """Say whether an SPDX expression allows to use a package: one of ``OR``, all of ``AND``."""
    plain = re.sub(r"\s+WITH\s+\S+", "", expression).replace("(", " ").replace(")", " ")
    if not plain.strip():
        return False
    return all(
        any(each.strip() in COMPATIBLE for each in part.split(" OR "))
        for part in re.split(r"\s+AND\s+|\s*;\s*", plain)
    )


def render(dependencies: Iterable[Dependency]) -> str:
    """Return the list of licences as a page."""
    rows = [
        f"| {each.name} | {each.version} | {licence_of(each) or '**unknown**'} |"
        for each in sorted(dependencies, key=lambda each: each.name.lower())
    ]
    head = ["# Licences of all dependencies, extras included", ""]
    return "\n".join([*head, "| Package | Version | Licence |", "|---|---|---|", *rows]) + "\n"


def refused(dependencies: Iterable[Dependency]) -> list[str]:
    """Return the packages whose licence is unknown or not among the compatible ones."""
    return [
        f"{each.name} {each.version}: {licence_of(each) or 'unknown licence'}"
        for each in dependencies
        if not is_compatible(licence_of(each))
    ]
