"""Words that docs/glossary.md replaces do not come back."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "simulation", "tests", "benchmarks", "examples", "tools", "docs")
SUFFIXES = {".py", ".md", ".toml", ".c", ".java"}
# The glossary names the words, and the changelog is history.
EXEMPT = {"docs/glossary.md", "CHANGELOG.md"}


def avoided() -> re.Pattern[str]:
    """Return a pattern of the words in the glossary's table of words to avoid."""
    table = (ROOT / "docs" / "glossary.md").read_text().split("## Words we avoid")[1]
    words = [
        word for row in re.findall(r"^\| (.*?) \|", table, re.M)[1:] for word in row.split(", ")
    ]
    assert len(words) > 10
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.I)


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [
        path
        for path in [*ROOT.glob("*.md"), *found]
        if path.suffix in SUFFIXES and path.relative_to(ROOT).as_posix() not in EXEMPT
    ]


def test_avoided_words_do_not_come_back() -> None:
    pattern = avoided()
    found = []
    for path in files():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if match := pattern.search(line.replace("_", " ")):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")
    assert found == [], "see docs/glossary.md for the word to use"


def test_texts_add_an_extra_by_its_name() -> None:
    """`pip install '.[sql]'` compiles a whole checkout again; docs/install.md says so."""
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    sources = ROOT.glob("src/**/*.py")
    named = {
        str(path.relative_to(ROOT))
        for path in (*pages, *sources)
        if "pip install '.[" in path.read_text()
    }
    assert named == {"docs/install.md"}
