"""The tree drawn in ARCHITECTURE.md is the tree on disk, and says what the packages say."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "ottla"


def drawn() -> dict[str, str]:
    """package path -> its line in the block that opens with ``src/ottla/``."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"```\nsrc/ottla/\n(.*?)```", text, re.S)
    assert block, "ARCHITECTURE.md has a tree that opens with src/ottla/"
    found: dict[str, str] = {}
    parents: list[str] = []
    for line in block[1].splitlines():
        indent, name, words = re.fullmatch(r"( +)(\w+)/ +(.+)", line).groups()  # type: ignore[union-attr]
        depth = len(indent) // 2 - 1
        parents[depth:] = [name]
        found["/".join(parents)] = words
    return found


def on_disk() -> dict[str, str]:
    """package path -> the first line of its docstring."""
    found = {}
    for path in sorted(SRC.rglob("__init__.py")):
        package = path.parent.relative_to(SRC).as_posix()
        if package != ".":
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            found[package] = docstring.splitlines()[0].rstrip(".")
    return found


def test_the_tree_in_architecture_md_is_the_tree_on_disk() -> None:
    assert drawn() == on_disk()


def test_every_room_to_come_is_not_there_yet() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"```\nto come\n(.*?)```", text, re.S)
    assert block
    planned = re.findall(r"^ +(\w+)/", block[1], re.M)
    assert planned
    assert [room for room in planned if (SRC / room).exists()] == []


def test_links_in_documents_lead_somewhere() -> None:
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert broken == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    pages = sorted(p.name for p in (ROOT / "docs" / "adr").glob("0*.md"))
    assert pages
    assert [page for page in pages if f"({page})" not in index] == []
