"""The version of a release, compared with the changelog and the tags. Pure."""

import re
from collections.abc import Collection

from tools.release.report import Problem

_FINAL = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_HEADING = re.compile(r"^## \[?(?P<version>[^\]\s]+)\]?(?: - (?P<date>\d{4}-\d\d-\d\d))?\s*$", re.M)


def check_version(version: str) -> None:
    """Refuse a version that package indexes or users would not take for a release."""
    if not _FINAL.fullmatch(version):
        raise Problem(
            f"{version} in pyproject.toml is a development version; "
            "set the one to be released, such as 0.1.0 or 0.1.0rc1"
        )


def check_changelog(text: str, version: str) -> str:
    """Return the entry of the version. Raises Problem if there is none or it is empty."""
    headings = list(_HEADING.finditer(text))
    for number, heading in enumerate(headings):
        if heading["version"] != version:
            continue
        if heading["date"] is None:
            raise Problem(
                f'CHANGELOG.md: the entry of {version} has no date: "## {version} - DATE"'
            )
        following = headings[number + 1 : number + 2]
        entry = text[heading.end() : following[0].start() if following else len(text)].strip()
        if not re.search(r"^- ", entry, re.M):
            raise Problem(f"CHANGELOG.md: the entry of {version} lists no change")
        return entry
    raise Problem(f'CHANGELOG.md has no entry "## {version} - DATE"; move "Unreleased" there')


def check_tag(tags: Collection[str], version: str) -> None:
    """Refuse a version that was released already."""
    if f"v{version}" in tags:
        raise Problem(f"the tag v{version} exists: {version} was released; choose another version")
