"""Draw the packages of ``src/ottla`` into ARCHITECTURE.md, with the first line of each docstring.

python -m tools.draw_tree
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "ottla"
PAGE = ROOT / "ARCHITECTURE.md"
PLANNED = re.compile(r"(```\nto come\n)(.*?)(```)", re.S)
BLOCK = re.compile(r"(```\nsrc/ottla/\n)(.*?)(```)", re.S)


def draw() -> str:
    """Return the tree on disk, one line per package."""
    lines = []
    for path in sorted(SRC.rglob("__init__.py")):
        parts = path.parent.relative_to(SRC).parts
        if parts:
            docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
            name = "  " * len(parts) + f"{parts[-1]}/"
            lines.append(f"{name:<18} {docstring.splitlines()[0].rstrip('.')}\n")
    return "".join(lines)


def still_to_come(lines: str) -> str:
    """Remove the rooms that exist from the list of planned ones."""
    kept = [
        line
        for line in lines.splitlines(keepends=True)
        if not (SRC / line.split("/")[0].strip()).is_dir()
    ]
    return "".join(kept)


def main() -> None:
    """Rewrite both blocks of the page."""
    text = BLOCK.sub(lambda found: found[1] + draw() + found[3], PAGE.read_text())
    text = PLANNED.sub(lambda found: found[1] + still_to_come(found[2]) + found[3], text)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
