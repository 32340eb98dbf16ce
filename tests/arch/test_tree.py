"""Documents match the repository: the tree, links, tests that they name, and the ADR index."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "ottla"


def drawn() -> dict[str, str]:
    """Return each package of the tree in ARCHITECTURE.md with its description."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"```\nsrc/ottla/\n(.*?)```", text, re.S)
    assert block, "ARCHITECTURE.md has no tree that starts with src/ottla/"
    found: dict[str, str] = {}
    parents: list[str] = []
    for line in block[1].splitlines():
        indent, name, words = re.fullmatch(r"( +)(\w+)/ +(.+)", line).groups()  # type: ignore[union-attr]
        depth = len(indent) // 2 - 1
        parents[depth:] = [name]
        found["/".join(parents)] = words
    return found


def on_disk() -> dict[str, str]:
    """Return each package on disk with the first line of its docstring."""
    found = {}
    for path in sorted(SRC.rglob("__init__.py")):
        package = path.parent.relative_to(SRC).as_posix()
        if package != ".":
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            found[package] = docstring.splitlines()[0].rstrip(".")
    return found


def test_tree_in_architecture_md_matches_the_packages() -> None:
    assert drawn() == on_disk()


def test_links_in_documents_exist() -> None:
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert broken == []


def test_tests_named_in_documents_exist() -> None:
    rooms = "|".join(path.name for path in (ROOT / "tests").iterdir() if path.is_dir())
    named = re.compile(rf"\b((?:{rooms})/[\w/]*test_\w+\.py)(?:::(\w+))?")
    missing = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if page.name == "CHANGELOG.md":
            continue
        for path, test in named.findall(page.read_text()):
            module = ROOT / "tests" / path
            if not module.exists() or (test and test not in defined(module)):
                missing.append(f"{page.relative_to(ROOT)} -> {path}::{test}")
    assert missing == []


def defined(module: Path) -> set[str]:
    """Return the functions and classes of a module, and methods as ``Class.method``."""
    names: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            names |= {
                f"{node.name}.{each.name}" for each in node.body if isinstance(each, functions)
            }
    return names


def test_functions_named_in_documents_exist() -> None:
    missing = []
    for page in (ROOT / "ARCHITECTURE.md", ROOT / "docs" / "reading.md"):
        named = re.findall(r"`(\w+/[\w/]+\.py)(?::([\w.]+))?`", page.read_text())
        assert len(named) > 40
        for path, name in named:
            module = ROOT / path if path.startswith("simulation/") else SRC / path
            if not module.exists() or (name and name not in defined(module)):
                missing.append(f"{page.name}: {path}:{name}")
    assert missing == []


def test_adr_file_names_and_index_follow_the_titles() -> None:
    folder = ROOT / "docs" / "adr"
    rows = []
    for page in sorted(folder.glob("0*.md")):
        number, title = re.match(r"# (\d{4}): (.+)\n", page.read_text()).groups()  # type: ignore[union-attr]
        words = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", ""))
        assert page.name == f"{number}-{words}.md"
        rows.append((number, page.name, title))
    index = (folder / "README.md").read_text()
    assert rows
    # The index is grouped by subject; each decision stands in one group.
    assert sorted(re.findall(r"\| \[(\d{4})\]\((.+?)\) \| (.+) \|", index)) == rows


def test_index_of_the_documentation_lists_every_page() -> None:
    docs = ROOT / "docs"
    links = re.findall(r"^\| \[.+?\]\((.+?)\) \|", (docs / "README.md").read_text(), re.M)
    assert [link for link in links if not (docs / link).exists()] == []
    pages = {page.name for page in docs.glob("*.md")} - {"README.md"}
    assert pages - set(links) == set()
    assert len(links) == len(set(links)), "a page is listed twice"
