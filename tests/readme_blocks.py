"""The blocks of the README and of docs/clients.md, in their order, for the tests that run them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/clients.md")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


class Block(NamedTuple):
    """A block as it is written."""

    language: str
    text: str

    @property
    def is_install(self) -> bool:
        """Whether it only installs something into the environment of the user."""
        return all(line.startswith("pip install") for line in self.text.splitlines())

    @property
    def is_test(self) -> bool:
        """Whether it is a file for pytest."""
        return "def test_" in self.text


def readme_blocks(root: Path = ROOT) -> list[Block]:
    """Return every block of the pages. Fails if one has a language that no test runs."""
    texts = [(root / page).read_text() for page in PAGES]
    blocks = [Block(*match) for text in texts for match in _BLOCK.findall(text)]
    assert {block.language for block in blocks} <= {"sh", "python"}, "a block that no test runs"
    return blocks
